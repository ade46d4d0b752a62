"""Agreement anew every round: the last rule is handed on to those who were not there, and the next one agreed on.

From: Tazza, whose participants of a round agree on its rule, and fetch the last one from those who took part in it.

Reveals: to the relay, who knows which rule, who asks, boxes, and digests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from croupier.agree.agreement import LEAST, AgreementCall, AgreementTable, removable, tries, why
from croupier.agree.before_round import AgreementRules, Preparation, UpcomingRound
from croupier.agree.commit_reveal import JOINT
from croupier.agree.pbft.agreement import pbft
from croupier.agree.pbft.views import NONE
from croupier.agree.standing import Standing
from croupier.agree.welcome import invitation, welcome
from croupier.core.epoch import Frame
from croupier.core.update import Model, meant_for


@dataclass(frozen=True)
class EachRound:
    """What the clients of a round say to each other before it, as the rules have it."""

    rules: AgreementRules
    run: bytes
    table: AgreementTable

    def hand_on(self, meeting: UpcomingRound, talk: Preparation, models: tuple[Model, ...]) -> None:
        """Whoever knows the rule of a model tells those whom it is meant for.

        One who tells is enough: what it tells is held against the digest of the model's frame, and who could forge both
        could as well hand out another model.
        """
        wanted: dict[bytes, list[str]] = {}
        for who in meeting.here:
            if not talk.opens(who, models):
                wanted.setdefault(meant_for(who, models).frame, []).append(who)
        for packed, askers in sorted(wanted.items()):
            self._tell(meeting, talk, Frame.unpack(packed), tuple(askers))

    def _tell(self, meeting: UpcomingRound, talk: Preparation, frame: Frame, askers: tuple[str, ...]) -> None:
        held = {who: found for who in meeting.enrolled if (found := talk.standing(who).behind(frame)) is not None}
        near = {who: held[who] for who in meeting.here if who in held}
        far = {who: held[who] for who in held if who not in meeting.absent and self.rules.fetch == "anyone"}
        if not (holders := near or far):
            return
        epoch = replace(next(iter(holders.values()))[0], roster=tuple(sorted(holders)))
        known = {who: Standing(epoch.number, epoch=epoch, secret=secret) for who, (_, secret) in holders.items()}
        # A frame may be asked for in several rounds: each has coins of its own.
        form = replace(welcome(epoch, askers, faulty=0), name=f"hand on, round {meeting.number}")
        call = invitation(self.run, epoch, askers)
        (tried,) = tries(form, call, replace(talk.table(self.table, (), meeting), standings=known), 1)
        talk.note_attempt(tried, held=False)
        for who in askers:
            if who in tried.held:
                talk.keep(who, talk.standing(who).with_older(epoch, tried.held[who].secret))

    def settle(self, meeting: UpcomingRound, talk: Preparation, able: tuple[str, ...]) -> str:
        """Agree on the rule of a round, without those who are missing if need be; why not, where it cannot be done.

        Who did not get the rule is missing from the round; those who did are enough when the round's quorum is. The
        joint form is safe among any roster. PBFT is among all who were invited and no others: of fewer a third would be
        fewer too, and whoever can keep honest ones away could make the faulty many enough; the absent are silent in it.
        """
        most, last = needed(meeting), [model.frame for model in talk.models]
        previous = Frame.unpack(last[0]).digest if last and last[0] else NONE
        joint = self.rules.by == "joint"
        form, roster = (JOINT, able) if joint else (pbft(previous=previous), meeting.cohort)
        said = f"{len(able)} clients can agree on the rule, and {most} are needed"
        for attempt in range(meeting.attempts if len(able) >= most else 0):
            call = replace(AgreementCall.single(self.run, meeting.number, roster), attempt=attempt)
            table = talk.table(self.table, roster, meeting)
            (tried,) = tries(form, call, table, 1)
            talk.note_attempt(tried)
            if len(tried.held) >= meeting.least:
                return ""
            said = why(tried, table, attempt + 1)
            out = removable(call.terms, tried.complaints, next(iter(table.keys.values()))["public"], call.faulty)
            roster = tuple(who for who in roster if who not in out) if joint else roster
            # Once somebody signed an outcome, somebody may hold it: there is to be no second one for the round.
            if len(roster) < most or any(standing.signed >= call.number for standing in tried.standings.values()):
                break
        return said


def needed(meeting: UpcomingRound) -> int:
    """How few can agree on the rule of a round."""
    return max(meeting.least, LEAST)
