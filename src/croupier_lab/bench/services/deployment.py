"""A federation of real services in one process, whose parties can be killed and started again.

Faults must strike at exact steps of a protocol, and thousands of times, for which separate processes are too slow. So
every party runs here with its own store and connections (`mortal`). `Deployment.play` runs until everybody has ended or
the time is over, and hands back what a judge needs: the models, who was in each round, how everybody ended, and what
travelled. `bench.services.faults` (`croupier bench faults`) draws what goes wrong and judges.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.engine.loop import begin
from croupier.engine.task import Task
from croupier.engine.work import RoundWork
from croupier.errors import Replayed, StoreError
from croupier.pipeline import Pipeline
from croupier.service import party as party_module
from croupier.service.client import Client
from croupier.service.host import Host
from croupier.service.lead import Lead, Measures
from croupier.service.member import SERVER, Member
from croupier.service.notice import Notice
from croupier.service.options import CoinSource, Options, fresh_coins
from croupier.service.party import PartyProcess
from croupier.service.rehearsal import make_members, seeded_coins
from croupier.service.roster import Timetable
from croupier.service.start import run_party
from croupier.spec import Spec
from croupier_lab.bench.services.mortal import Life, MortalCalls, MortalStore, RecordedWire

QUICK = Timetable(phase=1.5, round=8.0, hold=0.5)
# Seconds before a killed party is started again, seconds that a disk stays full, and how far a clock jumps.
PAUSE = 0.05
FULL = 0.4
HOURS = 5 * 3600.0


# The deployment whose clock the running task goes by; see `clocks`.
_clock: ContextVar[Deployment | None] = ContextVar("clock", default=None)


@dataclass(frozen=True)
class ServiceFault:
    """One thing that goes wrong: what, to whom, and when.

    `what` is killed, stopped, gone, disk, clock ahead or behind, saved, restored, or a trouble of the wire
    (`faults.TROUBLES`). `step` and `round` name the moment, as a party's hook is told it (`service.seated`). A trouble
    of the wire has no step, and its `round` is the number of the party's call, counted from 1.
    """

    what: str
    party: str
    step: str
    round: int


@dataclass
class PlayedServices:
    """What became of a deployment, for the judge."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    present: dict[int, tuple[str, ...]] = field(default_factory=dict)
    participations: dict[int, dict[str, int]] = field(default_factory=dict)
    ended: dict[str, BaseException | None] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)
    steps: list[tuple[str, str, int]] = field(default_factory=list)
    injected: list[ServiceFault] = field(default_factory=list)
    restored: set[str] = field(default_factory=set)
    restored_in: int = 0
    gone: set[str] = field(default_factory=set)
    told: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    lost_letters: int = 0
    network: RecordedWire = field(default_factory=RecordedWire)
    seconds: float = 0.0


@dataclass
class Deployment:
    """A whole federation on this machine, with what is to go wrong; seeded as a simulation is."""

    pipeline: Pipeline
    task: Task
    plan: Federation
    coins: Coins
    folder: Path
    times: Timetable = QUICK
    faults: Sequence[ServiceFault] = ()
    absent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.played = PlayedServices()
        self.waiting = list(self.faults)
        self.ahead = 0.0
        network = self.played.network
        network.troubles = {(one.party, one.round): one.what for one in self.faults if not one.step}

    def members(self) -> dict[str, Member]:
        """Everybody, with fresh keys and one roster; what a simulation would give them as set up is given here too."""
        spec = Spec(protocol=self.pipeline, federation=self.plan)
        return make_members(spec, self.task, self.coins, self.times, seeded=True)

    @property
    def limit(self) -> float:
        """Seconds after which nothing may run any more: all rounds with their attempts, and the farewell."""
        return self.plan.rounds * self.times.round * 2 + 15.0

    async def clocked(self) -> PlayedServices:
        """Run everybody to the end, by a clock of this deployment's own (inside `clocks`)."""
        _clock.set(self)
        return await self.play()

    async def play(self) -> PlayedServices:
        """Run everybody to the end."""
        start = time.perf_counter()
        members = {name: one for name, one in self.members().items() if name not in self.absent}
        tasks = {name: asyncio.create_task(self._live(one), name=name) for name, one in members.items()}
        _, late = await asyncio.wait(tasks.values(), timeout=self.limit)
        self.played.stuck = sorted(one.get_name() for one in late)
        for one in late:
            one.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        self._look_back(members)
        self.played.seconds = time.perf_counter() - start
        return self.played

    def _look_back(self, members: Mapping[str, Member]) -> None:
        """Read the server's lines, and look for letters that were said to be durable and are not."""
        for name, member in members.items():
            if member.is_client:
                continue
            store = MortalStore(self.folder / name, Life())
            if name == SERVER:
                self.played.lines = [canon.load(value) for value in store.facts("line ")]
            rows = store._rows("SELECT key, source, kind, digest FROM letters")
            held = {(name, *row) for row in rows}
            self.played.lost_letters += sum(one[0] == name and one not in held for one in self.played.network.taken)
            store.close()

    # ---- one party, life after life

    async def _live(self, member: Member) -> None:
        name, ended = member.name, self.played.ended
        while True:
            life = Life()
            party = self._party(member, life)
            try:
                await run_party(party, life.stop)
                if not life.stop.is_set():
                    ended[name] = None
                    return
            except asyncio.CancelledError:
                if not life.dead:
                    raise
                if name in self.played.gone:
                    return
            except Exception as error:
                # A service manager starts a party again whose disk was full; one that refuses to go on stays down.
                if not isinstance(error, StoreError) or isinstance(error, Replayed):
                    ended[name] = error
                    return
                self.played.told.append((name, "stopped", {"why": str(error)}))
            await asyncio.sleep(PAUSE)
            self._put_back(name)

    def _party(self, member: Member, life: Life) -> PartyProcess:
        work = RoundWork(self.pipeline, self.task).by_name()
        store = MortalStore(self.folder / member.name, life)
        options = Options(
            coins=self._coins(member), shard=self.task.shards.get(member.name, ""),
            hook=lambda step, number: self._step(member, life, step, number),
            tell=lambda event, **facts: self.played.told.append((member.name, event, facts)),
        )  # fmt: skip
        party: PartyProcess
        if member.name == SERVER:
            first = begin(self.task, self.pipeline).memories[SERVER]
            measures = Measures(self.task.evaluate, self.coins)
            party = _Lead(member, store, work, replace(options, first_memory=first), measures)
            party.seen = self.played.present
        else:
            party = (Client if member.is_client else Host)(member, store, work, options)
        party.calls = MortalCalls(member, life, self.played.network)
        return party

    def _coins(self, member: Member) -> CoinSource:
        """A simulation's coins; a party whose store was put back draws its own, as one in a real deployment does."""
        seeded = seeded_coins(self.coins, member.name, member.is_client)

        def drawn(notice: Notice) -> bytes:
            return (fresh_coins if member.name in self.played.restored else seeded)(notice)

        return drawn

    # ---- what goes wrong

    def _step(self, member: Member, life: Life, step: str, number: int) -> None:
        life.check()
        name = member.name
        self.played.steps.append((name, step, number))
        if step == "open" and member.is_client:
            self._count(name, number)
        here = [one for one in self.waiting if (one.party, one.step, one.round) == (name, step, number)]
        for fault in here:
            self.waiting.remove(fault)
            self.played.injected.append(fault)
            self._strike(fault, life)

    def _count(self, name: str, number: int) -> None:
        with closing(sqlite3.connect(self.folder / name / "store.db")) as db:
            (kept,) = db.execute("SELECT value FROM facts WHERE name='this round'").fetchone()
        self.played.participations.setdefault(number, {})[name] = int(canon.load(kept)["at"])

    def _strike(self, fault: ServiceFault, life: Life) -> None:
        if fault.what == "stopped":
            life.stop.set()
        elif fault.what == "disk":
            life.full = True
            asyncio.get_running_loop().call_later(FULL, lambda: setattr(life, "full", False))
        elif fault.what == "saved":
            copy_store(self.folder / fault.party, self.folder / f"{fault.party} saved")
        else:
            if fault.what == "gone":
                self.played.gone.add(fault.party)
            if fault.what == "restored":
                self.played.restored.add(fault.party)
                self.played.restored_in = fault.round
            if fault.what.startswith("clock"):
                self.ahead += HOURS if fault.what == "clock ahead" else -HOURS
            life.kill()

    def _put_back(self, name: str) -> None:
        """Put the copy of a store in its place, where somebody restores a backup."""
        copy = self.folder / f"{name} saved"
        if name in self.played.restored and copy.exists():
            shutil.rmtree(self.folder / name)
            copy.rename(self.folder / name)


@contextmanager
def clocks() -> Iterator[None]:
    """While it is open, each deployment that runs `clocked` has a clock of its own, which can jump."""

    def told() -> float:
        deployment = _clock.get()
        return time.time() + (deployment.ahead if deployment else 0.0)

    # Only the clock of the parties' own code: the transport reckons its deadlines against the system's clock.
    patched: Any = party_module
    patched.time = SimpleNamespace(time=told, monotonic=time.monotonic)
    try:
        yield
    finally:
        patched.time = time


class _Lead(Lead):
    """The server, with a note of who was in each round."""

    seen: dict[int, tuple[str, ...]]

    async def end(self, player: Any, outcome: Any, facts: Mapping[str, bytes] | None = None) -> None:
        if outcome.error is None:
            self.seen[player.notice.round] = tuple(outcome.memory["present"])
        await super().end(player, outcome, facts)


def copy_store(source: Path, target: Path) -> None:
    """A copy of a store that is in use, as a backup makes one."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "bodies", target / "bodies")
    with closing(sqlite3.connect(source / "store.db")) as here, closing(sqlite3.connect(target / "store.db")) as there:
        here.backup(there)
