"""Numbers as residues in unary: rounding, bits, counts, scattering, and back. Compiled loops with plain references.

The layout is fixed: numbers one after another without gaps; a number is its residues in the order of the moduli; a
residue r of modulus m is m - 1 bits, r ones first. Bits fill bytes from the lowest. A block is all clients' bits of one
number and one modulus, m - 1 from each. `encode.grid` and `encode.fixed` round by it, `encode.residues` encodes and
decodes, `release.bits` counts, and scatters through `core.coins`, `core.wire` and the mix chain (`place.chain`) share
its layout, and `release.counted_ones` reads for the audit what counts tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from croupier.kernels.few import few
from croupier.kernels.pack import as_words
from croupier.kernels.threads import over

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Moduli = tuple[int, ...]
Words = npt.NDArray[np.uint32]
Rounding = Literal["even", "stochastic", "floor"]

# So many numbers end on a whole word, whatever their width; and fewer than `_FEW` are done plainly.
_WHOLE = 64
_FEW = 1 << 10
# Numbers that fit a processor's cache, codes and all.
_CHUNK = 1 << 14
_TABLE = 1 << 22  # The most numbers whose codes are kept in a table; of more, codes are made residue by residue.
# Blocks from this size on are tossed and mended, where that takes fewer draws than placing every one.
_TOSS = 32
_STRIP = 1 << 11  # Numbers whose draws and bits fit a cache; they end on a whole word.
# Up to here a draw of 16 bits is refused rarely enough.
_HALF = 1 << 12


def widths(moduli: Moduli) -> Moduli:
    """Bits of each residue."""
    return tuple(m - 1 for m in moduli)


def size(count: int, moduli: Moduli) -> int:
    """Bytes that so many numbers take."""
    return (count * sum(widths(moduli)) + 7) // 8


@dataclass(frozen=True)
class Quantiser:
    """How values become integers: value / scale, clamped to -1..1, * factor * unit, rounded, clamped to -top and top.

    `scales` is one number or one for each value. Values that are clamped are counted.
    """

    scales: Floats
    unit: int
    top: int
    factor: float = 1.0
    rounding: Rounding = "even"

    def part(self, start: int, stop: int) -> Quantiser:
        """The same for some of the values."""
        return self if len(self.scales) == 1 else replace(self, scales=self.scales[start:stop])


def whole(values: npt.NDArray[Any], grid: Quantiser, draws: Words) -> tuple[Ints, int]:
    """The integers, and how many had to be clamped. `draws` are 32-bit words for rounding at random."""
    out, clamped = np.empty(len(values), np.int64), list[int]()
    over(len(values), 1, lambda a, b: clamped.append(_whole(values[a:b], grid.part(a, b), draws[a:b], out[a:b])))
    return out, sum(clamped)


def wrapped(
    values: npt.NDArray[Any], grid: Quantiser, draws: Words, bits: int, last: Sequence[int] = ()
) -> tuple[npt.NDArray[Any], int]:
    """The same as residues of 2^bits, in the smaller of two types that holds them; the numbers of `last` follow."""
    out, clamped, mask = (
        np.empty(len(values) + len(last), np.int32 if bits <= 31 else np.int64),
        list[int](),
        (1 << bits) - 1,
    )
    out[len(values) :] = last
    over(len(values), 1, lambda a, b: clamped.append(_whole(values[a:b], grid.part(a, b), draws[a:b], out[a:b], mask)))
    return out, sum(clamped)


def _whole(values: npt.NDArray[Any], grid: Quantiser, draws: Words, out: npt.NDArray[Any], mask: int = -1) -> int:
    if few(len(values)):
        found, clamped = whole_plain(values, grid, draws)
        out[:] = found & mask
        return clamped
    from croupier.kernels import _residues_jit as jit

    numbers = (grid.factor, float(grid.unit), float(grid.top))
    if grid.rounding == "even":
        return int(jit.even(values, grid.scales, *numbers, mask, out))
    words = draws if grid.rounding == "stochastic" else np.zeros(1, np.uint32)
    return int(jit.down(values, grid.scales, *numbers, words, mask, out))


def whole_plain(values: npt.NDArray[Any], grid: Quantiser, draws: Words) -> tuple[Ints, int]:
    """As `whole`, by NumPy."""
    share = values.astype(np.float64) / grid.scales
    scaled = np.clip(share, -1, 1) * grid.factor * float(grid.unit)
    added = draws / 4294967296.0 if grid.rounding == "stochastic" else 0.0
    rounded = np.rint(scaled) if grid.rounding == "even" else np.floor(scaled + added)
    clamped = int(((np.abs(share) > 1) | (np.abs(rounded) > grid.top)).sum())
    return np.clip(rounded, -grid.top, grid.top).astype(np.int64), clamped


def encode(values: npt.NDArray[Any], grid: Quantiser, draws: Words, moduli: Moduli) -> tuple[Bytes, int]:
    """The bits of the values, and how many had to be clamped."""
    # A cache full at a time, so that no array of integers as long as the values is ever made.
    if len(values) < _FEW:
        numbers, clamped = whole(values, grid, draws)
        return spread_plain(numbers, moduli), clamped
    bits, counted, write = sum(widths(moduli)), list[int](), _writer(grid.top, moduli)
    out = np.empty((len(values) * bits + 63) // 64, np.uint64)

    def part(start: int, stop: int) -> None:
        numbers = np.empty(_CHUNK, np.int64)
        for a in range(start, stop, _CHUNK):
            b = min(stop, a + _CHUNK)
            counted.append(_whole(values[a:b], grid.part(a, b), draws[a:b], numbers[: b - a]))
            write(numbers[: b - a], out[a * bits // 64 : -(-b * bits // 64)])

    over(len(values), _WHOLE, part)
    return out.view(np.uint8)[: size(len(values), moduli)], sum(counted)


def spread(numbers: Ints, top: int, moduli: Moduli) -> Bytes:
    """The bits of numbers within -top and top."""
    if len(numbers) < _FEW:
        return spread_plain(numbers, moduli)
    bits, write = sum(widths(moduli)), _writer(top, moduli)
    out = np.empty((len(numbers) * bits + 63) // 64, np.uint64)
    over(len(numbers), _WHOLE, lambda a, b: write(numbers[a:b], out[a * bits // 64 : -(-b * bits // 64)]))
    return out.view(np.uint8)[: size(len(numbers), moduli)]


def _writer(top: int, moduli: Moduli) -> Callable[[Ints, npt.NDArray[np.uint64]], None]:
    """What writes the codes of numbers into words: from a table where one is small enough."""
    from croupier.kernels import _residues_jit as jit

    if 2 * top + 1 > _TABLE:
        many = np.array(moduli, np.int64)
        return lambda numbers, out: jit.spread_each(numbers, many, out)
    table, bits = _table(top, moduli), sum(widths(moduli))
    if table.shape[1] == 1:
        return lambda numbers, out: jit.spread_narrow(numbers, top, table[:, 0], bits, out)
    return lambda numbers, out: jit.spread(numbers, top, table, bits, out)


def spread_plain(numbers: Ints, moduli: Moduli) -> Bytes:
    """The same bit by bit, some numbers at a time."""
    parts = []
    step = 1 << 16
    for start in range(0, len(numbers), step):
        some = numbers[start : start + step, None]
        parts += [np.concatenate([np.arange(m - 1) < some % m for m in moduli], 1).reshape(-1)]
    bits = np.concatenate(parts) if parts else np.zeros(0, bool)
    return np.packbits(bits, bitorder="little")


@lru_cache(maxsize=8)
def _table(top: int, moduli: Moduli) -> npt.NDArray[np.uint64]:
    """The code of every number, in 64-bit words."""
    numbers = np.arange(-top, top + 1, dtype=np.int64)
    code = np.zeros((len(numbers), -(-sum(widths(moduli)) // 64)), np.uint64)
    at = 0
    for m in moduli:
        ones = (np.uint64(1) << (numbers % m).astype(np.uint64)) - np.uint64(1)
        word, off = divmod(at, 64)
        code[:, word] |= ones << np.uint64(off)
        if off and off + m - 1 > 64:
            code[:, word + 1] |= ones >> np.uint64(64 - off)
        at += m - 1
    return code


def counts(rows: Sequence[Bytes], count: int, moduli: Moduli) -> Ints:
    """How many ones each block of the rows has: a table of numbers (rows) by moduli (columns)."""
    out = np.zeros((count, len(moduli)), np.int64)
    for row in rows:
        add(row, out, moduli)
    return out


def add(row: Bytes, out: Ints, moduli: Moduli) -> None:
    """Add one client's ones to the counts of its blocks."""
    if out.size < _FEW:
        out += counts_plain([row], len(out), moduli)
        return
    from croupier.kernels import _residues_jit as jit

    bits, many = sum(widths(moduli)), np.array(widths(moduli), np.int64)
    words = as_words(row)
    over(len(out), _WHOLE, lambda a, b: jit.count(words[a * bits // 64 :], many, out[a:b]))


def counts_plain(rows: Sequence[Bytes], count: int, moduli: Moduli) -> Ints:
    """The same, bit by bit."""
    stops = np.cumsum(widths(moduli))
    wide = int(stops[-1])
    total = np.zeros((count, len(moduli)), np.int64)
    for row in rows:
        bits = np.unpackbits(row, count=count * wide, bitorder="little").reshape(count, wide)
        parts = np.split(bits, stops[:-1], 1)
        total += np.stack([part.sum(1, dtype=np.int64) for part in parts], 1)
    return total


def scatter(
    ones: Ints, people: int, moduli: Moduli, draw: Callable[[int, int], Any], least: int = _TOSS
) -> npt.NDArray[np.uint8]:
    """As many rows as people, in which each block's ones lie in a uniformly random arrangement.

    A uniform permutation of a block's bits gives every arrangement of its ones the same probability, so that the
    arrangement is drawn, and not the permutation. `draw(count, bits)` gives words of 16, 32 or 64 bits. Blocks of
    `least` bits or more, a quarter ones and a quarter zeros at least, are tossed (each bit at random) and mended (some
    bits of the kind that is too many turned over): no place is treated unlike another, and so no arrangement either.
    """
    from croupier.kernels import _residues_jit as jit

    many = np.array(widths(moduli), np.int64)
    largest, wide = people * int(many.max()), int(many.sum())
    bits = 16 if largest <= _HALF else 32
    out = np.zeros((people, (len(ones) * wide + 63) // 64), np.uint64)
    # A strip at a time, so that draws are used while a processor still holds them.
    for a in range(0, len(ones), _STRIP):
        some = ones[a : a + _STRIP]
        part = out[:, a * wide // 64 : -(-(a + len(some)) * wide // 64)]
        need = sum(float(_need(people * w, least)[some[:, j]].sum()) for j, w in enumerate(many.tolist()))
        tosses = 3 * len(some) * sum(-(-people * w // 64) for w in many.tolist() if people * w >= least)
        more, done = 1.02, -1
        while done < 0:
            # Enough for nearly always. Should they be used up, the strip is drawn afresh: how many are needed does not
            # depend on where the ones lie, so that this favours nothing.
            coins = draw(tosses, 64)
            words = draw(int(more * need + 16 * math.sqrt(need)) + 64, bits)
            done = jit.scatter(some, many, words, coins, least, bits, part)
            more *= 2
    return out.view(np.uint8)[:, : size(len(ones), moduli)]


@lru_cache(maxsize=64)
def _need(size: int, least: int) -> Floats:
    """About how many draws a block of `size` bits takes, for each number of ones that it may have."""
    rare = np.minimum(np.arange(size + 1), size - np.arange(size + 1))
    placed = rare * (1 + size / (1 << 16))
    # A toss is off by chance and by the rounding of its odds to eighths; for each bit too many it then takes about
    # size / rare draws to meet one of that kind. In `placed` the second term is for draws that are refused.
    odds = np.clip((8 * np.arange(size + 1) + size // 2) // size, 2, 6) / 8
    off = np.abs(odds * size - np.arange(size + 1))
    mended = (off + 0.5 * np.sqrt(size * odds * (1 - odds))) * size / np.maximum(rare, 1)
    need: Floats = np.where((size >= least) & (4 * rare >= size), mended, placed).astype(np.float64)
    return need


def scatter_plain(
    ones: Ints, people: int, moduli: Moduli, place: Callable[[int, int], Sequence[int]]
) -> npt.NDArray[np.uint8]:
    """The same, block by block: `place(size, count)` says where a block's ones lie."""
    columns = []
    for row in ones:
        for m, count in zip(moduli, row.tolist(), strict=True):
            block = np.zeros(people * (m - 1), np.uint8)
            block[list(place(len(block), count))] = 1
            columns.append(block.reshape(people, m - 1))
    return np.packbits(np.concatenate(columns, 1), axis=1, bitorder="little")


def join(residues: npt.NDArray[Any], moduli: Moduli) -> Ints:
    """The numbers nearest to 0 that have these residues, or these counts of ones. By the Chinese remainder theorem."""
    product = math.prod(moduli)
    if len(residues) < _FEW or product * sum(moduli) >= 1 << 63:
        return join_plain(residues, moduli)
    from croupier.kernels import _residues_jit as jit

    lifts = np.array([product // m * pow(product // m, -1, m) for m in moduli], np.int64)
    many, out = np.array(moduli, np.int64), np.empty(len(residues), np.int64)
    over(len(residues), 1, lambda a, b: jit.join(residues[a:b], many, lifts, product, out[a:b]))
    return out


def join_plain(residues: npt.NDArray[Any], moduli: Moduli) -> Ints:
    """The same in mixed radix (Garner): no number on the way exceeds the product (below 2^62) or a modulus squared."""
    value, base = np.zeros(len(residues), np.int64), 1
    for j, m in enumerate(moduli):
        digit = (residues[:, j].astype(np.int64) - value) % m * pow(base, -1, m) % m if base > 1 else residues[:, j] % m
        value = value + digit.astype(np.int64) * base
        base *= m
    return np.where(value > base // 2, value - base, value)
