"""Numbers of few bits, one after another without gaps, lowest bit first: a compiled loop and its plain reference.

A number modulo 2^21 then travels in 21 bits: `core.wire` packs and unpacks by it every field of a message that names
such widths. Rows may have columns of different widths, which repeat from row to row. `kernels.packed` takes the plain
form for short vectors, and other kernels `as_words`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.few import few
from croupier.kernels.threads import over

Ints = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

# So many rows end on a whole word, whatever their width: threads share the work at multiples of it.
_WHOLE = 64
# Rows that are unpacked at a time.
_STEP = 1 << 14


def size(rows: int, widths: tuple[int, ...]) -> int:
    """How many bytes that many rows take."""
    return (rows * sum(widths) + 7) // 8


def pack(values: Ints, widths: tuple[int, ...]) -> Bytes:
    """Rows of values, each in as many bits (1 to 63) as its column has. Values must fit."""
    rows = values.reshape(-1, len(widths))
    if few(rows.size):
        return pack_plain(rows, widths)
    from croupier.kernels import _pack_jit

    bits, many = sum(widths), np.array(widths, np.int64)
    out = np.empty((len(rows) * bits + 63) // 64, np.uint64)
    if len(widths) == 1:
        flat = rows[:, 0]
        over(len(flat), _WHOLE, lambda a, b: _pack_jit.pack_one(flat[a:b], bits, out[a * bits // 64 :]))
    else:
        over(len(rows), _WHOLE, lambda a, b: _pack_jit.pack(rows[a:b], many, out[a * bits // 64 :]))
    return out.view(np.uint8)[: size(len(rows), widths)]


def unpack(data: Bytes, rows: int, widths: tuple[int, ...], dtype: Any = np.int64) -> Ints:
    """The values of so many rows, as `pack` was given them."""
    if few(rows * len(widths)):
        return unpack_plain(data, rows, widths).astype(dtype)
    from croupier.kernels import _pack_jit

    bits, many = sum(widths), np.array(widths, np.int64)
    out = np.empty((rows, len(widths)), dtype)
    flat = out[:, 0]

    def piece(start: int, stop: int) -> None:
        # A little at a time: what is copied to whole words stays in the cache until it is read.
        for a in range(start, stop, _STEP):
            b = min(stop, a + _STEP)
            words = as_words(data[a * bits // 8 : -(-b * bits // 8)])
            if len(widths) == 1:
                _pack_jit.unpack_one(words, bits, flat[a:b])
            else:
                _pack_jit.unpack(words, many, out[a:b])

    over(rows, _WHOLE, piece)
    return out


def as_words(data: Bytes) -> npt.NDArray[np.uint64]:
    """The same bytes as 64-bit words, with a word to spare after them."""
    words = np.zeros(len(data) // 8 + 2, np.uint64)
    words.view(np.uint8)[: len(data)] = data
    return words


def pack_plain(values: Ints, widths: tuple[int, ...]) -> Bytes:
    """The same, bit by bit."""
    rows = values.reshape(-1, len(widths)).astype(np.uint64)
    parts = [(rows[:, j, None] >> np.arange(w, dtype=np.uint64)) & np.uint64(1) for j, w in enumerate(widths)]
    return np.packbits(np.concatenate(parts, 1).astype(np.uint8).reshape(-1), bitorder="little")


def unpack_plain(data: Bytes, rows: int, widths: tuple[int, ...]) -> Ints:
    """The same, bit by bit."""
    wide = sum(widths)
    bits = np.unpackbits(data, count=rows * wide, bitorder="little").reshape(rows, wide).astype(np.int64)
    stops = np.cumsum(widths)
    return np.stack(
        [bits[:, e - w : e] @ (1 << np.arange(w, dtype=np.int64)) for e, w in zip(stops, widths, strict=True)], 1
    )
