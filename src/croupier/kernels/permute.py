"""Independent uniform permutations of many columns: a compiled loop, and the plain reference that says what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Draw = Callable[[int], Words]

# Columns permuted from one draw: keeps the random words in cache. Part of the protocol: it fixes which word goes where.
STRIP = 1 << 12


def columns(rows: npt.NDArray[Any], draw: Draw) -> None:
    """Permute each column of `rows` (n, d) in place, by Fisher and Yates on 32-bit words.

    A word that would favour some choices is refused, and its whole column waits for fresh words (about n^2 / 2^33 of
    the columns), so every permutation has the same probability.
    """
    few = rows.size < 1 << 10  # not worth loading a compiler for
    _by_strips(rows, draw, _strip_plain if few else _compiled())


def columns_plain(rows: npt.NDArray[Any], draw: Draw) -> None:
    """The same, one column at a time."""
    _by_strips(rows, draw, _strip_plain)


def _by_strips(rows: npt.NDArray[Any], draw: Draw, permute: Callable[..., int]) -> None:
    n, d = rows.shape
    if n < 2:
        return
    for start in range(0, d, STRIP):
        todo = np.arange(start, min(d, start + STRIP), dtype=np.int64)
        while len(todo):
            words = draw((n - 1) * len(todo)).reshape(n - 1, len(todo))
            again = np.empty(len(todo), np.int64)
            todo = again[: permute(rows, todo, words, again)].copy()


def _strip_plain(rows: npt.NDArray[Any], todo: npt.NDArray[np.int64], words: Words, again: Any) -> int:
    refused = 0
    for k, column in enumerate(todo):
        draws = [int(words[i - 1, k]) * (i + 1) for i in range(1, len(rows))]
        # Lemire's test: the low half must not fall into the part that 2^32 leaves over.
        if any(x % 2**32 < 2**32 % (i + 2) for i, x in enumerate(draws)):
            again[refused] = column
            refused += 1
            continue
        for i in range(len(rows) - 1, 0, -1):
            j = draws[i - 1] >> 32
            rows[i, column], rows[j, column] = rows[j, column], rows[i, column]
    return refused


_kernel: Callable[..., int] | None = None


def _compiled() -> Callable[..., int]:
    global _kernel
    if _kernel is None:
        # numba takes half a second to import: only those who shuffle pay for it.
        from croupier.kernels._permute_jit import strip

        _kernel = strip
    return _kernel
