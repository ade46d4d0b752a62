"""The server's part before a round whose clients agree on something: it calls, relays, and hears how it ended.

What is called for comes from the same conductor as in a simulation (`agree.epochs.conduct`), which knows public facts
only. Each step is a notice; the server plays the relay's seat in it, and then waits until the clients say where they
stand. `service.lead` has a `Chair` where the protocol needs agreements, as Tazza's does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from croupier.agree.before_round import AgreementRules, UpcomingRound
from croupier.agree.board import SERVER
from croupier.agree.called import AttemptReport, Called, Reports
from croupier.agree.conduct import PublicFacts, RoundDecision
from croupier.agree.epochs import conduct
from croupier.core.update import Model
from croupier.errors import ProtocolError
from croupier.service.attendance import Attendance
from croupier.service.notice import Notice
from croupier.service.party import PartyProcess
from croupier.service.player import Player


@dataclass(frozen=True)
class Chair:
    """Calls for agreements on behalf of the server, which announces them."""

    server: PartyProcess
    rules: AgreementRules
    attendance: Attendance
    announce: Callable[[Notice], Awaitable[None]]

    async def ready(self, number: int, cohort: tuple[str, ...]) -> Mapping[str, Any] | None:
        """Let clients agree on what a round needs: the terms of its notice, or None where it is passed over.

        Raises: ProtocolError when there is no agreement, and the round may not be passed over.
        """
        decision, models = await self._conduct(number, cohort), self._models()
        if not decision.lost:
            return {"forget": decision.forget, "live": tuple(one.frame for one in models if one.frame)}
        if not models or not (decision.unknown or self.server.member.plan.carry):
            raise ProtocolError(f"round {number + 1} cannot go on: {decision.lost}")
        self.server.options.tell("lost", round=number + 1, why=decision.lost)
        return None

    async def _conduct(self, number: int, cohort: tuple[str, ...]) -> RoundDecision:
        server, meeting = self.server, await self._meeting(number, cohort)
        facts = PublicFacts(
            self.rules, server.member.roster.run, server.member.agreement_keys["public"], meeting,
            lambda who: self.attendance.facts(who).standing, self._models, server.agreed(),
        )  # fmt: skip
        steps = conduct(facts)
        reports: Reports | None = None
        while True:
            try:
                called = next(steps) if reports is None else steps.send(reports)
            except StopIteration as stop:
                decision: RoundDecision = stop.value
                return decision
            reports = await self.play(await server.begin(self._notice(called)), meeting.absent)

    def _models(self) -> tuple[Model, ...]:
        return tuple(Model(**plain) for plain in self.server.memory()["models"])

    async def _meeting(self, number: int, cohort: tuple[str, ...]) -> UpcomingRound:
        """Who comes: everybody who is needed is waited for, but no longer than a step of the timetable."""
        roster, plan, attendance = self.server.member.roster, self.server.member.plan, self.attendance
        enrolled = plan.there(roster.clients, number)
        every_round = self.rules.agree == "round"
        lacking = any(attendance.facts(who).standing.epoch is None for who in enrolled)
        wanted = cohort if every_round else enrolled if lacking else ()
        await attendance.wait(lambda: all(map(attendance.here, wanted)), roster.timetable.phase)
        absent = frozenset(who for who in enrolled if every_round and not attendance.here(who))
        return UpcomingRound(number, enrolled, cohort, absent, roster.quorum, plan.attempts)

    def _notice(self, called: Called) -> Notice:
        """The next notice; its attempt counts what was called for in the same way before the round."""
        roster, past = self.server.member.roster, self.server.past(called.what)
        attempt = past.attempt + 1 if past.round == called.before else 0
        number = self.server.store.last_number() + 1
        return Notice(
            number, called.what, roster.digest, roster.run, called.before, attempt, called.roster, called.terms
        )

    async def play(self, player: Player, absent: frozenset[str] = frozenset()) -> Reports:
        """One attempt: announce it, relay it, end it, and hear from those who took part."""
        server, notice = self.server, player.notice
        for who in absent & set(notice.cohort):
            player.lose(who)
        await self.announce(notice)
        outcome = await player.play()
        if outcome.error:
            server.options.tell("failed", what=notice.what, round=notice.round + 1, why=str(outcome.error))
        await server.end(player, outcome)
        heard = [who for who in notice.cohort if who not in absent]
        await self.attendance.wait(
            lambda: all(self.attendance.facts(who).ended == notice.key for who in heard),
            server.member.roster.timetable.phase,
        )
        facts = {who: self.attendance.facts(who) for who in heard}
        told = {who: AttemptReport(one.complaints) for who, one in facts.items() if one.ended == notice.key}
        return {**told, SERVER: AttemptReport(reason=str(outcome.error or ""))}
