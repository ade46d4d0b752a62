"""Permute the bits inside small blocks of residues in unary, 512 blocks at a time.

The same task as `unary`, for blocks of at most `MOST` bits; `core.coins` takes whichever fits, for `release.bits` and
the servers of a mix network (`place.chain`). A block is all clients' bits of one number and one modulus. Here 512
numbers form a chunk, and each of them has a lane. For each place in a block there is a plane: 512 bits, the bit at that
place in each lane. Fisher and Yates is played on planes: for the last place, the one before, and so on, each lane
chooses one of the places up to it, and both planes swap their bits in the lanes that chose so. For every place all
planes up to it are gone through, 512 lanes at a time, which is still many times quicker than moving bits one by one, as
long as blocks are small.

Choices come from words as in `permute`: one word for several choices, refused where they would not be uniform. The
order of the draws is part of the protocol, because the same coins must give the same permutation everywhere. Chunk by
chunk, all words of all moduli are drawn first, those of a modulus batch by batch, 512 words a batch, one a lane; then,
modulus by modulus and lane by lane, fresh words for blocks of which a word was refused, which are permuted once more.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from croupier.kernels import permute
from croupier.kernels.few import few
from croupier.kernels.pack import as_words
from croupier.kernels.permute import Draw
from croupier.kernels.residues import Moduli, size, widths

Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

# Numbers that are moved at a time, and the most bits of a block: beyond, `unary` is quicker. `_lanes_jit` is written
# for these two numbers: its arrays of choices have room for no larger blocks.
LANES = 512
MOST = 1 << 10
# Planes are gone through so many at a time, by `_lanes_jit._swap`; those of a modulus are filled up to a multiple.
_TOGETHER = 16


def fit(people: int, moduli: Moduli) -> bool:
    """Whether all blocks of so many clients are small enough."""
    return people * max(widths(moduli)) <= MOST


def moved(rows: Bits, count: int, moduli: Moduli, draw: Draw, *, back: bool = False) -> Bits:
    """Rows of `count` numbers whose blocks' bits were permuted; `draw(count)` gives uniform 64-bit words.

    `back` undoes what the same draws did.
    """
    if back or ("numba" not in sys.modules and few(len(rows) * count * sum(widths(moduli)))):
        return moved_plain(rows, count, moduli, draw, back=back)
    return _moved(rows, count, moduli, draw)


def moved_plain(rows: Bits, count: int, moduli: Moduli, draw: Draw, *, back: bool = False) -> Bits:
    """The same, with every bit a byte of a NumPy array; also what undoes a move, which the compiled loops do not."""
    many, wide, people = widths(moduli), sum(widths(moduli)), len(rows)
    bits = np.unpackbits(rows, axis=1, count=count * wide, bitorder="little").reshape(people, count, wide)
    for start in range(0, count, LANES):
        words = draw(LANES * _batches(people, moduli)).reshape(-1, LANES)
        tables, refused = list[npt.NDArray[Any]](), list[npt.NDArray[np.int64]]()
        chunk, begin, at = bits[:, start : start + LANES], 0, 0
        for width in many:
            block = chunk[:, :, at : at + width].transpose(0, 2, 1).reshape(people * width, -1)
            place = np.repeat(np.arange(len(block), dtype=np.int16)[:, None], block.shape[1], 1)
            batches = len(permute.batches(len(block)))
            refused.append(_shuffled(place, words[begin : begin + batches, : block.shape[1]]))
            tables.append(place)
            begin, at = begin + batches, at + width
        at = 0
        for width, place, bad in zip(many, tables, refused, strict=True):
            for lane in bad.tolist():
                permute.again(place[:, lane : lane + 1], draw)
            block = chunk[:, :, at : at + width].transpose(0, 2, 1).reshape(people * width, -1)
            out = np.empty_like(block)
            if back:
                np.put_along_axis(out, place.astype(np.int64), block, 0)
            else:
                out = np.take_along_axis(block, place.astype(np.int64), 0)
            chunk[:, :, at : at + width] = out.reshape(people, width, -1).transpose(0, 2, 1)
            at += width
    return np.packbits(bits.reshape(people, -1), axis=1, bitorder="little")


def _batches(people: int, moduli: Moduli) -> int:
    """How many words each lane takes: one a batch, of every modulus."""
    return sum(len(permute.batches(people * width)) for width in widths(moduli))


def _shuffled(table: npt.NDArray[Any], words: Words) -> npt.NDArray[np.int64]:
    """Permute the columns, each by its column of words. Returns the columns that have a refused word."""
    lanes, half, low = np.arange(table.shape[1]), np.uint64(32), np.uint64(0xFFFFFFFF)
    bad = np.zeros(table.shape[1], bool)
    for batch, drawn in zip(permute.batches(len(table)), words, strict=True):
        rest = drawn
        for number in range(batch.high, batch.low - 1, -1):
            span = np.uint64(number)
            chosen = ((rest >> half) * span + (((rest & low) * span) >> half)) >> half
            rest = rest * span
            kept = table[number - 1].copy()
            table[number - 1] = table[chosen.astype(np.int64), lanes]
            table[chosen.astype(np.int64), lanes] = kept
        bad |= rest < np.uint64(batch.least)
    return np.flatnonzero(bad)


class _Plan(NamedTuple):
    """Where planes lie, and which choices are made in which order: what the compiled loops read."""

    # The plane of each client's (row) bit (column) of a number; and the first plane of each modulus.
    targets: Words
    bases: Words
    # A row a batch: its modulus, its highest and its lowest span; and below which remainder it refuses a word.
    steps: npt.NDArray[np.int64]
    leasts: Words
    # All planes together, with those that only fill up.
    planes: int


def _plan(people: int, moduli: Moduli) -> _Plan:
    many = widths(moduli)
    targets, bases = np.empty((people, sum(many)), np.uint64), list[int]()
    base = at = 0
    for width in many:
        bases.append(base)
        targets[:, at : at + width] = base + np.arange(people * width).reshape(people, width)
        base += -(-people * width // _TOGETHER) * _TOGETHER
        at += width
    each = [(number, batch) for number, width in enumerate(many) for batch in permute.batches(people * width)]
    steps = np.array([(number, batch.high, batch.low) for number, batch in each], np.int64).reshape(-1, 3)
    leasts = np.array([batch.least for _, batch in each], np.uint64)
    return _Plan(targets, np.array(bases, np.uint64), steps, leasts, base)


def _moved(rows: Bits, count: int, moduli: Moduli, draw: Draw) -> Bits:
    """`moved` by compiled loops, forwards only."""
    from croupier.kernels import _lanes_jit

    plan, wide = _plan(len(rows), moduli), np.uint64(sum(widths(moduli)))
    words = np.stack([as_words(row) for row in rows])
    out = np.zeros_like(words)
    planes, refused = np.zeros(8 * plan.planes, np.uint64), np.zeros((len(moduli), LANES), np.uint64)
    for start in range(0, count, LANES):
        place, some = np.uint64(start) * wide, min(LANES, count - start)
        _lanes_jit.lay_out(words, place, wide, some, plan.targets, planes)
        drawn = draw(LANES * len(plan.steps))
        if _lanes_jit.shuffle(planes, drawn, plan.bases, plan.steps, plan.leasts, refused):
            _again(planes, plan, refused[:, :some], len(rows) * np.array(widths(moduli)), draw)
        _lanes_jit.put_back(planes, plan.targets, place, wide, some, out)
    return out.view(np.uint8)[:, : size(count, moduli)]


def _again(planes: Words, plan: _Plan, refused: Words, sizes: npt.NDArray[Any], draw: Draw) -> None:
    """Permute the refused blocks once more, bit by bit: there is one in millions."""
    for number, lane in np.argwhere(refused).tolist():
        # Lane 64 a + 8 w + c lies in word w of a plane, at bit 8 c + a: see `_lanes_jit`.
        word, bit = (lane >> 3) & 7, np.uint64(8 * (lane & 7) + (lane >> 6))
        at = 8 * (int(plan.bases[number]) + np.arange(sizes[number])) + word
        column = ((planes[at] >> bit) & np.uint64(1)).astype(np.uint8)[:, None]
        permute.again(column, draw)
        planes[at] = (planes[at] & ~(np.uint64(1) << bit)) | (column[:, 0].astype(np.uint64) << bit)
