"""What one party of a federation starts from: the roster it accepted, its own keys, and the protocol that they name.

What a party goes by in an attempt is computed from these and from the server's signed notice, which `service.guard`
checks; quorum, layout and keys never come from others. Which version of the roster holds changes from round to round: a
running party asks its `Versions` (`service.accepted`, or `OneVersion` where there is no other). Parties, doors and
calls of this room are made of a `Member`; `service.accepted` and `service.rehearsal` make it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from croupier.core.flow import Given
from croupier.engine.federation import Federation, least
from croupier.errors import RosterError
from croupier.pipeline import Pipeline
from croupier.place.placement import Keys
from croupier.place.secrets import Secrets
from croupier.service.identity import Keyring
from croupier.service.notice import Notice
from croupier.service.roster import Roster

SERVER = "server"


@dataclass(frozen=True)
class Member:
    """One party: its name, what everybody accepted, its own keys, and of a client the secret that all clients share."""

    name: str
    roster: Roster
    keyring: Keyring = field(repr=False)
    group: bytes = field(default=b"", repr=False)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The protocol that the roster's description names."""
        return self.roster.spec.protocol

    @cached_property
    def plan(self) -> Federation:
        """How rounds are planned."""
        return self.roster.spec.federation

    @property
    def is_client(self) -> bool:
        """Whether it trains; all others are hosts."""
        return self.name in self.roster.clients

    @cached_property
    def keys(self) -> Keys:
        """The keys that its flow uses: of its own, and of others the public ones."""
        place, roster = self.pipeline.place, self.roster
        if self.name not in place.holders(roster.clients):
            return {}
        identities = {name: roster.card(name).identity for name in place.holders(roster.clients)}
        boxes = {name: roster.card(name).box for name in roster.clients}
        return place.own_keys(
            self.name,
            Secrets(
                self.keyring.identity, self.keyring.lock.private.private_bytes_raw(), self.group, identities, boxes
            ),
        )

    @cached_property
    def agreement_keys(self) -> Keys:
        """The keys that clients agree with: its own identity, and everybody's public one as the roster has it."""
        roster = self.roster
        public = {name: roster.card(name).identity for name in roster.clients}
        return {"identity": self.keyring.identity, "public": public} if self.is_client else {"public": public}

    @property
    def _quorum(self) -> int:
        """How many clients a round needs: as the description says, unless the roster asks for more.

        What the release needs to hide among is the placement's to add, with a remedy of its own.
        """
        described = least(self.plan, self.plan.cohort or len(self.roster.clients))
        return described if self.roster.quorum <= max(described, self.pipeline.release.least) else self.roster.quorum

    def given(self, notice: Notice, shard: str, participation: int) -> Given:
        """What its flow is told before an attempt: computed from the roster and the notice, never taken from others."""
        return Given(
            self.name, notice.run, notice.round, notice.attempt, notice.cohort, self._quorum,
            self.roster.layout, shard, participation, self.roster.inputs,
        )  # fmt: skip


class Versions(Protocol):
    """A party in every version of the roster that it accepted; `service.accepted` is the usual one."""

    def at(self, number: int) -> Member:
        """As it takes part in a round, of which the first is 1. Raises: RosterError when no version holds there."""

    def of(self, digest: bytes) -> Member:
        """As it takes part under the roster with a digest. Raises: RosterError when it has not accepted that one."""

    def rosters(self) -> tuple[Roster, ...]:
        """Every version, in order."""


def not_accepted(name: str, digest: bytes) -> str:
    """What is said where an attempt lies open under a roster that its party does not hold."""
    return (
        f"an attempt lies open under the roster {digest.hex()[:16]}..., which {name} has not accepted; take the "
        "roster's files in NAME.runs from where they were put"
    )


@dataclass(frozen=True)
class OneVersion:
    """Versions of a roster that never changes."""

    member: Member

    def at(self, number: int) -> Member:
        """The same in every round."""
        return self.member

    def of(self, digest: bytes) -> Member:
        """The same, if it is the one that is meant. Raises: RosterError."""
        if digest != self.member.roster.digest:
            raise RosterError(not_accepted(self.member.name, digest))
        return self.member

    def rosters(self) -> tuple[Roster, ...]:
        """The one there is."""
        return (self.member.roster,)
