"""RAIN's rule in whole numbers, as it can be computed without opening anything on the way.

It is RAIN's Algorithm 2 as printed, with the threshold that it takes for granted: tau = median + c MAD, weights max(0,
tau - distance). Medians are kept doubled and weights carry the factor 4 `den`, so that only constants are rounded: c,
to `num` / `den`, and the least MAD (`floor`), which is ours and not printed.

`release.scored` follows it where scores are to stay secret; the two servers then compute the same on shares, with the
constants from here (`place.two_servers.scoring`, `mpc.trust`). This is the clear form that the secret one is tested
against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

# The denominator of c, a power of two; and what scales a median of absolute deviations to a standard deviation.
DEN = 256
_NORMAL = Fraction("1.4826")
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Printed:
    """The constants of the rule: c = `num` / `den`, and the least MAD, in quarters of a coordinate (0: none)."""

    num: int
    floor: int = 0
    den: int = DEN

    @classmethod
    def of(cls, spread: float, size: int, floor: bool) -> Printed:
        """The constants for so many coordinates; `spread` is c in units of a normal's deviation.

        With `floor` the MAD counts as no less than chance makes it. As the median is secret, chance is reckoned for
        rows that differ from the reference in half of the coordinates, where it is largest.
        """
        least = round(4 * math.sqrt(size) / 2 / float(_NORMAL)) if floor else 0
        return cls(round(_NORMAL * Fraction(str(spread)) * DEN), least)

    def weights(self, distances: Ints) -> Ints:
        """4 `den` times the weight of each row."""
        middle = _doubled_median(distances)
        spread = max(_doubled_median(np.abs(2 * distances - middle)), self.floor)
        return np.maximum(0, 2 * self.den * middle + self.num * spread - 4 * self.den * distances)


def _doubled_median(numbers: Ints) -> int:
    """Twice the median."""
    ordered = np.sort(numbers)
    return int(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2])
