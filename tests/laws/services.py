"""A driver with every party as a service: real gRPC with mutual TLS on this machine, a store each, one event loop."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import roster_digest
from croupier.core.view import View
from croupier.engine.federation import Federation, least
from croupier.engine.loop import begin
from croupier.engine.state import run_id
from croupier.engine.task import Task
from croupier.engine.work import RoundWork
from croupier.pipeline import Pipeline
from croupier.service.client import Client
from croupier.service.host import Host
from croupier.service.identity import Keyring, make_keys
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member
from croupier.service.notice import Notice
from croupier.service.party import CoinSource, Options, PartyProcess
from croupier.service.player import Hook, nothing
from croupier.service.roster import Roster, Timetable
from croupier.service.start import run_party
from croupier.service.store import Store
from croupier.spec import Spec

QUICK = Timetable(phase=2.0, round=20.0, hold=2.0)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass(frozen=True)
class Deployment:
    """A whole federation on this machine, seeded as a simulation is."""

    pipeline: Pipeline
    task: Task
    plan: Federation
    coins: Coins
    times: Timetable = QUICK
    absent: frozenset[str] = frozenset()
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    bend: Callable[[str, Pipeline], Pipeline] = lambda name, pipeline: pipeline

    def members(self) -> dict[str, Member]:
        """Everybody, with keys of their own; what a simulation deals is dealt here too, so that views are equal."""
        clients = self.task.enrolled
        hosts = tuple(self.pipeline.parties(()))
        now = dt.datetime.now(dt.UTC)
        rings = {name: make_keys(name, Coins.from_os(), now) for name in (*clients, *hosts)}
        ports = dict(zip(hosts, free_ports(len(hosts)), strict=True))
        roster = self.roster(rings, ports)
        dealt = self.pipeline.place.enrol(clients, self.coins.child("enrol", roster_digest(clients)))
        members = {name: Member(name, roster, ring) for name, ring in rings.items()}
        for name, member in members.items():
            member.__dict__["keys"] = dealt.get(name, {})
            member.__dict__["pipeline"] = self.bend(name, self.pipeline)
        return members

    def roster(self, rings: Mapping[str, Keyring], ports: Mapping[str, int]) -> Roster:
        """The roster that everybody accepted."""
        today = dt.date.today()
        cards = [ring.card(f"127.0.0.1:{ports[name]}" if name in ports else "", today) for name, ring in rings.items()]
        spec = Spec(protocol=self.pipeline, federation=self.plan)
        invited = self.plan.cohort or len(self.task.enrolled)
        quorum = max(least(self.plan, invited), self.pipeline.release.least)
        return Roster(
            tuple(sorted(cards, key=lambda card: card.name)), spec, run_id(self.coins), quorum, self.times,
            layout=self.task.layout, inputs=self.task.inputs,
        )  # fmt: skip

    def coins_of(self, name: str) -> CoinSource:
        """A party's coins, as the simulation derives them."""

        def drawn(notice: Notice) -> bytes:
            node = self.coins.child("party", name).child("run", notice.run, "round", notice.round)
            return (node if name in self.task.enrolled else node.child("attempt", notice.attempt)).export()

        return drawn

    def party(self, member: Member, folder: Path, seen: dict[tuple[int, str], View]) -> PartyProcess:
        """One party, ready to run."""
        work = RoundWork(self.pipeline, self.task).by_name()
        options = Options(
            coins=self.coins_of(member.name),
            shard=self.task.shards.get(member.name, ""),
            keep="keep",
            hook=self.hooks.get(member.name, nothing),
            on_view=lambda notice, view: seen.__setitem__((notice.round, view.party), view),
        )
        store = Store(folder / member.name)
        if member.name != SERVER:
            kind = Client if member.is_client else Host
            return kind(member, store, work, options)
        first = begin(self.task, self.pipeline).memories[SERVER]
        measures = Measures(self.task.evaluate, self.coins)
        return Lead(member, store, work, replace(options, first_memory=first), measures)


@contextmanager
def folder_of() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def deployed(deployment: Deployment) -> tuple[dict[tuple[int, str], View], list[dict[str, Any]], dict[str, Any]]:
    """Run it: every party's view by round, the server's lines, and how each party ended."""
    seen: dict[tuple[int, str], View] = {}

    async def main(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        members = {name: one for name, one in deployment.members().items() if name not in deployment.absent}
        parties = {name: deployment.party(member, folder, seen) for name, member in members.items()}
        tasks = {name: asyncio.create_task(run_party(party), name=name) for name, party in parties.items()}
        _, stuck = await asyncio.wait(tasks.values(), timeout=deployment.times.round * 2)
        for one in stuck:
            one.print_stack()
            one.cancel()
        ended = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
        store = Store(folder / SERVER)
        lines = [canon.load(value) for value in store.facts("line ")]
        store.close()
        return lines, ended

    with folder_of() as folder:
        lines, ended = asyncio.run(main(folder))
    return seen, lines, ended
