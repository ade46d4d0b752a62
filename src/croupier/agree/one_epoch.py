"""Agreement once for a whole epoch, among all enrolled clients; and what is done when more are enrolled later.

`agree_for_epoch` decides, from public facts alone, what clients do before a round: agree on the first secret; when
there are newcomers, tell them the secret (`welcome`) or agree on a new one with everybody and move the models there
(`move_model`); draw the first model. From an epoch's secret follows the order of hidden units of each of its rounds,
another one each time unless it is `kept`. A client that is absent from a round is not excused from this: an epoch's
outcome needs everybody's signature.

`epochs.conduct` takes it where `protocol.encode.agree = "epoch"` (the default), in simulations and at deployed servers
(`service.chair`). `each_round` is the other way.
"""

from __future__ import annotations

from croupier.agree.agreement import AgreementCall, why
from croupier.agree.board import SERVER
from croupier.agree.called import JOINT, MOVE, WELCOME, Called
from croupier.agree.conduct import Conduct, PublicFacts, RoundDecision, Steps, draw_first, first_reason, reason_of
from croupier.agree.move_model import movers_of
from croupier.agree.welcome import liars
from croupier.core.epoch import Epoch, Frame
from croupier.errors import ProtocolError

# How often an epoch's agreement is tried.
TRIES = 3


def agree_for_epoch(facts: PublicFacts) -> Conduct:
    """Call for what is lacking until all enrolled clients hold one epoch and all models lie in its coordinates.

    A newcomer that a welcome did not reach, and a model that nobody can move, are left as they are.
    Raises: ProtocolError when clients do not agree, or no model comes of what they were called for.
    """
    everyone = facts.meeting.enrolled
    held = {who: epoch for who in everyone if (epoch := facts.known(who).epoch) is not None}
    new = tuple(who for who in everyone if who not in held)
    if not held:
        yield from _settle(facts, 0)
    elif new and facts.rules.newcomers == "welcome":
        yield from _welcome(facts, next(iter(held.values())), new)
    elif new:
        yield from _renew(facts, held)
    yield from _move(facts)
    yield from draw_first(facts, everyone)
    return RoundDecision(tuple(who for who in everyone if facts.known(who).older))


def _welcome(facts: PublicFacts, epoch: Epoch, without: tuple[str, ...]) -> Steps:
    """The epoch's secret for newcomers, from those who agreed on it and are still there.

    One of those who agreed and does not hold it is left as it is. Raises: ProtocolError where too few of those who
    agreed are left for a newcomer to believe them.
    """
    new = tuple(who for who in without if who not in epoch.roster)
    holders = tuple(who for who in epoch.roster if who in facts.meeting.enrolled)
    if not new:
        return
    if len(holders) <= (need := liars(epoch)):
        raise ProtocolError(
            f"{new[0]} cannot be welcomed: {len(holders)} of the {len(epoch.roster)} clients that agreed on epoch "
            f"{epoch.number} are still there, and {need + 1} must tell its secret; start a new run"
        )
    # Who does not get the secret now is welcomed again before the next round.
    yield Called.handing(WELCOME, facts.meeting.number, epoch, new, holders)


def _settle(facts: PublicFacts, number: int) -> Steps:
    """An epoch's agreement: over once every client holds its outcome. Raises: ProtocolError after `TRIES` attempts."""
    meeting = facts.meeting
    call = AgreementCall(facts.run, number, meeting.number, meeting.enrolled, facts.next_attempt(number))
    for left in reversed(range(TRIES)):
        reports = yield Called.agreement(JOINT, meeting.number, call)
        if len(facts.holders(call.roster, call.number)) == len(call.roster):
            return
        tried, call = call, call.again({who: facts.known(who) for who in call.roster}) if left else call
    complaints = {who: report.complaints for who, report in reports.items()}
    raise ProtocolError(why(tried, complaints, first_reason(reports), facts.public, TRIES))


def _renew(facts: PublicFacts, held: dict[str, Epoch]) -> Steps:
    """A new epoch among everybody. Raises: ProtocolError, also where too few of an epoch's roster are still there."""
    enrolled = facts.meeting.enrolled
    for epoch in dict.fromkeys(held.values()):
        epoch.follows(enrolled, (len(enrolled) - 1) // 3)
    yield from _settle(facts, max(facts.known(who).signed for who in held) + 1)


def _move(facts: PublicFacts) -> Steps:
    """Models that lie in an earlier epoch's coordinates, moved by clients that hold both secrets."""
    for at, model in enumerate(facts.models()):
        frame = Frame.unpack(model.frame) if model.frame else None
        if frame is None or not (holders := _between(facts, frame)):
            continue
        movers = movers_of(holders, facts.meeting.number, frame)
        reports = yield Called(MOVE, facts.meeting.number, movers, {"at": at, "frame": model.frame})
        if failed := reason_of(reports, SERVER):
            raise ProtocolError(f"the model cannot be moved to the new epoch: {failed}")


def _between(facts: PublicFacts, frame: Frame) -> tuple[str, ...]:
    """Those who hold the epoch of a frame as an older one, and so both its secret and that of their current epoch."""
    known = {who: facts.known(who) for who in facts.meeting.enrolled}
    return tuple(
        who for who, one in known.items() if one.behind(frame) and one.epoch and not one.epoch.covers(frame)
    )  # fmt: skip
