"""A driver with every party as a service: real gRPC with mutual TLS on this machine, a store each, one event loop."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from croupier.agree.board import enrol
from croupier.agree.seats import simulated_coins
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
from croupier.service.card import host_role
from croupier.service.client import Client
from croupier.service.host import Host
from croupier.service.identity import Keyring, make_keys
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member
from croupier.service.notice import ROUND, Notice
from croupier.service.options import CoinSource, Options
from croupier.service.party import PartyProcess
from croupier.service.roster import Roster, Timetable
from croupier.service.seated import Hook, nothing
from croupier.service.start import run_party
from croupier.service.store import Store
from croupier.spec import Spec

# Every party's view of an attempt: by round, by what was called for and how often before, and by party.
Seen = dict[tuple[int, str, int, str], View]
# Long enough for a busy machine: no law that uses it waits for a step to end.
QUICK = Timetable(phase=15.0, round=60.0, hold=2.0)


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
        identities = enrol(clients, self.coins.child("epoch").child("identities"))
        public = next(iter(identities.values()))["public"]
        members = {name: Member(name, roster, ring) for name, ring in rings.items()}
        for name, member in members.items():
            member.__dict__["keys"] = dealt.get(name, {})
            member.__dict__["agreement_keys"] = identities.get(name, {"public": public})
            member.__dict__["pipeline"] = self.bend(name, self.pipeline)
        return members

    def roster(self, rings: Mapping[str, Keyring], ports: Mapping[str, int]) -> Roster:
        """The roster that everybody accepted."""
        today = dt.date.today()
        cards = [
            ring.card(f"127.0.0.1:{ports[name]}", today, host_role(name)) if name in ports else ring.card("", today)
            for name, ring in rings.items()
        ]
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
            if notice.what != ROUND:
                root = self.coins.child("epoch").child("agree")
                return simulated_coins(notice.called, notice.run, root, name).export()
            node = self.coins.child("party", name).child("run", notice.run, "round", notice.round)
            return (node if name in self.task.enrolled else node.child("attempt", notice.attempt)).export()

        return drawn

    def party(self, member: Member, folder: Path, seen: Seen) -> PartyProcess:
        """One party, ready to run."""
        work = RoundWork(self.pipeline, self.task).by_name()
        options = Options(
            coins=self.coins_of(member.name),
            shard=self.task.shards.get(member.name, ""),
            keep="keep",
            hook=self.hooks.get(member.name, nothing),
            on_view=lambda notice, view: seen.__setitem__(_place(notice, view), view),
        )
        store = Store(folder / member.name)
        if member.name != SERVER:
            kind = Client if member.is_client else Host
            return kind(member, store, work, options)
        first = begin(self.task, self.pipeline).memories[SERVER]
        measures = Measures(self.task.evaluate, self.coins)
        return Lead(member, store, work, replace(options, first_memory=first), measures)


def _place(notice: Notice, view: View) -> tuple[int, str, int, str]:
    # A round that starts again has views of its last attempt only, as in a simulation.
    return notice.round, notice.what, 0 if notice.what == ROUND else notice.attempt, view.party


class Killed(BaseException):
    """A party's process is gone: nothing in it can catch this. It is started again, unless it stays `down`."""

    down = False


class Down(Killed):
    """One that is not started again."""

    down = True


def killing(at: str, kind: type[Killed] = Killed) -> Hook:
    """Kill the party when it first comes to a step."""
    left = [at]

    def hook(step: str, number: int) -> None:
        if step in left:
            left.remove(step)
            raise kind

    return hook


async def _restarted(deployment: Deployment, party: PartyProcess, folder: Path, seen: Seen) -> None:
    """A party from its first call to its last, started again on the same store when a hook killed it."""
    while True:
        try:
            return await run_party(party)
        except Killed as killed:
            if killed.down:
                return None
            party = deployment.party(party.member, folder, seen)


@contextmanager
def folder_of() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def deployed(
    deployment: Deployment, afterwards: Callable[[Path, Mapping[str, Member]], Awaitable[None]] | None = None
) -> tuple[Seen, list[dict[str, Any]], dict[str, Any]]:
    """Run it: every party's views, the server's lines, and how each party ended; `afterwards` looks into the stores."""
    seen: Seen = {}

    async def main(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        members = {name: one for name, one in deployment.members().items() if name not in deployment.absent}
        parties = {name: deployment.party(member, folder, seen) for name, member in members.items()}
        tasks = {
            name: asyncio.create_task(_restarted(deployment, party, folder, seen), name=name)
            for name, party in parties.items()
        }
        _, stuck = await asyncio.wait(tasks.values(), timeout=deployment.times.round * 2)
        for one in stuck:
            one.print_stack()
            one.cancel()
        ended = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
        store = Store(folder / SERVER)
        lines = [canon.load(value) for value in store.facts("line ")]
        store.close()
        if afterwards is not None:
            await afterwards(folder, members)
        return lines, ended

    with folder_of() as folder:
        lines, ended = asyncio.run(main(folder))
    return seen, lines, ended
