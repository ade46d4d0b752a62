"""Compiled loops that carry rows of numbers from one place of a vector to another. Imported when first needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# Numbers in a line of cache, of 4 bytes each.
LINE = 16


@njit(cache=True, nogil=True)
def packed(out: Any, values: Any, to: Any, source: Any, line: Any) -> Any:
    """Each row of `out` is a row of `values` in the order that `line` says.

    A row is first touched from its beginning to its end, which has the memory bring it in; read in random order at
    once, every line of it would be waited for. What is summed up is of no use but to keep the compiler from leaving
    that out. Places are unsigned: a signed one would be tested for counting from the end.
    """
    width = len(line)
    touched = values[0] * 0
    for row in range(len(to)):
        given = values[source[row] : source[row] + width]
        done = out[to[row] : to[row] + width]
        for place in range(0, width, LINE):
            touched += given[place]
        for place in range(width):
            done[place] = given[line[place]]
    return touched


@njit(cache=True, nogil=True)
def runs(out: Any, values: Any, to: Any, source: Any, line: Any, run: int) -> Any:
    """The same, where `line` says where runs of neighbours begin."""
    width = len(line) * run
    touched = values[0] * 0
    for row in range(len(to)):
        given = values[source[row] : source[row] + width]
        for place in range(0, width, LINE):
            touched += given[place]
        at = np.uint64(to[row])
        for number in range(len(line)):
            first = np.uint64(line[number])
            for step in range(run):
                out[at + np.uint64(step)] = given[first + np.uint64(step)]
            at += np.uint64(run)
    return touched


@njit(cache=True, nogil=True)
def scattered(out: Any, values: Any, to: Any, source: Any, after: Any, before: Any) -> None:
    """Rows whose numbers do not lie together in `out`."""
    for row in range(len(to)):
        for place in range(len(after)):
            out[to[row] + after[place]] = values[source[row] + before[place]]
