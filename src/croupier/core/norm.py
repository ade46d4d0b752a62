"""The Euclidean length of a vector by one fixed routine, the same bits on every machine.

Clipping decides by it how much of an update leaves (`privacy.gaussian`), and sensitivity rests on it; audits of traits
clip by it, too. torch's own norm sums in an order that depends on the processor; a length that differs in its last bit
would change the bits of everything after it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

# The most squares that are held at a time, once for each halving that it takes to come down to so few.
_HELD = 1 << 16


def length(vector: Tensor) -> float:
    """The length, in float64.

    Squares are added in halves, element by element: a library's own sum adds in an order that depends on the processor.
    No array of all squares is made: the halves of a long vector are added a stretch at a time.
    """
    values = vector.detach().cpu().numpy()
    counts = [len(values)]
    while counts[-1] > _HELD:
        counts.append((counts[-1] + 1) // 2)
    squares, count = _halved(values, counts, 0, counts[-1]), counts[-1]
    while count > 1:
        upper = (count + 1) // 2
        squares[: count - upper] += squares[upper:count]
        count = upper
    return math.sqrt(float(squares[0])) if len(squares) else 0.0


def _halved(values: npt.NDArray[Any], counts: list[int], start: int, stop: int) -> npt.NDArray[np.float64]:
    """Squares from `start` to `stop`, after those of the whole vector were added in halves until counts[-1] were left.

    `counts` are how many there are before the first halving, and after each one.
    """
    if len(counts) == 1:
        wide = values[start:stop].astype(np.float64)
        return np.square(wide, out=wide)
    *before, upper = counts
    total = _halved(values, before, start, stop)
    if start + upper < before[-1]:
        other = _halved(values, before, start + upper, min(stop + upper, before[-1]))
        total[: len(other)] += other
    return total
