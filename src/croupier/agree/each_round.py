"""Agreement anew every round: the last rule is handed on to those who were not there, and the next one agreed on.

Tazza's paper has it this way: the participants of a round agree on its rule, and fetch the last rule from those who
took part in the round before. `agree_each_round` decides it from public facts; `epochs.conduct` takes it where
`protocol.encode.agree = "round"`, in simulations and at deployed servers (`service.chair`). A round is lost where
nobody who came knows the last rule, or too few come to hold the next. `one_epoch` is the other way.

Reveals to the relay: who knows which rule, who asks for one, sealed boxes, and digests.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from croupier.agree.agreement import LEAST, AgreementCall, removable, why
from croupier.agree.before_round import UpcomingRound
from croupier.agree.called import HAND_ON, JOINT, PBFT, Called, Reports
from croupier.agree.conduct import Conduct, PublicFacts, RoundDecision, Steps, draw_first, first_reason
from croupier.agree.pbft.views import NONE
from croupier.core.epoch import Frame
from croupier.core.update import Model, meant_for


def agree_each_round(facts: PublicFacts) -> Conduct:
    """Those who came hand on the last rule, and agree on the next. Raises: ProtocolError, for want of a first model."""
    meeting, models = facts.meeting, facts.models()
    able = meeting.here
    if models:
        yield from _hand_on(facts, models)
        able = tuple(who for who in meeting.here if facts.opens(who, models))
        if meeting.here and not able:
            frame = Frame.unpack(meant_for(meeting.here[0], models).frame)
            came = f"{len(meeting.here)} clients that came"
            rule = f"the rule of round {frame.round + 1} (digest {frame.digest.hex()[:8]})"
            lost = f"none of the {came} knows {rule}, which the model lies under"
            return RoundDecision(strangers=meeting.here, lost=lost, unknown=True)
    lost = yield from _settle(facts, able)
    if not lost:
        yield from draw_first(facts, facts.holders(able, meeting.number))
    strangers = tuple(who for who in meeting.here if who not in able)
    # Enough came, and too few of them know the rules that their models lie under.
    unknown = bool(lost) and len(able) < needed(meeting) <= len(meeting.here)
    return RoundDecision(able, strangers, lost, unknown)


def _hand_on(facts: PublicFacts, models: tuple[Model, ...]) -> Steps:
    """Whoever knows the rule of a model tells those whom it is meant for."""
    wanted: dict[bytes, list[str]] = {}
    for who in facts.meeting.here:
        if not facts.opens(who, models):
            wanted.setdefault(meant_for(who, models).frame, []).append(who)
    for packed, askers in sorted(wanted.items()):
        yield from _tell(facts, Frame.unpack(packed), tuple(askers))


def _tell(facts: PublicFacts, frame: Frame, askers: tuple[str, ...]) -> Steps:
    """Holders of a frame's rule tell it to those who ask: holders who came, or else, if `fetch` allows, any at hand."""
    meeting = facts.meeting
    held = {who: epoch for who in meeting.enrolled if (epoch := facts.known(who).behind(frame)) is not None}
    near = {who: held[who] for who in meeting.here if who in held}
    far = {who: held[who] for who in held if who not in meeting.absent and facts.rules.fetch == "anyone"}
    if holders := near or far:
        epoch = replace(next(iter(holders.values())), roster=tuple(sorted(holders)))
        yield Called.handing(HAND_ON, meeting.number, epoch, askers)


def _settle(facts: PublicFacts, able: tuple[str, ...]) -> Generator[Called, Reports, str]:
    """Agree on the rule of a round, if need be without those who are missing; returns why it failed, or an empty text.

    Who did not get the rule is missing from the round; those who did are enough if they reach the round's quorum. The
    joint form is safe among any roster. PBFT always counts all who were invited, and the absent are silent in it: among
    fewer it would stand fewer faulty ones, and whoever keeps honest clients away could make the faulty too many.
    """
    meeting, joint = facts.meeting, facts.rules.by == "joint"
    number, most = meeting.number, needed(meeting)
    roster = able if joint else meeting.cohort
    said = f"{len(able)} clients can agree on the rule, and {most} are needed"
    first = facts.next_attempt(number)
    for attempt in range(first, first + meeting.attempts if len(able) >= most else first):
        if (done := _ended(facts, roster, said)) is not None:
            return done
        call = replace(AgreementCall.single(facts.run, number, roster), attempt=attempt)
        reports = yield Called.agreement(JOINT if joint else PBFT, number, call, **({} if joint else _previous(facts)))
        complaints = {who: report.complaints for who, report in reports.items()}
        said = why(call, complaints, first_reason(reports), facts.public, attempt - first + 1)
        if (done := _ended(facts, roster, said)) is not None:
            return done
        out = removable(call.terms, complaints, facts.public, call.faulty)
        roster = tuple(who for who in roster if who not in out) if joint else roster
        if len(roster) < most:
            break
    return said


def _ended(facts: PublicFacts, roster: tuple[str, ...], said: str) -> str | None:
    """An empty text when enough clients hold the rule of the round, None when it may be tried again, else `said`.

    Once somebody signed an outcome, somebody may hold it: there is to be no second one for the round.
    """
    number = facts.meeting.number
    if len(facts.holders(roster, number)) >= facts.meeting.least:
        return ""
    return said if any(facts.known(who).signed >= number for who in roster) else None


def _previous(facts: PublicFacts) -> dict[str, bytes]:
    """The digest of the last rule, which decides in which order clients become PBFT's heads."""
    last = [model.frame for model in facts.models()]
    return {"previous": Frame.unpack(last[0]).digest if last and last[0] else NONE}


def needed(meeting: UpcomingRound) -> int:
    """The fewest clients that can agree on the rule of a round."""
    return max(meeting.least, LEAST)
