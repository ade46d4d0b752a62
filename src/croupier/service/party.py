"""One party as a running program: its door, its store, and the attempts that it plays one after another.

`host`, `client`, `announcer` (and so `lead`) and `flower.node` derive from `PartyProcess` and decide where notices come
from; here is what they share: opening an attempt with coins that are on disk first, playing it, and ending it so that
memory, counts and the erasure of secrets happen in one step. What lies ready for others is erased later (`Store.end`).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from croupier.agree.seats import SeatPlan
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.attempt import WorkByName
from croupier.core.coins import Coins
from croupier.core.flow import Memory, Outcome, Seat
from croupier.engine.restart import with_events
from croupier.errors import CroupierError, IntegrityError, TooFew
from croupier.service.door import PartyDoor
from croupier.service.guard import Past, check_called, check_notice
from croupier.service.member import SERVER, Member
from croupier.service.notice import END, ROUND, Notice
from croupier.service.options import Options
from croupier.service.plans import plan_for
from croupier.service.player import Player
from croupier.service.seated import Surroundings
from croupier.service.store import Opened, Store
from croupier.service.transport import Calls

# What a client drew for the round that it plays: its coins, its participation, the memory that it began with.
THIS_ROUND = "this round"
# The attempt at a round that a client ended last, and whether it was content.
ENDED_ROUND = "ended round"
# The run that was over when the party stopped: who starts it again is told so.
_FINISHED = "finished"


class PartyProcess(PartyDoor, ABC):
    """One party: what it is, what it remembers, and what it is playing now."""

    # Who plays its seats; `flower.node` has another player.
    players: ClassVar[type[Player]] = Player

    def __init__(self, member: Member, store: Store, work: WorkByName, options: Options) -> None:
        super().__init__(member, store, options)
        self.work: WorkByName = {**work, "spend": self._spend}
        self.calls = Calls(member, self.versions)
        self._read: dict[str, tuple[bytes, Any]] = {}
        # Of rounds that ended well, all together.
        self.seconds = 0.0
        self.listening, self.over = False, False
        self.plan: SeatPlan | None = None

    @property
    def number(self) -> int:
        """The round that it plays or played last, counted from 1; 0 before the first."""
        return 0 if self.now is None else self.now.notice.round + 1

    @property
    def around(self) -> Surroundings:
        """What its players play with."""
        member = self.member
        return Surroundings(
            self.name, member.roster.clients, self.store, self.calls, member.roster.timetable, self.options.hook,
            self.options.tell, self._stir,
        )  # fmt: skip

    @abstractmethod
    async def run(self) -> None:
        """Take part until the run is over; what that is differs by role."""

    # ---- what is remembered

    def memory(self) -> Memory:
        """What its flow remembers of the rounds before."""
        found: Memory | None = self._fact("memory")
        return dict(self.options.first_memory) if found is None else found

    def _fact(self, name: str) -> Any:
        """A value that is remembered under a name; what was read before and has not changed is not read again."""
        kept = self.store.fact(name)
        if kept is None:
            return None
        if self._read.get(name, (b"", None))[0] != kept:
            self._read[name] = kept, canon.load(kept)
        return self._read[name][1]

    def participation(self) -> int:
        """In how many rounds something of this client left before, as far back as its store goes."""
        kept = self.store.fact("participation")
        return 0 if kept is None else int(canon.load(kept))

    def past(self, what: str) -> Past:
        """What it took part in before."""
        last = self.store.last(what, self.member.roster.run)
        alarm = (self.store.fact("alarm") or b"").decode()
        round_, attempt, state = last or (-1, -1, "")
        return Past(round_, attempt, state, self.store.fact("short") == b"yes", alarm, self.agreed())

    def agreed(self) -> tuple[int, int]:
        """The highest number, with its attempt, that it was called to agree under; -1 before the first."""
        kept = self.store.fact("agreed")
        number, attempt = (-1, -1) if kept is None else canon.load(kept)
        return int(number), int(attempt)

    def remember_finished(self, facts: Mapping[str, bytes]) -> None:
        """The server has said that the run is over; facts that hold from now on."""
        self.store.remember({**facts, _FINISHED: self.member.roster.run})
        self.finished = True

    def tell_finished(self, why: str) -> None:
        """Say to whoever starts it again that the run was over before."""
        if self.store.fact(_FINISHED) == self.member.roster.run:
            self.options.tell("finished", why=f"this run was over when {self.name} stopped: {why}")

    # ---- playing

    def check(self, notice: Notice) -> None:
        """Raises: CroupierError when the party must not take part; turns to the roster that holds in the round."""
        member, past = self.versions.at(notice.round + 1), self.past(notice.what)
        check_notice(notice, member.roster, past, me=self.name)
        if notice.what not in (ROUND, END):
            check_called(notice.called, member.roster, Standing.of(self.memory()), past)
        self.turn_to(member)

    def turn_to(self, member: Member) -> None:
        """From now on go by another version of the roster: its keys, its certificates, its parties."""
        if member.roster == self.member.roster:
            return
        self._former = self.member.roster
        self.member = self.calls.member = member
        self.options.tell("roster", version=member.roster.version, from_round=member.roster.from_round)

    async def begin(self, notice: Notice) -> Player:
        """Write a new attempt down, and seat the party."""
        memory, coins, held = self._begins_with(notice)
        # Before it is written down: what cannot be played must not lie open.
        plan = self._plan(notice, memory, held)
        facts = {} if held is None else {THIS_ROUND: canon.dump(held)}
        if notice.what != ROUND and (numbered := notice.called.numbered) is not None:
            facts["agreed"] = canon.dump(numbered)
        opened = Opened(
            notice.key, notice.number, notice.what, notice.run, notice.round, notice.attempt,
            canon.dump(notice.plain()), coins, canon.dump(dict(memory)), time.time(),
        )  # fmt: skip
        await asyncio.to_thread(self.store.open, opened, facts)
        self.counts["attempts"] += 1
        self.options.tell("opened", round=notice.round + 1, attempt=notice.attempt + 1, invited=len(notice.cohort))
        self.options.hook("open", notice.round)
        return self._seated(notice, opened, plan)

    def resume(self) -> Player | None:
        """The attempt that was open when the party stopped, seated again under the roster that it began under.

        Raises: RosterError when that one is no longer accepted here.
        """
        opened = self.store.current()
        if opened is None:
            return None
        notice = Notice(**canon.load(opened.notice))
        # Not the version that would hold now: another one may have been accepted for this very round meanwhile.
        self.turn_to(self.versions.of(notice.roster))
        held = self._this_round(notice) if self.member.is_client else None
        return self._seated(notice, opened, self._plan(notice, canon.load(opened.memory), held))

    def _begins_with(self, notice: Notice) -> tuple[Memory, bytes, Mapping[str, Any] | None]:
        """Memory and coins of an attempt, and what a client keeps of a round for another attempt at it.

        A client's belong to the round, as its participation does: a second attempt carries the very same update. In an
        agreement everything is drawn afresh.
        """
        if not self.member.is_client or notice.what != ROUND:
            return self.memory(), self.options.coins(notice), None
        if (held := self._this_round(notice)) is None:
            memory, drawn = self.memory(), self.options.coins(notice)
            held = {
                "name": _round_name(notice), "coins": drawn, "at": self.participation(), "memory": dict(memory),
                "events": (),
            }  # fmt: skip
        events = tuple(held["events"])
        return (with_events(held["memory"], events) if events else held["memory"]), bytes(held["coins"]), held

    def _this_round(self, notice: Notice) -> Mapping[str, Any] | None:
        """What the client drew for a round, if it took part in an attempt of it before."""
        held: Mapping[str, Any] | None = self._fact(THIS_ROUND)
        return held if held is not None and held["name"] == _round_name(notice) else None

    def _plan(self, notice: Notice, memory: Memory, held: Mapping[str, Any] | None) -> SeatPlan:
        return plan_for(notice, self.member, memory, self.options.shard, int(held["at"]) if held else 0)

    def _seated(self, notice: Notice, opened: Opened, plan: SeatPlan) -> Player:
        seat = Seat.take(plan.party, plan.given, plan.memory, Coins(opened.coins), self.options.keep)
        # The clock may have jumped while the party was down: never wait longer than from the start again.
        ago = min(max(0.0, time.time() - opened.opened), self.member.roster.timetable.round)
        player = self.players(
            self.around, notice, seat, plan.schemas, self.work, notice.attempt_id(plan.spec), plan.given.layout,
            time.monotonic() - ago,
        )  # fmt: skip
        self.now, self.plan = player, plan
        self._move()
        return player

    async def end(self, player: Player, outcome: Outcome, facts: Mapping[str, bytes] | None = None) -> None:
        """End an attempt: memory, counts, ledger and erasure in one step; a host then tells others how it ended."""
        error, key, is_round = outcome.error, player.key, player.notice.what == ROUND
        memory = self.memory()
        if outcome.memory is not None and self.plan is not None:
            memory = self.plan.after(memory, outcome.memory)
        if (held := self._this_round(player.notice)) and held["events"]:
            memory = with_events(memory, tuple(held["events"]))
        more = {"memory": canon.dump(dict(memory))}
        if is_round:
            more["short"] = b"yes" if _lacks_clients(error, player) else b"no"
        elif self.member.is_client:
            # What the server may know of it: never why an attempt ended early.
            complaints = (outcome.memory or {}).get("complaints", {})
            more["told"] = canon.dump({"ended": key, "complaints": complaints})
        if is_round and self.member.is_client:
            more[ENDED_ROUND] = canon.dump((key, error is None))
            if error is None or self.store.left(key):
                more["participation"] = canon.dump(player.seat.view.given.participation + 1)
            if not self._may_come_again(error):
                more[THIS_ROUND] = canon.dump(None)
        if self.member.is_client and isinstance(error, IntegrityError):
            more["alarm"] = str(error).encode()
        counted, state = dict(player.closed), _ended(error)
        await asyncio.to_thread(self.store.end, key, state, {**more, **(facts or {})}, counted)
        # Coins that are erased there are not kept here.
        self._read.clear()
        self._stir()
        self._move()
        # Who renewed its certificate had this attempt to fetch what was left of the one before.
        self._former = None
        if player.seat.view.kept != "nothing":
            self.options.on_view(player.notice, player.seat.view)
        self.counts["bytes_in"] += player.bytes_in
        self.counts["bytes_out"] += player.bytes_out
        self._count_end(player, error)
        self.options.hook("end", player.notice.round)
        if is_round and not self.member.is_client:
            await self._say_ended(player, error)

    def _may_come_again(self, error: CroupierError | None) -> bool:
        """Whether this client would play another attempt at the round: if not, its coins have done their work."""
        place = self.member.pipeline.place
        return place.restarts and not (error is None and place.binds)

    def _count_end(self, player: Player, error: CroupierError | None) -> None:
        seconds, notice = time.monotonic() - player.opened, player.notice
        self.counts["failed" if error else "rounds"] += 1
        self.seconds += 0.0 if error else seconds
        self.options.tell(
            "closed", round=notice.round + 1, attempt=notice.attempt + 1, well=error is None, seconds=round(seconds, 3)
        )

    async def _say_ended(self, player: Player, error: CroupierError | None) -> None:
        """The server hears how it ended and who was missing, other hosts only that it failed; nobody hears why."""
        missing = tuple(sorted(error.missing)) if isinstance(error, TooFew) else ()
        for host in self.member.roster.hosts:
            if host != self.name and (error is not None or host == SERVER):
                told = {"key": player.key, "well": error is None, "missing": missing if host == SERVER else ()}
                await self.calls.end(host, canon.dump(told), 2.0)

    def _spend(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[None]:
        """Write down what a client is about to release of its budget; it counts however the round ends."""
        for _, event in jobs:
            held = dict(self._fact(THIS_ROUND))
            if dict(event) not in held["events"]:
                held["events"] = (*held["events"], dict(event))
            # In the memory at once, not at the end: a crash must not make anybody forget it.
            memory = with_events(self.memory(), held["events"])
            self.store.remember({THIS_ROUND: canon.dump(held), "memory": canon.dump(dict(memory))})
        return [None for _ in jobs]

    async def close(self) -> None:
        """Hang up."""
        await self.calls.close()


def _round_name(notice: Notice) -> str:
    return f"{notice.run.hex()} {notice.what} {notice.round}"


def _lacks_clients(error: CroupierError | None, player: Player) -> bool:
    """Whether an attempt ended for want of clients and nothing else.

    Who waits in vain for the other server may have released something already.
    """
    return isinstance(error, TooFew) and bool(error.missing) and error.missing <= set(player.notice.cohort)


def _ended(error: CroupierError | None) -> Literal["done", "failed"]:
    return "failed" if error else "done"
