"""The server: it invites clients, opens attempts, plays its own part, measures the model, and says when all is over."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from croupier.core import canon
from croupier.core.attempt import WorkByName
from croupier.core.coins import Coins
from croupier.core.flow import Outcome
from croupier.core.update import Model
from croupier.engine.federation import cohort_of
from croupier.errors import CroupierError, ProtocolError, RosterError, StoreError, TooFew
from croupier.service.attendance import Attendance
from croupier.service.chair import Chair
from croupier.service.member import Member
from croupier.service.notice import END, ROUND, Notice
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.player import Player
from croupier.service.store import Store
from croupier.service.transport import OK

# So long the server stays for clients that have not yet heard that all is over.
FAREWELL = 10.0
# Why the run ended early; who starts the server again hears it again.
_FAILED = "failed"


@dataclass(frozen=True)
class Measures:
    """How the server measures a model that it can read, and who hears of each round and of the end."""

    evaluate: Callable[[Model], Mapping[str, float]]
    cohorts: Coins = field(repr=False)
    on_round: Callable[[Mapping[str, Any]], None] = lambda line: None
    on_end: Callable[[], None] = lambda: None


class Lead(PartyProcess):
    """The party called server."""

    def __init__(
        self, member: Member, store: Store, work: WorkByName, options: Options, measures: Measures
    ) -> None:  # fmt: skip
        super().__init__(member, store, work, options)
        self.measures = measures
        self._newest: tuple[int, bytes] = (-1, b"")
        self._announced = asyncio.Event()
        # Clients that ever asked for a notice, and those that have heard of the end.
        self._asked: set[str] = set()
        self._heard: set[str] = set()
        self._over = False
        rules = member.pipeline.encode.rules
        self.attendance = Attendance(store)
        self._chair = None if rules is None else Chair(self, rules, self.attendance, self._announce)

    async def run(self) -> None:
        """All rounds. Raises: ProtocolError when one cannot go on.

        Who stops it (SIGTERM) does not end the run: everybody else waits until it starts again.
        """
        for line in self.lines():
            # A crash may have come between a round's end and the news of it.
            self.measures.on_round(line)
        try:
            await self._rounds()
            self.measures.on_end()
        except (StoreError, RosterError):
            # Its own troubles: it can start again, and the run goes on.
            raise
        except CroupierError:
            await self._farewell()
            raise
        await self._farewell()

    async def _rounds(self) -> None:
        if (why := self.store.fact(_FAILED)) is not None:
            # Killed before it could say so, it may have left everybody waiting.
            self._asked |= set(self.member.roster.clients)
            raise ProtocolError(why.decode())
        if (player := self.resume()) is not None:
            # They were invited before this start, and may not have asked again since.
            self._asked |= set(player.notice.cohort)
        number = player.notice.round if player else self._done()
        if player is not None and player.notice.what != ROUND and self._chair is not None:
            await self._chair.play(player)
            player = None
        while number < self.member.plan.rounds:
            await self._round(number, player)
            player, number = None, number + 1

    def _done(self) -> int:
        kept = self.store.fact("rounds done")
        return 0 if kept is None else int(canon.load(kept))

    async def _round(self, number: int, resumed: Player | None) -> None:
        """One round, attempt after attempt. Raises: ProtocolError when it is lost and may not be passed over."""
        self.turn_to(self.versions.at(number + 1))
        roster, plan, place = self.member.roster, self.member.plan, self.member.pipeline.place
        cohort = resumed.notice.cohort if resumed else cohort_of(plan, roster.clients, number, self.measures.cohorts)
        attempt, start = resumed.notice.attempt if resumed else 0, time.perf_counter()
        terms: Mapping[str, Any] | None = resumed.notice.terms if resumed else {}
        if resumed is None and self._chair is not None:
            terms = await self._chair.ready(number, cohort)
        if terms is None:
            self.store.remember(self._lost(number))
            return
        while True:
            player = resumed or await self._open(number, attempt, cohort, terms)
            resumed = None
            opening = asyncio.create_task(self._announce(player.notice))
            try:
                outcome = await player.play()
                reports = await self._reports(player, outcome)
            finally:
                opening.cancel()
            outcome = self._content(outcome, reports)
            if outcome.error is None:
                await self._finish(player, outcome, time.perf_counter() - start)
                return
            self.options.tell("failed", round=number + 1, why=str(outcome.error))
            missing = self._missing(outcome, reports, cohort)
            left = tuple(who for who in cohort if who not in missing)
            again = place.restarts and missing and len(left) >= roster.quorum and attempt + 1 < plan.attempts
            passed_over = not again and plan.carry and isinstance(outcome.error, TooFew)
            why = f"round {number + 1} cannot go on: {outcome.error}"
            # With the attempt's end: a server that is killed now must not go on as if nothing had been lost.
            await self.end(
                player, outcome, {} if again else self._lost(number) if passed_over else {_FAILED: why.encode()}
            )
            if passed_over:
                return
            if not again:
                raise ProtocolError(why)
            cohort, attempt = left, attempt + 1

    async def _open(self, number: int, attempt: int, cohort: tuple[str, ...], terms: Mapping[str, Any]) -> Player:
        roster = self.member.roster
        count = self.store.last_number() + 1
        notice = Notice(count, ROUND, roster.digest, roster.run, number, attempt, cohort, terms)
        return await self.begin(notice)

    async def _announce(self, notice: Notice) -> None:
        """Let everybody know: hosts are told, clients ask."""
        self._publish(notice)
        # What clients do before a round only the server relays.
        others = self.member.roster.hosts if notice.what in (ROUND, END) else ()
        hosts = [host for host in others if host != self.name]
        await asyncio.gather(*(self._push(host, self._newest[1]) for host in hosts))

    def _publish(self, notice: Notice) -> None:
        self._newest = notice.number, notice.sign(self.member.keyring.identity)
        self._announced.set()
        self._announced = asyncio.Event()

    async def _push(self, host: str, signed: bytes) -> None:
        pause = 0.02
        while (said := await self.calls.open(host, signed, self.member.roster.timetable.hold * 2)) != OK:
            if said == b"refused":
                self.options.tell("notice refused", host=host)
                if self.now is not None:
                    self.now.lose(host)
                return
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)

    async def _reports(self, player: Player, outcome: Outcome) -> Mapping[str, Mapping[str, Any]]:
        """What hosts say of how the attempt ended for them: those whose word counts, for a while."""
        place = self.member.pipeline.place
        wanted = set(place.witnesses) if outcome.error is None else set(self.member.roster.hosts) - {self.name}
        end = time.monotonic() + self.member.roster.timetable.hold
        while not wanted <= set(self.reports.get(player.key, {})) and time.monotonic() < end:
            # No wait between the question above and this one: nothing that moves is missed.
            with suppress(TimeoutError):
                await asyncio.wait_for(self.moved.wait(), end - time.monotonic())
        return self.reports.pop(player.key, {})

    def _content(self, outcome: Outcome, reports: Mapping[str, Mapping[str, Any]]) -> Outcome:
        """The outcome, or why it is worth nothing: a host without whose consent it may not count."""
        for name in self.member.pipeline.place.witnesses:
            if outcome.error is None and not reports.get(name, {}).get("well"):
                return Outcome(None, ProtocolError(f"{name} did not end content"))
        return outcome

    def _missing(
        self, outcome: Outcome, reports: Mapping[str, Mapping[str, Any]], cohort: tuple[str, ...]
    ) -> frozenset[str]:
        named = {name: frozenset(said["missing"]) for name, said in reports.items() if said["missing"]}
        if isinstance(outcome.error, TooFew):
            named[self.name] = outcome.error.missing
        return frozenset(cohort) & self.member.pipeline.place.missing_of(named)

    def _lost(self, number: int) -> Mapping[str, bytes]:
        return {"rounds done": canon.dump(number + 1)}

    async def _finish(self, player: Player, outcome: Outcome, seconds: float) -> None:
        """Measure the model, and end the attempt with the round's line: both or neither survive a crash."""
        number, memory = player.notice.round, outcome.memory or {}
        models = tuple(Model(**plain) for plain in memory["models"])
        model = max(models, key=lambda one: len(one.recipients or ()))
        # In coordinates that only the clients know there is nothing for the server to measure.
        metrics = {} if model.frame else dict(await asyncio.to_thread(self.measures.evaluate, model))
        if wild := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise ProtocolError(f"round {number + 1}: the model's {wild[0]} is not finite any more; lower task.fit.lr")
        line = {
            "round": number + 1, **metrics, "present": len(memory["present"]), "invited": len(player.notice.cohort),
            "attempt": player.notice.attempt, "model": canon.digest(model.vector).hex(), "seconds": seconds,
        }  # fmt: skip
        facts = {"rounds done": canon.dump(number + 1), f"line {number + 1:06d}": canon.dump(line)}
        await self.end(player, outcome, facts)
        await asyncio.to_thread(self.measures.on_round, line)

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """A client asks for the newest notice."""
        if caller is None:
            return self._refuse(caller, "only clients of the roster ask for notices")
        try:
            asked = canon.load(request)
            after = int(asked["after"])
            if self._chair is not None and "facts" in asked:
                facts = await self.attendance.hear(caller, asked["facts"])
                if self.now is not None and self.now.key == facts.ended:
                    self.now.lose(caller)
        except (CroupierError, KeyError, TypeError, ValueError):
            return self._refuse(caller, "a request that cannot be read")
        with self.attendance.asking(caller):
            return await self._newer(caller, after)

    async def _newer(self, caller: str, after: int) -> bytes:
        """The newest notice, once there is one after this; nothing when it takes too long."""
        end = time.monotonic() + self.member.roster.timetable.hold
        while True:
            # Asked anew whenever there is news: while it was waiting it may have left.
            if caller not in (*self.member.roster.clients, *self._coming()):
                return self._refuse(caller, "only clients of the roster ask for notices")
            if caller in self.member.roster.clients:
                self._asked.add(caller)
            number, signed = self._newest
            # Who joins with a later version waits for its first round.
            if number > after and (self._over or caller in self.member.roster.clients):
                return signed
            if self._over:
                # It asks for what comes after the end: so it has heard of it.
                self._heard.add(caller)
                return b""
            waiting = self._announced
            try:
                await asyncio.wait_for(waiting.wait(), max(0.01, end - time.monotonic()))
            except TimeoutError:
                return b""

    def _coming(self) -> set[str]:
        """Clients of versions that do not hold yet."""
        mine = self.member.roster.version
        return {name for roster in self.versions.rosters() if roster.version > mine for name in roster.clients}

    def model(self) -> Model | None:
        """The model in force: that of most clients where there are several; None before there is one."""
        models = tuple(Model(**plain) for plain in self.memory()["models"])
        return max(models, key=lambda one: len(one.recipients or ())) if models else None

    async def _farewell(self) -> None:
        """Say that all is over, and stay until everybody has heard or nobody can be waited for."""
        roster = self.member.roster
        self._over = True
        number = max(self._newest[0], self.store.last_number()) + 1
        notice = Notice(number, END, roster.digest, roster.run, self._done(), 0, ())
        try:
            async with asyncio.timeout(FAREWELL):
                await self._announce(notice)
                # Who never asked for anything is not waited for, nor who has left; after a restart, who was there last
                # did ask.
                awaited = (self._asked | set(self.memory().get("present", ()))) & set(roster.clients)
                while not awaited <= self._heard:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            self.options.tell("left", unheard=len(self._asked - self._heard))

    def lines(self) -> list[dict[str, Any]]:
        """The metrics of every round so far."""
        return [canon.load(value) for value in self.store.facts("line ")]
