"""What a party checks before it takes part in an attempt, whatever the server says.

Clients and hosts each keep these rules for themselves and across restarts, because a server that could open attempts
at will would get two sums that differ by one client. They are pure functions of a notice, of what the party accepted,
and of what it took part in before.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.errors import IntegrityError, ProtocolError, Replayed
from croupier.service.notice import ROUND, Notice
from croupier.service.roster import Roster


@dataclass(frozen=True)
class Past:
    """What a party took part in before: its last attempt of this kind, how it ended, and whether it raised an alarm.

    `short` says that the attempt ended for want of clients, before anything was released.
    """

    round: int = -1
    attempt: int = -1
    state: str = ""
    short: bool = False
    alarm: str = ""


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
        if me not in (*roster.clients, *place.bystanders) and not past.short:
            raise Replayed(f"round {notice.round + 1} may have released something; it is not started again")
        if notice.attempt >= roster.spec.federation.attempts:
            raise ProtocolError(f"attempt {notice.attempt + 1} is beyond the attempts that were agreed")
