"""What one-use material is bound to, and a holder that lets go of it once.

Two servers shuffle with random numbers that fit each other (a *correlation*). Used twice, these could tell one server
the other's permutation: the difference of two messages under one mask is the difference of what was masked, and what
was masked may lie in the secret order. Masks, keys and boxes must not be used twice either.

`SingleUse` keeps that rule for `translate`, `onion` and `convert` (dealt material of RAIN's own shuffle has
`dealer.ShuffleShare.take`): what was taken is gone, whatever became of the attempt, and a second try needs fresh
material. An `Occasion` names one attempt, so that whatever is signed, sealed or hashed under its label counts in that
attempt only: shuffles, boxes, proofs and agreements use it. Across restarts of a program `engine.journal` keeps the
same rule on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from croupier.core import canon
from croupier.core.coins import Label
from croupier.core.flow import Given, roster_digest
from croupier.errors import ProtocolError

T = TypeVar("T")


@dataclass(frozen=True)
class Occasion:
    """One attempt of one round of one run, for those who were invited to it (`roster` is the digest of their names)."""

    run: bytes
    round: int
    attempt: int
    roster: bytes

    @classmethod
    def of(cls, given: Given) -> Occasion:
        """The occasion that a party is told of."""
        return cls(given.run, given.round, given.attempt, roster_digest(given.roster))

    def label(self, purpose: str, *index: Label) -> bytes:
        """32 bytes that stand for this occasion and purpose, and for no other."""
        return canon.digest(("croupier/1", purpose, self.run, self.round, self.attempt, self.roster, *index))

    def __str__(self) -> str:
        return f"round {self.round}, attempt {self.attempt} of run {self.run.hex()[:8]}"


class SingleUse(Generic[T]):
    """Material for one occasion: it can be taken once, and is then gone, also when the attempt fails."""

    def __init__(self, value: T, occasion: Occasion) -> None:
        self._value: T | None = value
        self._occasion = occasion

    def take(self, occasion: Occasion) -> T:
        """The material, which is then spent, also where the occasion does not fit.

        Raises: ProtocolError when it was spent before, or made for another occasion.
        """
        value, self._value = self._value, None
        if value is None:
            raise ProtocolError(f"this material for {self._occasion} is spent; make fresh material for each attempt")
        if occasion != self._occasion:
            raise ProtocolError(f"this material is for {self._occasion}, not for {occasion}, and is now spent")
        return value

    def __repr__(self) -> str:
        return f"SingleUse({'spent' if self._value is None else '...'}, {self._occasion})"
