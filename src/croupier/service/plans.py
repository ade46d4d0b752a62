"""What one party plays when a notice opens an attempt: its flow, what it is told, and the messages that there are.

Everything comes from the notice, from the roster that the party accepted, and from its own memory and keys; nothing is
taken from others. `service.party` seats itself by it, for a round as for an agreement.
"""

from __future__ import annotations

from croupier.agree.seats import Insider, SeatPlan, seat_for
from croupier.core.flow import Memory
from croupier.errors import ProtocolError
from croupier.service.member import Member
from croupier.service.notice import ROUND, Notice


def plan_for(notice: Notice, member: Member, memory: Memory, shard: str = "", participation: int = 0) -> SeatPlan:
    """A party's seat in the attempt of a notice. Raises: CroupierError when the notice makes no sense."""
    if notice.what == ROUND:
        return _round_plan(notice, member, memory, shard, participation)
    rules, roster = member.pipeline.encode.rules, member.roster
    if rules is None:
        raise ProtocolError(f"{notice.what!r:.40}: in this protocol clients agree on nothing before a round")
    own = Insider(member.name, roster.run, rules, roster.layout.size, memory, member.agreement_keys)
    return seat_for(notice.called, own)


def _round_plan(notice: Notice, member: Member, memory: Memory, shard: str, participation: int) -> SeatPlan:
    pipeline = member.pipeline
    given = member.given(notice, shard, participation)
    party = pipeline.parties(notice.cohort)[member.name]
    held = {**memory, **({"keys": member.keys} if member.keys else {})}
    return SeatPlan(party, given, held, pipeline.schemas(given), pipeline.digest(), lambda own, ended: ended)
