"""The server: it invites clients, opens attempts, plays its own part, measures the model, and says when all is over.

`Lead.run` plays all rounds by itself, and may be killed at any moment: what it must not forget is in its store before
anybody hears of it. `service.start` makes a `Lead` for `croupier serve server` and `croupier up`; `flower.lead` derives
from it, where a Flower strategy decides when a round begins. How notices reach the others is in `service.announcer`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from croupier.core import canon
from croupier.core.attempt import WorkByName
from croupier.core.coins import Coins
from croupier.core.flow import Outcome
from croupier.core.update import Model
from croupier.engine.federation import cohort_of
from croupier.errors import CroupierError, ProtocolError, RosterError, StoreError, TooFew
from croupier.service.announcer import Announcer
from croupier.service.chair import Chair
from croupier.service.member import Member
from croupier.service.notice import ROUND, Notice
from croupier.service.options import Options
from croupier.service.player import Player
from croupier.service.store import Store

# The notice of the attempt that follows a failed one.
_AGAIN = "again"
# Why the run ended early; who starts the server again hears it again.
_FAILED = "failed"


@dataclass(frozen=True)
class Measures:
    """How the server measures a model that it can read, and who hears of each round and of the end.

    `cohorts` are the coins by which it draws the clients of each round.
    """

    evaluate: Callable[[Model], Mapping[str, float]]
    cohorts: Coins = field(repr=False)
    on_round: Callable[[Mapping[str, Any]], None] = lambda line: None
    on_end: Callable[[], None] = lambda: None


class Lead(Announcer):
    """The party called "server"."""

    def __init__(
        self, member: Member, store: Store, work: WorkByName, options: Options, measures: Measures
    ) -> None:  # fmt: skip
        super().__init__(member, store, work, options)
        self.measures = measures
        rules = member.pipeline.encode.rules
        self._chair = None if rules is None else Chair(self, rules, self.attendance, self._announce)

    async def run(self) -> None:
        """All rounds. Raises: ProtocolError when one cannot go on.

        Who stops it (SIGTERM) does not end the run: everybody else waits until it starts again.
        """
        if self._finished():
            self.options.tell("finished", why="all rounds of this run are over; a new run takes a new roster")
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
            await self._farewell(self._done())
            self.finished = True
            raise
        await self._farewell(self._done())
        self.finished = True

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

    def _finished(self) -> bool:
        return self._done() >= self.member.plan.rounds and self.store.current() is None

    def _done(self) -> int:
        kept = self.store.fact("rounds done")
        return 0 if kept is None else int(canon.load(kept))

    async def _round(self, number: int, resumed: Player | None) -> None:
        """One round, attempt after attempt. Raises: ProtocolError when it is lost and may not be passed over."""
        start = resumed.opened if resumed else time.monotonic()
        begun = resumed.notice if resumed else self._again(number)
        self.turn_to(self.versions.of(begun.roster) if begun else self.versions.at(number + 1))
        roster, plan, place = self.member.roster, self.member.plan, self.member.pipeline.place
        cohort = begun.cohort if begun else cohort_of(plan, roster.clients, number, self.measures.cohorts)
        attempt, terms = (begun.attempt, begun.terms) if begun else (0, await self._terms(number, cohort))
        if terms is None:
            self.store.remember(self._lost(number))
            return
        if begun is None:
            await self._compare_secrets(cohort)
        while True:
            player = resumed or await self._open(number, attempt, cohort, terms)
            resumed = None
            outcome, reports = await self._held(player)
            if outcome.error is None:
                await self._finish(player, outcome, time.monotonic() - start)
                return
            self.options.tell("failed", round=number + 1, why=str(outcome.error))
            missing = self._missing(outcome, reports, cohort)
            left = tuple(who for who in cohort if who not in missing)
            again = place.restarts and missing and len(left) >= roster.quorum and attempt + 1 < plan.attempts
            passed_over = not again and plan.carry and isinstance(outcome.error, TooFew)
            why = f"round {number + 1} cannot go on: {outcome.error}{_unheard(reports, cohort)}"
            # In the same step: a server that is killed now must not begin with the first attempt once more, nor go on
            # as if nothing had been lost.
            following = replace(player.notice, cohort=left, attempt=attempt + 1)
            lost = self._lost(number) if passed_over else {_FAILED: why.encode()}
            await self.end(player, outcome, {_AGAIN: canon.dump(following.plain())} if again else lost)
            if passed_over:
                return
            if not again:
                raise ProtocolError(why)
            cohort, attempt = left, attempt + 1

    async def _terms(self, number: int, cohort: tuple[str, ...]) -> Mapping[str, Any] | None:
        """What a round's notice says besides; None where the round is passed over. Raises: ProtocolError."""
        return {} if self._chair is None else await self._chair.ready(number, cohort)

    def _again(self, number: int) -> Notice | None:
        """The attempt that was to follow a failed one when the server stopped, if one was."""
        kept = self.store.fact(_AGAIN)
        notice = None if kept is None else Notice(**canon.load(kept))
        before = self.past(ROUND)
        wanted = notice is not None and (before.round, before.attempt + 1) == (notice.round, notice.attempt)
        return notice if wanted and notice is not None and notice.round == number else None

    async def _open(self, number: int, attempt: int, cohort: tuple[str, ...], terms: Mapping[str, Any]) -> Player:
        roster = self.member.roster
        count = self.store.last_number() + 1
        notice = Notice(count, ROUND, roster.digest, roster.run, number, attempt, cohort, terms)
        return await self.begin(notice)

    async def _held(self, player: Player) -> tuple[Outcome, Mapping[str, Mapping[str, Any]]]:
        """How an attempt ended here, if everybody is content with that, and what hosts say of it."""
        opening = asyncio.create_task(self._announce(player.notice))
        try:
            outcome = await player.play()
            reports = await self._reports(player, outcome)
        finally:
            opening.cancel()
        return await self._content(player, outcome, reports), reports

    async def _reports(self, player: Player, outcome: Outcome) -> Mapping[str, Mapping[str, Any]]:
        """What hosts say of how the attempt ended for them; those whose word counts are waited for, for a while."""
        place = self.member.pipeline.place
        wanted = set(place.witnesses) if outcome.error is None else set(self.member.roster.hosts) - {self.name}
        end = time.monotonic() + self.member.roster.timetable.hold
        while not wanted <= set(self.reports.get(player.key, {})) and time.monotonic() < end:
            # No wait between the question above and this one: nothing that moves is missed.
            with suppress(TimeoutError):
                async with asyncio.timeout(end - time.monotonic()):
                    await self.moved.wait()
        return self.reports.pop(player.key, {})

    async def _content(
        self, player: Player, outcome: Outcome, reports: Mapping[str, Mapping[str, Any]]
    ) -> Outcome:  # fmt: skip
        """The outcome, or an error where it must not count: one of the witnesses did not end content, or no client did.

        If a round counted though every client's check failed or did not take place, that would be an easy way around
        the checks.
        """
        place, cohort = self.member.pipeline.place, player.notice.cohort
        for name in place.witnesses:
            if outcome.error is None and not reports.get(name, {}).get("well"):
                return Outcome(None, ProtocolError(f"{name} did not end content"))
        if outcome.error is not None or not place.clients_check:
            return outcome

        def heard() -> bool:
            content, refused = self.word.content(player.key, cohort)
            return bool(content) or len(refused) == len(cohort)

        await self.attendance.wait(heard, self.member.roster.timetable.phase)
        content, refused = self.word.content(player.key, cohort)
        if refused:
            self.options.tell("refused by clients", round=player.notice.round + 1, clients=", ".join(refused[:8]))
        if content:
            return outcome
        said = f"{len(refused)} refused it, {len(cohort) - len(refused)} said nothing"
        return Outcome(None, ProtocolError(f"no client ended content with what was published ({said})"))

    def _missing(
        self, outcome: Outcome, reports: Mapping[str, Mapping[str, Any]], cohort: tuple[str, ...]
    ) -> frozenset[str]:
        named = {name: frozenset(said["missing"]) for name, said in reports.items() if said["missing"]}
        if isinstance(outcome.error, TooFew):
            named[self.name] = outcome.error.missing
        return frozenset(cohort) & self.member.pipeline.place.missing_of(named)

    def _lost(self, number: int) -> Mapping[str, bytes]:
        """What is remembered of a round that gave no model: it counts as done, and has no line of metrics."""
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

    def model(self) -> Model | None:
        """The model in force: that of most clients where there are several; None before there is one."""
        models = tuple(Model(**plain) for plain in self.memory()["models"])
        return max(models, key=lambda one: len(one.recipients or ())) if models else None

    def lines(self) -> list[dict[str, Any]]:
        """The metrics of every round so far."""
        return [canon.load(value) for value in self.store.facts("line ")]


def _unheard(reports: Mapping[str, Mapping[str, Any]], cohort: tuple[str, ...]) -> str:
    """Who hosts waited for in vain: behind a host that is missing there is often a client that did not come."""
    names = sorted({who for said in reports.values() for who in said["missing"]} & set(cohort))
    return f". Hosts did not hear from {', '.join(names[:8])}" if names else ""
