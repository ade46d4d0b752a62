"""The notice that opens an attempt or ends the run: what is played, under which roster, in which round, by whom.

The server signs it. Every party computes from it, and from the roster it accepted, all else that it needs: who takes
part, what messages look like, how few clients are enough. Its digest is bound into every header of the attempt
(`AttemptId.binds`), so that parties that were shown different notices cannot understand each other. `service.lead` and
`service.chair` make notices of attempts, `service.announcer` spreads them and says when all is over, and
`service.guard` checks them for `service.host` and `service.client`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from croupier.agree.called import Called
from croupier.core import canon
from croupier.core.attempt import AttemptId
from croupier.errors import IntegrityError, WireError
from croupier.mpc.signatures import signed, verified
from croupier.service.requests import read_request

# Whatever else a notice opens is something that clients do before a round (`agree.called`).
ROUND, END = "round", "end"
_LABEL = "croupier/1 notice"
_FIELDS = ("number", "what", "roster", "run", "round", "attempt", "cohort", "terms")


@dataclass(frozen=True)
class Notice:
    """One attempt, as the server announces it.

    `number` rises with every notice. `what` is a round, the end of the run, or a kind of agreement, which has `terms`
    of its own. `roster` is the digest of the federation's roster.
    """

    number: int
    what: str
    roster: bytes
    run: bytes
    round: int
    attempt: int
    cohort: tuple[str, ...]
    terms: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in _FIELDS}

    @cached_property
    def key(self) -> bytes:
        """The digest of all that the notice says, by which parties name the attempt."""
        return canon.digest((_LABEL, self.plain()))

    def attempt_id(self, spec: bytes) -> AttemptId:
        """What headers of this attempt share."""
        return AttemptId(spec, self.run, self.round, self.attempt, self.key)

    @property
    def called(self) -> Called:
        """The agreement that it opens; its round is the one that the agreement precedes. Raises: WireError."""
        return Called(self.what, self.round, self.cohort, self.terms)

    def forgotten(self) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
        """Who forgets secrets when a round begins, and the frames whose secrets are kept. Raises: WireError."""
        who, live = self.terms.get("forget", ()), self.terms.get("live", ())
        if self.what != ROUND or not isinstance(who, tuple) or not isinstance(live, tuple):
            raise WireError("a notice whose terms are not those of a round")
        if not all(isinstance(frame, bytes) for frame in live):
            raise WireError("a notice whose terms are not those of a round")
        return who, live

    def sign(self, identity: bytes) -> bytes:
        """The notice with the server's signature, as bytes."""
        return canon.dump({"notice": self.plain(), "signature": signed(identity, self.key)})

    @classmethod
    def read(cls, data: bytes, public: bytes) -> Notice:
        """A signed notice. Raises: WireError for what is none; IntegrityError when the server did not sign it."""
        plain, signature = read_request(data, notice=dict, signature=bytes)
        if set(plain) != set(_FIELDS):
            raise WireError("bytes that are no signed notice")
        notice = cls(**plain)
        if not notice.well_formed():
            raise WireError("a notice whose fields are not what they should be")
        if not verified(public, notice.key, signature):
            raise IntegrityError("a notice that the server did not sign")
        return notice

    def well_formed(self) -> bool:
        """Whether every field is of its type and in its range."""
        numbers = (self.number, self.round, self.attempt)
        names = self.cohort if isinstance(self.cohort, tuple) else (None,)
        return (
            all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 32 for one in numbers)
            and self.attempt < 1 << 16
            and isinstance(self.what, str)
            and isinstance(self.roster, bytes)
            and isinstance(self.run, bytes)
            and len(self.run) == 16
            and all(isinstance(name, str) for name in names)
            and tuple(sorted(set(names))) == names
            and isinstance(self.terms, Mapping)
        )
