"""A tag that only clients can make and check, and that adds up with what it authenticates.

It is an affine one-time MAC. With a secret vector k and a pad for each client, a client's tag of its numbers x is
<k, x> + pad modulo p = 2^61 - 1. The sum of the tags fits the sum of the numbers, the sum of these very clients' pads,
and nothing else: to make another sum fit, its difference times k must be guessed. k is a product: the i-th number of
the j-th block counts inner_i * outer_j times, which lets a guess be right with probability 2 / p at most
(docs/theory.md has the proof) and is drawn in a thousandth of the time. Without pads every multiple of a true sum would
fit, 0 among them.

`place.servers` uses it: sum servers that alter, drop or add a client's numbers are caught by every client on its own,
from what is published. `croupier bench tamper` also tries tags without pads, to show what then gets by.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.kernels.packed import Key
from croupier.kernels.shares import P


@dataclass(frozen=True)
class Tagger:
    """One attempt's key: drawn once from the clients' common secret, for so many numbers of so many bits.

    Clients are known by their places among those invited.
    """

    coins: Coins
    bits: int
    invited: int
    padded: bool = True

    def key(self, count: int) -> Key:
        """The secret linear form: both of its parts are uniform in the field."""
        inner, outer = Key.sizes(count, self.bits)
        drawn = self.coins.child("key").secure().below(P, inner + outer).view(np.uint64)
        return Key.of(drawn[:inner], drawn[inner:], self.bits)

    @cached_property
    def pads(self) -> npt.NDArray[np.int64]:
        """What makes each client's tag its own. One draw for all: every client needs those of all present."""
        drawn = _pads(self.coins.child("pads").export(), self.invited)
        return drawn if self.padded else np.zeros_like(drawn)

    def fits(self, form: int, tag: int, places: npt.NDArray[np.int64]) -> bool:
        """Whether a sum, given as `form` = <k, sum>, and a tag are those of exactly the clients at these places."""
        return (form + _pads_of(self.pads, places) - tag) % P == 0


@lru_cache(maxsize=1)
def _pads(seed: bytes, invited: int) -> npt.NDArray[np.int64]:
    """The pads that a seed stands for. Clients of one process, who all have that seed, hold one copy of them.

    Otherwise a simulation would draw and hold as many pads as the square of its clients.
    """
    drawn = Coins(seed).secure().below(P, invited)
    drawn.flags.writeable = False
    return drawn


def _pads_of(pads: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> int:
    """The sum of the pads at some places, remembered for the places that were asked for last.

    Clients of one process ask for that of the same arrays, which nobody can write to any more. If each of them added
    the pads up again, the work would grow with the square of their number.
    """
    held, at, total = _last_sum[0]
    if held is not pads or at is not places or pads.flags.writeable or places.flags.writeable:
        total = _added(pads[places])
        _last_sum[0] = pads, places, total
    return total


_NOBODY = np.zeros(0, np.int64)
_last_sum: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]] = [(_NOBODY, _NOBODY, 0)]


def _added(elements: npt.NDArray[np.int64]) -> int:
    """The sum of elements of the field, by halves, which no number of clients lets overflow."""
    return (int((elements & 0x7FFFFFFF).sum()) + (int((elements >> 31).sum()) << 31)) % P
