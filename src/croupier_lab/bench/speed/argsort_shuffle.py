"""The rival of the shuffle: permute each coordinate's values by sorting random keys, in NumPy.

It is the usual way to permute many columns at once. Here are its usual form (`line`), the quickest form on one core
(`blocked`) and on all (`together`), and keys of two kinds: from a generator that hides nothing, or from a cipher.
`coordinate_shuffle` (`croupier bench intra`) times them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from croupier.core.coins import Coins
from croupier.kernels.threads import each
from croupier.release.release import blocks

# Coordinates that are sorted at a time: the quickest, found by trying.
STEP = 1 << 14
Table = npt.NDArray[Any]
Keys = Callable[[int, int], Table]


def generator(seed: int) -> Keys:
    """Keys that take little time to draw, and hide nothing."""
    drawn = np.random.default_rng(seed)
    return lambda count, clients: drawn.random((count, clients))


def cipher(coins: Coins) -> Keys:
    """Keys of 64 bits from a stream cipher."""
    stream = coins.secure()
    return lambda count, clients: stream.words(count * clients).reshape(count, clients)


def line(rows: Sequence[Tensor], seed: int) -> Table:
    """The form that people write: all coordinates in one call."""
    values = np.stack([row.numpy() for row in rows])
    out: Table = np.take_along_axis(values, np.random.default_rng(seed).random(values.shape).argsort(0), 0)
    return out


def blocked(rows: Sequence[Tensor], keys: Keys) -> Table:
    """The quickest form on one core: few coordinates at a time, a coordinate's keys side by side."""
    out = np.empty((len(rows), len(rows[0])), rows[0].numpy().dtype)
    _sort(rows, keys, out, 0, out.shape[1])
    return out


def together(rows: Sequence[Tensor], seed: int) -> Table:
    """That form on all cores: NumPy lets go of the interpreter's lock while it sorts."""
    out = np.empty((len(rows), len(rows[0])), rows[0].numpy().dtype)
    parts = [(generator(seed + number), start, stop) for number, start, stop in blocks(out.shape[1])]
    each([partial(_sort, rows, keys, out, start, stop) for keys, start, stop in parts])
    return out


def _sort(rows: Sequence[Tensor], keys: Keys, out: Table, first: int, last: int) -> None:
    for start in range(first, last, STEP):
        stop = min(last, start + STEP)
        values = np.stack([row[start:stop].numpy() for row in rows], 1)
        order = keys(stop - start, len(rows)).argsort(1)
        out[:, start:stop] = np.take_along_axis(values, order, 1).T
