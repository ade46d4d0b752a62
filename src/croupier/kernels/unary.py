"""Permute the bits inside blocks of residues in unary: compiled loops and their plain reference.

A block is all clients' bits of one number and one modulus, m - 1 from each client (see `kernels.residues`). Unlike
counting ones and scattering them again, moving every bit works on shares of bits too: servers that cannot read them can
permute them. Here the bits of a strip of numbers are laid out as a table, one column a block, so that what permutes
columns permutes blocks, and are put back. Small blocks are moved side by side, several times quicker (`lanes`).

`core.coins` calls it where blocks are too large for `lanes`, for `release.bits` and the servers of a mix network
(`place.chain`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.pack import as_words
from croupier.kernels.residues import Moduli, size, widths

Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Permute = Callable[[npt.NDArray[Any]], None]

# Numbers whose bits are laid out at a time: they stay near the processor, and end on a whole word. Part of the
# protocol: it fixes which draw moves which bit.
STRIP = 1 << 11
# Tables of fewer bits are laid out by NumPy.
_FEW = 1 << 10


def moved(rows: Bits, count: int, moduli: Moduli, permute: Permute, *, back: bool = False) -> Bits:
    """Rows of `count` numbers whose blocks' bits were permuted; `permute` permutes each column of a table in place.

    `back` undoes what the same draws did.
    """
    many, wide = widths(moduli), sum(widths(moduli))
    words = np.stack([as_words(row) for row in rows])
    out = np.zeros_like(words)
    for start in range(0, count, STRIP):
        some = min(STRIP, count - start)
        at = start * wide
        for width in many:
            table = _laid_out(words, at, wide, width, some)
            if back:
                table = _undone(table, permute)
            else:
                permute(table)
            _put_back(table, at, wide, width, out)
            at += width
    return out.view(np.uint8)[:, : size(count, moduli)]


def moved_plain(rows: Bits, count: int, moduli: Moduli, permute: Permute) -> Bits:
    """The same forwards, with every bit a byte of a NumPy array."""
    many, wide = widths(moduli), sum(widths(moduli))
    bits = np.unpackbits(rows, axis=1, count=count * wide, bitorder="little").reshape(len(rows), count, wide)
    for start in range(0, count, STRIP):
        at, strip = 0, slice(start, start + STRIP)
        for width in many:
            block = bits[:, strip, at : at + width]
            table = np.ascontiguousarray(block.transpose(0, 2, 1)).reshape(len(rows) * width, -1)
            permute(table)
            bits[:, strip, at : at + width] = table.reshape(len(rows), width, -1).transpose(0, 2, 1)
            at += width
    return np.packbits(bits.reshape(len(rows), -1), axis=1, bitorder="little")


def _undone(table: Bits, permute: Permute) -> Bits:
    """The table as it was before `permute`: permuting the numbers of places shows where each bit came from."""
    places = np.repeat(np.arange(len(table), dtype=np.int64)[:, None], table.shape[1], 1)
    permute(places)
    out = np.empty_like(table)
    np.put_along_axis(out, places, table, 0)
    return out


def _laid_out(words: Words, at: int, wide: int, width: int, count: int) -> Bits:
    """One column a block: the bits of the first client, then of the second, and so on."""
    if len(words) * width * count < _FEW:
        place = at + wide * np.arange(count)[None, :] + np.arange(width)[:, None]
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        return bits[:, place].reshape(len(words) * width, count)
    from croupier.kernels._unary_jit import lay_out

    out = np.empty((len(words) * width, count), np.uint8)
    lay_out(words, at, wide, width, out)
    return out


def _put_back(table: Bits, at: int, wide: int, width: int, out: Words) -> None:
    """The bits of a table to where they were laid out from; `out` is 0 there."""
    if table.size < _FEW:
        place = at + wide * np.arange(table.shape[1])[None, :] + np.arange(width)[:, None]
        for row, bits in zip(out, table.reshape(len(out), width, -1).astype(np.uint64), strict=True):
            np.bitwise_or.at(row, place // 64, bits << (place % 64).astype(np.uint64))
        return
    from croupier.kernels._unary_jit import put_back

    put_back(table, at, wide, width, out)
