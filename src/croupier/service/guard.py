"""What a party checks before it takes part in an attempt, whatever the server says.

Clients and hosts each keep these rules for themselves and across restarts, because a server that could open attempts at
will would get two sums that differ by one client. They are pure functions of a notice, of what the party accepted, and
of what it took part in before. Clients (`service.client`, `flower.node`) and hosts (`service.host`) call them through
`PartyProcess.check` before they take part; the server does not check the notices that it makes.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.agree.agreement import LEAST
from croupier.agree.before_round import AgreementRules
from croupier.agree.called import FIRST, HAND_ON, JOINT, MOVE, PBFT, WELCOME, Called
from croupier.agree.standing import Standing
from croupier.errors import IntegrityError, ProtocolError, Replayed
from croupier.service.notice import END, ROUND, Notice
from croupier.service.roster import Roster


@dataclass(frozen=True)
class Past:
    """What a party took part in before: its last attempt of this kind, how it ended, and whether it raised an alarm.

    `short` says that the attempt ended for want of clients, before anything was released. `agreed` is the highest
    number, with its attempt, that it was called to sign an outcome for.
    """

    round: int = -1
    attempt: int = -1
    state: str = ""
    short: bool = False
    alarm: str = ""
    agreed: tuple[int, int] = (-1, -1)


def check_notice(notice: Notice, roster: Roster, past: Past, *, me: str) -> None:
    """Raises: IntegrityError, Replayed or ProtocolError when a party must not take part."""
    if past.alarm:
        raise IntegrityError(f"{me} raised an alarm before and takes no further part: {past.alarm}")
    if notice.roster != roster.digest:
        raise ProtocolError(
            f"the notice names roster {notice.roster.hex()[:16]}..., and {me} accepted {roster.digest.hex()[:16]}...; "
            "accept the new one (croupier accept), or wait until the server has"
        )
    if notice.run != roster.run:
        raise ProtocolError("the notice is of another run than the roster")
    if strangers := sorted(set(notice.cohort) - set(roster.clients)):
        raise ProtocolError(f"the notice invites {strangers[0]!r}, who is not in the roster")
    if notice.what == ROUND:
        _check_round(notice, roster, past, me)
    elif notice.what != END:
        _check_before(notice, roster, past, me)


def _check_round(notice: Notice, roster: Roster, past: Past, me: str) -> None:
    place = roster.spec.protocol.place
    if len(notice.cohort) < roster.quorum:
        raise ProtocolError(
            f"the notice invites {len(notice.cohort)} clients, and a round needs {roster.quorum}: fewer hide too little"
        )
    if notice.round >= roster.spec.federation.rounds:
        raise ProtocolError(f"round {notice.round + 1} is beyond the {roster.spec.federation.rounds} that were agreed")
    if (notice.round, notice.attempt) <= (past.round, past.attempt):
        raise Replayed(f"round {notice.round + 1}, attempt {notice.attempt + 1} was played before")
    if notice.round == past.round:
        # A second attempt at a round is safe only while nothing that depends on an update has been opened.
        if not place.restarts:
            raise Replayed(f"round {notice.round + 1} began before, and place = {place.use!r} never starts one again")
        released = past.state == "done" and place.binds if me in roster.clients else not past.short
        if me not in place.bystanders and (released or past.state == "open"):
            raise Replayed(f"round {notice.round + 1} may have released something; it is not started again")
        if notice.attempt >= roster.spec.federation.attempts:
            raise ProtocolError(f"attempt {notice.attempt + 1} is beyond the attempts that were agreed")


def _check_before(notice: Notice, roster: Roster, past: Past, me: str) -> None:
    """What holds of everything that clients do before a round."""
    if me not in roster.clients:
        raise ProtocolError(f"{notice.what!r:.40} is for clients and the server that relays it, and {me} is neither")
    if notice.round >= roster.spec.federation.rounds:
        raise ProtocolError(f"round {notice.round + 1} is beyond the {roster.spec.federation.rounds} that were agreed")
    if (notice.round, notice.attempt) <= (past.round, past.attempt):
        raise Replayed(f"{notice.what!r:.40} before round {notice.round + 1} was called before")


def check_called(called: Called, roster: Roster, standing: Standing, past: Past) -> None:
    """What a client checks before it agrees, whatever the server says. Raises: ProtocolError, Replayed.

    That it signs one outcome a number and none that reaches back its standing sees to when it plays (`Standing.check`).
    """
    encode, everyone = roster.spec.protocol.encode, roster.spec.federation.there(roster.clients, called.before)
    rules = encode.rules
    if rules is None:
        raise ProtocolError("in this protocol clients agree on nothing before a round")
    if strangers := sorted(set(called.roster) - set(everyone)):
        raise ProtocolError(f"{called.what!r} names {strangers[0]!r}, who is not enrolled by round {called.before + 1}")
    allowed = {
        JOINT: rules.by == "joint",
        PBFT: rules.by == "pbft",
        # Whoever is told an epoch's secret can open all of its rounds: only where that was accepted.
        WELCOME: rules.agree == "epoch" and rules.newcomers == "welcome",
        HAND_ON: rules.agree == "round",
        MOVE: rules.agree == "epoch" and rules.newcomers == "epoch",
        FIRST: encode.clients_start,
    }
    if not allowed[called.what]:
        raise ProtocolError(f"{called.what!r} is none of what this protocol's clients do before a round")
    if called.numbered is not None:
        _check_numbered(called, rules, roster, everyone, past)
    elif called.what in (MOVE, FIRST):
        _check_fresh_epoch(called, standing)


def _check_numbered(
    called: Called, rules: AgreementRules, roster: Roster, everyone: tuple[str, ...], past: Past
) -> None:
    """Numbers rise, and those who agree are all of those who should: two groups would agree on two outcomes."""
    terms = called.terms
    if called.numbered is None or called.numbered <= past.agreed:
        number, attempt = past.agreed
        raise Replayed(f"an agreement under number {number}, attempt {attempt + 1} or a later one was called before")
    if rules.agree == "epoch":
        if called.roster != everyone or terms["last"] is not None or terms["start"] != called.before:
            raise ProtocolError("an epoch is agreed on by all enrolled clients, from the next round on")
        return
    if not terms["number"] == terms["start"] == terms["last"] == called.before:
        raise ProtocolError("a round's rule is agreed on under the round's number, for that round")
    invited = roster.spec.federation.cohort or len(everyone)
    if len(called.roster) > invited or len(called.roster) < max(LEAST, roster.quorum):
        raise ProtocolError(f"{len(called.roster)} clients are to agree on a rule, of {invited} that a round invites")
    if called.what == PBFT and len(called.roster) != invited:
        raise ProtocolError("PBFT is among all who are invited: of fewer, the faulty ones could be many enough")


def _check_fresh_epoch(called: Called, standing: Standing) -> None:
    """A model is drawn or moved once, before the first round of an epoch: later ones would only link its rounds."""
    if standing.epoch is None or standing.epoch.start != called.before or standing.used >= called.before:
        raise ProtocolError(f"{called.what!r} before round {called.before + 1}: no epoch that is held begins with it")
