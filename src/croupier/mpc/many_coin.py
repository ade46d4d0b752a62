"""A coin that none of several parties can choose, tossed over all that they have seen so far.

Everybody commits to a draw, and shows it once all others are bound. A commitment names the occasion, the step, the
party and a digest of what the party has seen: parties that were shown different things cannot finish a toss, and a copy
of another's commitment cannot be opened. Draws are hashed together and never added. Who withholds its draw ends the
round, and is named.

All mix servers and the server toss it to choose for which numbers servers prove their shuffle, once nobody can change
what came out (`place.chain.proven_flow`). `authentic.toss` is the form for two parties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema
from croupier.errors import IntegrityError
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.occasion import Occasion

_SIZE = 32


@dataclass(frozen=True)
class ManyCoin:
    """One toss: who takes part, in an order that all know, and what it is for."""

    parties: tuple[str, ...]
    step: str

    def schemas(self) -> Mapping[str, Schema]:
        """The messages: commitments, and then what they hide."""
        return {
            f"{self.step}-c": Schema((Field("digest", "|u1", (_SIZE,)),)),
            f"{self.step}-o": Schema((Field("nonce", "|u1", (_SIZE,)), Field("value", "|u1", (_SIZE,)))),
        }

    def toss(self, given: Given, seen: bytes, coins: Coins) -> SubFlow:
        """The coin. Raises: IntegrityError that names who opened another draw, or has seen something else."""
        own, nonce = coins.child("coin", seen).export(), coins.child("nonce", seen).export()
        others = tuple(name for name in self.parties if name != given.me)
        mine = self._bound(given, given.me, seen, own, nonce)
        said = {"digest": byte_tensor(mine)}
        heard = yield Exchange(tuple(Letter(who, f"{self.step}-c", said) for who in others), self._wait("c", others))
        bound = {letter.source: bytes_of(letter.body["digest"]) for letter in heard}
        if len({mine, *bound.values()}) < len(self.parties):
            raise IntegrityError("round aborted: a party echoed another's commitment to its part of the coin")
        told = {"nonce": byte_tensor(nonce), "value": byte_tensor(own)}
        shown = yield Exchange(tuple(Letter(who, f"{self.step}-o", told) for who in others), self._wait("o", others))
        drawn = {given.me: own}
        for letter in shown:
            drawn[letter.source] = bytes_of(letter.body["value"])
            nonce = bytes_of(letter.body["nonce"])
            if self._bound(given, letter.source, seen, drawn[letter.source], nonce) != bound[letter.source]:
                raise IntegrityError(
                    f"round aborted: {letter.source} opened another part of the coin than it had fixed, or was shown "
                    f"other messages than {given.me}"
                )
        parts = tuple(drawn[name] for name in self.parties)
        return Occasion.of(given).label("coin out", self.step, seen, *parts)

    def _wait(self, part: str, others: tuple[str, ...]) -> Wait:
        return Wait(f"{self.step}-{part}", others)

    def _bound(self, given: Given, who: str, seen: bytes, value: bytes, nonce: bytes) -> bytes:
        return canon.digest(("coin commit", Occasion.of(given).label("coin", self.step, who), seen, value, nonce))
