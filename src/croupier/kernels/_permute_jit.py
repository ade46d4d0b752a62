"""The compiled loop of `permute`; in its own file so that its compiled form can be cached on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def strip(rows: Any, todo: Any, words: Any, again: Any) -> int:
    """Permute the columns in `todo`; list in `again` those that need fresh words, and return their number."""
    n, width = rows.shape[0], todo.shape[0]
    bad = np.zeros(width, np.bool_)
    low = np.uint64(0xFFFFFFFF)
    # Row by row, because rows are what lies together in memory.
    for i in range(1, n):
        span = np.uint64(i + 1)
        left = np.uint64(4294967296) % span
        for k in range(width):
            bad[k] |= ((np.uint64(words[i - 1, k]) * span) & low) < left
    for i in range(n - 1, 0, -1):
        span = np.uint64(i + 1)
        for k in range(width):
            if not bad[k]:
                j = np.int64((np.uint64(words[i - 1, k]) * span) >> np.uint64(32))
                c = todo[k]
                kept = rows[i, c]
                rows[i, c] = rows[j, c]
                rows[j, c] = kept
    refused = 0
    for k in range(width):
        if bad[k]:
            again[refused] = todo[k]
            refused += 1
    return refused
