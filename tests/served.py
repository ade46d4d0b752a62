"""One running host and whoever calls it, by hand: for tests that send what no honest party would."""

from __future__ import annotations

import asyncio
import datetime as dt
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from croupier.core.coins import Coins
from croupier.core.envelope import Header
from croupier.core.wire import Schema
from croupier.engine.federation import Federation
from croupier.pipeline import Pipeline
from croupier.service.host import Host
from croupier.service.identity import make_keys
from croupier.service.member import SERVER, Member
from croupier.service.notice import ROUND, Notice
from croupier.service.options import Options
from croupier.service.rehearsal import make_members
from croupier.service.roster import Timetable
from croupier.service.store import Store
from croupier.service.transport import OK, Calls, listen
from croupier.spec import Spec
from croupier_lab.bench.services.toy import PIPELINES, toy_task

TIMES = Timetable(phase=5.0, round=20.0, hold=0.3)
NAMES = ("c0", "c1", "c2", "c3")


@dataclass
class Scene:
    """A relay that is being tested, everybody's keys, and what the relay told its operator."""

    members: dict[str, Member]
    host: Host
    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    dialled: dict[str, Calls] = field(default_factory=dict)

    def calls(self, name: str) -> Calls:
        """The connections of one party."""
        return self.dialled.setdefault(name, Calls(self.members[name]))

    def notice(self, number: int = 0, **changed: Any) -> Notice:
        """A notice as the server would write it."""
        roster = self.members[SERVER].roster
        return replace(Notice(number, ROUND, roster.digest, roster.run, 0, 0, roster.clients), **changed)

    async def push(self, notice: Notice, signer: str = SERVER, caller: str = SERVER) -> bytes:
        """Open an attempt at the relay."""
        signed = notice.sign(self.members[signer].keyring.identity)
        return await self.calls(caller).open(self.host.name, signed, 5.0)

    async def open(self, notice: Notice) -> Notice:
        """The same, where nothing is wrong with it."""
        assert await self.push(notice) == OK
        return notice

    def schemas(self, notice: Notice) -> Mapping[str, Schema]:
        """What messages look like."""
        member = self.members[self.host.name]
        return member.pipeline.schemas(member.given(notice, "", 0))

    def letter(self, notice: Notice, source: str, value: float = 0.25, **changed: Any) -> tuple[bytes, bytes]:
        """A client's letter to the relay: the header with the attempt's key, and the body."""
        schema = self.schemas(notice)["up"]
        values = {
            one.name: torch.full(one.dims({}), value, dtype=torch.float32 if one.dtype == "<f4" else torch.float64)
            for one in schema.fields
        }
        body = schema.pack(values)
        ours = notice.attempt_id(self.members[source].pipeline.digest())
        header = Header(
            ours.header_spec, ours.run, ours.round, ours.attempt, "up", source, self.host.name, 0, len(body)
        )
        return header._replace(**changed).pack() + notice.key, body

    async def put(self, caller: str, head: bytes, body: bytes) -> bytes:
        """Send it."""
        return await self.calls(caller).put(self.host.name, head, body, 5.0)

    def refused(self, why: str) -> bool:
        """Whether exactly one thing was refused, counted and told, for this reason."""
        said = [facts for event, facts in self.told if event == "refused"]
        return self.host.counts["refused"] == 1 and len(said) == 1 and why in said[0]["why"]


def made(
    pipeline: Pipeline | None = None, clients: tuple[str, ...] = NAMES, times: Timetable = TIMES
) -> dict[str, Member]:  # fmt: skip
    """Everybody of a small federation behind a relay, with fresh keys."""
    spec = Spec(protocol=pipeline or PIPELINES["relay"], federation=Federation(rounds=3))
    return make_members(spec, toy_task(clients), Coins.from_seed(1), times, seeded=True)


def outdated(members: dict[str, Member], name: str) -> dict[str, Member]:
    """The same federation, in which a client's certificate has run out."""
    old = make_keys(name, Coins.from_os(), dt.datetime.now(dt.UTC) - dt.timedelta(days=30), 1)
    roster = members[name].roster
    cards = tuple(old.card("", dt.date.today()) if card.name == name else card for card in roster.cards)
    changed = replace(roster, cards=cards)
    rings = {who: old if who == name else one.keyring for who, one in members.items()}
    return {who: replace(one, roster=changed, keyring=rings[who]) for who, one in members.items()}


@asynccontextmanager
async def serving(members: dict[str, Member] | None = None, name: str = "relay") -> AsyncIterator[Scene]:
    """A host that listens and plays until the test is over."""
    every = members or made()
    told: list[tuple[str, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / name)
        host = Host(every[name], store, {}, Options(tell=lambda event, **facts: told.append((event, facts))))
        server, _ = await listen(host, every[name].roster.address(name), host.hands)
        running = asyncio.create_task(host.run())
        scene = Scene(every, host, told)
        try:
            yield scene
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for calls in (*scene.dialled.values(), host.calls):
                await calls.close()
            await server.stop(0.2)
            store.close()
