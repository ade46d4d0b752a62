"""The compiled loops of `unary`: bits of a strip of numbers into a table of bytes, and back.

Only `kernels.unary` calls them; they are in a file of their own so that numba is loaded only once they are needed. A
residue's bits may straddle two words. A table's rows are as many as blocks have bits, and far apart in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels.compiled import njit

_ONE = np.uint64(1)
_WORD = np.uint64(64)
_LOW = np.uint64(63)
_SIX = np.uint64(6)


@njit(cache=True, nogil=True)
def lay_out(words: Any, at: int, wide: int, width: int, out: Any) -> None:
    """Bit b of the residue that row r has for number i goes to row r * width + b, column i, of the table.

    The first number's residue begins at bit `at` of a row, and the next ones `wide` bits further on each time.
    """
    for r in range(words.shape[0]):
        line = words[r]
        place = np.uint64(at)
        for i in range(out.shape[1]):
            word, shift = place >> _SIX, place & _LOW
            value = line[word] >> shift
            if shift > 0:
                value |= line[word + _ONE] << (_WORD - shift)
            for b in range(width):
                out[r * width + b, i] = np.uint8(value & _ONE)
                value >>= _ONE
            place += np.uint64(wide)


@njit(cache=True, nogil=True)
def put_back(table: Any, at: int, wide: int, width: int, out: Any) -> None:
    """The table's bits back to where `lay_out` took them from, into words that are 0 there."""
    for r in range(out.shape[0]):
        line = out[r]
        place = np.uint64(at)
        for i in range(table.shape[1]):
            value = np.uint64(0)
            for b in range(width):
                value |= np.uint64(table[r * width + b, i]) << np.uint64(b)
            word, shift = place >> _SIX, place & _LOW
            line[word] |= value << shift
            if shift > 0:
                line[word + _ONE] |= value >> (_WORD - shift)
            place += np.uint64(wide)
