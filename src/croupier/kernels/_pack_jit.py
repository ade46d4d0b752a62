"""The compiled loops of `pack`, in a file of their own so that numba is loaded only once they are needed.

Only `kernels.pack` calls them. A value may straddle two words. Bits are gathered in a register, and a word is written
once it is full; `unpack_one`, for a single width, reads every word once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels.compiled import njit

_ONE = np.uint64(1)
_WORD = np.uint64(64)


@njit(cache=True, nogil=True)
def pack(values: Any, widths: Any, out: Any) -> None:
    """Write values one after another, each in its column's bits, which must hold it; widths repeat from row to row."""
    acc, fill, k = np.uint64(0), np.uint64(0), 0
    for row in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = np.uint64(values[row, j])
            width = np.uint64(widths[j])
            acc |= value << fill
            fill += width
            if fill >= _WORD:
                out[k] = acc
                k += 1
                fill -= _WORD
                acc = value >> (width - fill) if fill > 0 else np.uint64(0)
    if fill > 0:
        out[k] = acc


@njit(cache=True, nogil=True)
def unpack(words: Any, widths: Any, out: Any) -> None:
    """Read values that `pack` wrote."""
    k, shift = 0, np.uint64(0)
    for row in range(out.shape[0]):
        for j in range(out.shape[1]):
            width = np.uint64(widths[j])
            value = words[k] >> shift
            if shift + width > _WORD:
                value |= words[k + 1] << (_WORD - shift)
            shift += width
            if shift >= _WORD:
                shift -= _WORD
                k += 1
            out[row, j] = value & ((_ONE << width) - _ONE)


@njit(cache=True, nogil=True)
def pack_one(values: Any, bits: int, out: Any) -> None:
    """As `pack`, for one width."""
    acc, fill, k, width = np.uint64(0), np.uint64(0), 0, np.uint64(bits)
    for value in values:
        wide = np.uint64(value)
        acc |= wide << fill
        fill += width
        if fill >= _WORD:
            out[k] = acc
            k += 1
            fill -= _WORD
            acc = wide >> (width - fill) if fill > 0 else np.uint64(0)
    if fill > 0:
        out[k] = acc


@njit(cache=True, nogil=True)
def unpack_one(words: Any, bits: int, out: Any) -> None:
    """As `unpack`, for one width: every word is read once."""
    width = np.uint64(bits)
    mask = (_ONE << width) - _ONE
    acc, have, k = np.uint64(0), np.uint64(0), 0
    for i in range(len(out)):
        if have >= width:
            out[i] = acc & mask
            acc >>= width
            have -= width
        else:
            word = words[k]
            k += 1
            out[i] = (acc | (word << have)) & mask
            acc = word >> (width - have)
            have = _WORD - (width - have)
