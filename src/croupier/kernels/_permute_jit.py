"""The compiled loop of `permute`, in a file of its own so that numba is loaded only once it is needed.

Only `permute` calls it, and says what a word chooses. Columns are taken a few at a time, so that the rows' pieces stay
in the cache while they are swapped. A column whose word was refused is marked, and `permute` draws for it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels.compiled import njit


@njit(cache=True, nogil=True)
def strip(flat: Any, pitch: int, n: int, words: Any, highs: Any, lows: Any, leasts: Any, tile: int) -> Any:
    """Permute the columns of n rows that begin `pitch` apart, `tile` columns at a time.

    Batch g has the spans from highs[g] down to lows[g] and refuses remainders below leasts[g]. Returns the columns that
    have a refused word. Rows are brought together first: a power of two apart they would push each other out of the
    cache.
    """
    width = words.shape[1]
    near = np.empty(n * tile, flat.dtype)
    rest, where, bad = np.empty(tile, np.uint64), np.empty(tile, np.uint32), np.zeros(width, np.bool_)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    for start in range(0, width, tile):
        size = min(tile, width - start)
        for i in range(n):
            near[i * tile : i * tile + size] = flat[i * pitch + start : i * pitch + start + size]
        for g in range(len(highs)):
            rest[:size] = words[g, start : start + size]
            for number in range(highs[g], lows[g] - 1, -1):
                # The 96 bits of the product by halves, in a loop of its own that takes several columns at a time.
                span = np.uint64(number)
                for k in range(size):
                    word = rest[k]
                    row = np.uint32(((word >> half) * span + (((word & low) * span) >> half)) >> half)
                    where[k] = row * np.uint32(tile) + np.uint32(k)
                    rest[k] = word * span
                line = near[(number - 1) * tile : number * tile]
                for k in range(size):
                    kept = line[k]
                    line[k] = near[where[k]]
                    near[where[k]] = kept
            for k in range(size):
                bad[start + k] |= rest[k] < leasts[g]
        for i in range(n):
            flat[i * pitch + start : i * pitch + start + size] = near[i * tile : i * tile + size]
    return np.flatnonzero(bad)
