"""The Euclidean length of a vector by one fixed routine, the same bits on every machine.

Clipping decides by it how much of an update leaves, and sensitivity rests on it. torch's own norm sums in an order that
depends on the processor; a length that differs in its last bit would change the bits of everything after it.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor


def length(vector: Tensor) -> float:
    """The length, in float64.

    Squares are added in halves, element by element: a library's own sum adds in an order that depends on the processor.
    """
    squares = np.square(vector.detach().cpu().numpy().astype(np.float64))
    count = len(squares)
    while count > 1:
        upper = (count + 1) // 2
        squares[: count - upper] += squares[upper:count]
        count = upper
    return math.sqrt(float(squares[0])) if len(squares) else 0.0
