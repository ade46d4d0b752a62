"""Independent uniform permutations of many columns: a compiled loop, and the plain reference that says what it does.

`core.coins` calls `columns` to permute rows, columns and large blocks of bits; `lanes`, for small blocks, takes its
batches and its formula.

A column is permuted by Fisher and Yates: for row i from the last to the second, swap it with one of the rows 0 to i.
Several of these choices come from one 64-bit word. With spans b1, ..., bk whose product is P, a word w gives

    w b1 = j1 2^64 + r1,    r1 b2 = j2 2^64 + r2,    ...    and so    w P = J 2^64 + rk,

where J has the digits j1, ..., jk in the mixed radix b1, ..., bk: every J below P is one tuple of choices, and the
other way round. The word is refused where rk < t = 2^64 mod P. The rest is exactly uniform: a tuple J keeps the words
for which w P lies in [J 2^64 + t, (J + 1) 2^64), and such a stretch, whose length 2^64 - t is a multiple of P, holds
floor(2^64 / P) multiples of P wherever it begins.

The construction is that of Brackett-Rozinsky and Lemire, Batched Ranged Random Integer Generation (2024).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from croupier.errors import RangeError

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Draw = Callable[[int], Words]

# The product of a batch's spans is at most this, so that fewer than one word in 2^24 is refused.
MOST = 1 << 40
# Words drawn at once: they fit a cache. Part of the protocol: it fixes which word goes where.
DRAWN = 1 << 16
# Fewer numbers than this are permuted by the plain loop: to load a compiler would take longer, or, once it is loaded,
# to call what it made. Both give the same.
_FEW, _LITTLE = 1 << 10, 1 << 5
# Bytes of rows that are permuted at a time: they fit the nearest cache, words and choices beside them.
_NEAR = 1 << 14
# At least so many columns at a time; and fewer rows than this, so that each number's place there has 32 bits.
_LEAST, _ROWS = 1 << 7, 1 << 25


class Batch(NamedTuple):
    """The choices of one word: spans `high`, high - 1, ..., `low`; a remainder below `least` is refused."""

    high: int
    low: int
    least: int


@lru_cache(maxsize=16)
def batches(n: int) -> tuple[Batch, ...]:
    """How the spans n, n - 1, ..., 2 are shared out to words: as many to each as stay within the limit."""
    if n >= _ROWS:
        raise RangeError(f"{n} rows: at most 2^25 - 1 are permuted")
    out, high = list[Batch](), n
    while high > 1:
        low, product = high, high
        while low > 2 and product * (low - 1) <= MOST:
            low -= 1
            product *= low
        out.append(Batch(high, low, (1 << 64) % product))
        high = low - 1
    return tuple(out)


def columns(rows: npt.NDArray[Any], draw: Draw) -> None:
    """Permute each column of `rows` (n, d) in place; `draw(count)` gives uniform 64-bit words.

    A column with a refused word is permuted once more from fresh words. What the refused ones did to it does not
    matter: a uniform permutation after any other is uniform.
    """
    few = _LITTLE if "numba" in sys.modules else _FEW
    _by_strips(rows, draw, _strip_plain if rows.size < few else _strip)


def columns_plain(rows: npt.NDArray[Any], draw: Draw) -> None:
    """The same, one column at a time."""
    _by_strips(rows, draw, _strip_plain)


def _by_strips(rows: npt.NDArray[Any], draw: Draw, permute: Callable[..., Ints]) -> None:
    n, d = rows.shape
    if n < 2:
        return
    count = len(batches(n))
    step = max(1, DRAWN // count)
    for start in range(0, d, step):
        some = rows[:, start : start + step]
        words = draw(count * some.shape[1]).reshape(count, -1)
        for column in permute(some, words).tolist():
            again(some[:, column : column + 1], draw, permute)


def again(column: npt.NDArray[Any], draw: Draw, permute: Callable[..., Ints] | None = None) -> None:
    """Permute one column in place from fresh words, until none of them is refused.

    `permute` is `_strip` or, where it is not given, the plain form. `lanes` calls it for a refused block.
    """
    count = len(batches(len(column)))
    while len((permute or _strip_plain)(column, draw(count).reshape(count, 1))):
        pass


def _strip_plain(rows: npt.NDArray[Any], words: Words) -> Ints:
    """Permute the columns, each by its column of words, one word a batch. Returns which of them have a refused word."""
    refused = []
    for k in range(rows.shape[1]):
        fine = True
        for batch, drawn in zip(batches(len(rows)), words[:, k].tolist(), strict=True):
            rest = drawn
            for span in range(batch.high, batch.low - 1, -1):
                j, rest = divmod(rest * span, 1 << 64)
                rows[span - 1, k], rows[j, k] = rows[j, k], rows[span - 1, k]
            fine &= rest >= batch.least
        refused += [] if fine else [k]
    return np.array(refused, np.int64)


def _strip(rows: npt.NDArray[Any], words: Words) -> Ints:
    """The same, compiled."""
    # numba takes half a second to import: only those who shuffle pay for it.
    from croupier.kernels._permute_jit import strip

    n, width = rows.shape
    size = rows.itemsize
    down, across = rows.strides
    if across != size or down % size or down < width * size:
        together = np.ascontiguousarray(rows)
        refused = _strip(together, words)
        rows[:] = together
        return refused
    # One flat view from the first number to the last, and the distance from row to row: rows may lie apart.
    pitch = down // size
    flat = np.lib.stride_tricks.as_strided(rows, ((n - 1) * pitch + width,), (size,)).view(f"u{size}")
    tile = min(width, max(_LEAST, _NEAR // (n * size)))
    found: Ints = strip(flat, pitch, n, words, *_table(n), tile)
    return found


@lru_cache(maxsize=16)
def _table(n: int) -> tuple[Ints, Ints, Words]:
    """The batches as arrays."""
    high, low, least = zip(*batches(n), strict=True)
    return np.array(high, np.int64), np.array(low, np.int64), np.array(least, np.uint64)
