"""The compiled loops of `residues`, in a file of their own so that numba is loaded only once they are needed.

Only `kernels.residues` calls them. Codes are looked up in a table where one fits the cache, and made residue by residue
where none does. `residues.encode` rounds, clamps and codes a cache full of values at a time, so that no array of
integers as long as the values is written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from croupier.kernels.compiled import njit

_ONE = np.uint64(1)
_WORD = np.uint64(64)


@intrinsic
def _ones(typing: Any, word: Any) -> Any:
    """How many bits of a word are set: one instruction where the processor has it."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), build


# Division by 0 must not raise: the check alone would keep the loop from being vectorised. Scales are never 0.
@njit(cache=True, nogil=True, error_model="numpy")
def even(values: Any, scales: Any, factor: float, unit: float, top: float, mask: int, out: Any) -> int:
    """Round half to even and clamp; of each number the bits of `mask` are kept. Returns how many were clamped."""
    clamped = 0
    if len(scales) == 1 and scales[0] == 1.0:
        # Without the division, which takes longer than all the rest.
        for i in range(len(values)):
            share = np.float64(values[i])
            whole = np.rint(min(max(share, -1.0), 1.0) * factor * unit)
            clamped += (share > 1.0) | (share < -1.0) | (whole > top) | (whole < -top)
            out[i] = np.int64(min(max(whole, -top), top)) & mask
        return clamped
    if len(scales) == 1:
        scale = scales[0]
        for i in range(len(values)):
            share = np.float64(values[i]) / scale
            whole = np.rint(min(max(share, -1.0), 1.0) * factor * unit)
            clamped += (share > 1.0) | (share < -1.0) | (whole > top) | (whole < -top)
            out[i] = np.int64(min(max(whole, -top), top)) & mask
        return clamped
    for i in range(len(values)):
        share = np.float64(values[i]) / scales[i]
        whole = np.rint(min(max(share, -1.0), 1.0) * factor * unit)
        clamped += (share > 1.0) | (share < -1.0) | (whole > top) | (whole < -top)
        out[i] = np.int64(min(max(whole, -top), top)) & mask
    return clamped


@njit(cache=True, nogil=True, error_model="numpy")
def down(values: Any, scales: Any, factor: float, unit: float, top: float, draws: Any, mask: int, out: Any) -> int:
    """Round down after adding each value's own draw: at random, or (with draws of 0) always down."""
    clamped, step, each = 0, 0 if len(scales) == 1 else 1, 0 if len(draws) == 1 else 1
    for i in range(len(values)):
        share = np.float64(values[i]) / scales[i * step]
        whole = np.floor(min(max(share, -1.0), 1.0) * factor * unit + draws[i * each] / 4294967296.0)
        clamped += (share > 1.0) | (share < -1.0) | (whole > top) | (whole < -top)
        out[i] = np.int64(min(max(whole, -top), top)) & mask
    return clamped


@njit(cache=True, nogil=True)
def spread(numbers: Any, top: int, table: Any, width: Any, out: Any) -> None:
    """Look up each number's code and write the codes one after another."""
    acc, fill, k = np.uint64(0), np.uint64(0), 0
    for i in range(len(numbers)):
        left = np.uint64(width)
        for part in range(table.shape[1]):
            code = table[np.int64(numbers[i]) + top, part]
            bits = min(left, _WORD)
            acc |= code << fill
            fill += bits
            left -= bits
            if fill >= _WORD:
                out[k] = acc
                k += 1
                fill -= _WORD
                acc = code >> (bits - fill) if fill > 0 else np.uint64(0)
    if fill > 0:
        out[k] = acc


@njit(cache=True, nogil=True)
def spread_narrow(numbers: Any, top: int, table: Any, width: int, out: Any) -> None:
    """The same where a code fits one word."""
    acc, fill, bits, k = np.uint64(0), np.uint64(0), np.uint64(width), 0
    for i in range(len(numbers)):
        code = table[numbers[i] + top]
        acc |= code << fill
        fill += bits
        if fill >= _WORD:
            out[k] = acc
            k += 1
            fill -= _WORD
            acc = code >> (bits - fill) if fill > 0 else np.uint64(0)
    if fill > 0:
        out[k] = acc


@njit(cache=True, nogil=True)
def spread_each(numbers: Any, moduli: Any, out: Any) -> None:
    """The same, where there are too many numbers for a table: residue by residue."""
    acc, fill, k = np.uint64(0), np.uint64(0), 0
    for i in range(len(numbers)):
        for j in range(len(moduli)):
            residue = numbers[i] % moduli[j]
            code, bits = (_ONE << np.uint64(residue)) - _ONE, np.uint64(moduli[j] - 1)
            acc |= code << fill
            fill += bits
            if fill >= _WORD:
                out[k] = acc
                k += 1
                fill -= _WORD
                acc = code >> (bits - fill) if fill > 0 else np.uint64(0)
    if fill > 0:
        out[k] = acc


@njit(cache=True, nogil=True)
def count(words: Any, widths: Any, out: Any) -> None:
    """Add the ones of every block to its count."""
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
            out[row, j] += _ones(value & ((_ONE << width) - _ONE))  # type: ignore[call-arg]


@njit(cache=True, nogil=True, inline="always")
def _tossed(share: int, a: Any, b: Any, c: Any) -> Any:
    """Bits that are each 1 with probability share / 8 (`share` is 2 to 6), from three words of fair random bits."""
    if share < 4:
        return a & (b | c) if share == 3 else a & b
    if share > 4:
        return a | (b & c) if share == 5 else a | b
    return a


@njit(cache=True, nogil=True)
def _toss(block: Any, size: int, ones: int, coins: Any, tossed: int) -> int:
    """Fill a block with bits that are each 1 about as often as they should be; returns how many are."""
    many = 0
    last = (size - 1) >> 6
    share = (8 * ones + size // 2) // size
    for w in range(last + 1):
        word = _tossed(share, coins[tossed], coins[tossed + 1], coins[tossed + 2])
        tossed += 3
        if w == last:
            word &= ~np.uint64(0) >> np.uint64(63 - ((size - 1) & 63))
        block[w] = word
        many += _ones(word)  # type: ignore[call-arg]
    block[last + 1] = np.uint64(0)
    return many


@njit(cache=True, nogil=True)
def _mend(block: Any, size: int, surplus: int, draws: Any, used: int, bits: int) -> int:
    """Turn over as many random ones (or zeros) as a block has too many; the draws used by now, or -1 if too few."""
    low, shift = (_ONE << np.uint64(bits)) - _ONE, np.uint64(bits)
    wrong = _ONE if surplus > 0 else np.uint64(0)
    left = abs(surplus)
    span = np.uint64(size)
    while left > 0:
        if used >= len(draws):
            return -1
        product = np.uint64(draws[used]) * span
        used += 1
        rest = product & low
        if rest < span and rest < (low + _ONE) % span:
            continue
        at = product >> shift
        # Without a branch: whether a bit is of the right kind cannot be foreseen.
        hit = (((block[at >> np.uint64(6)] >> (at & np.uint64(63))) ^ wrong) & _ONE) ^ _ONE
        block[at >> np.uint64(6)] ^= hit << (at & np.uint64(63))
        left -= int(hit)
    return used


@njit(cache=True, nogil=True)
def _place(block: Any, size: int, rare: int, draws: Any, used: int, bits: int) -> int:
    """Set so many bits of an empty block, uniformly; the draws used by now, or -1 if too few.

    It is Floyd's way to draw a subset: for each place from size - rare on one draw, up to that place.
    """
    low, shift = (_ONE << np.uint64(bits)) - _ONE, np.uint64(bits)
    for w in range((size + 63) // 64 + 1):
        block[w] = np.uint64(0)
    for last in range(size - rare, size):
        span = np.uint64(last + 1)
        while True:
            if used >= len(draws):
                return -1
            product = np.uint64(draws[used]) * span
            used += 1
            # Lemire's test; the division is needed for few draws only.
            rest = product & low
            if rest >= span or rest >= (low + _ONE) % span:
                break
        at = product >> shift
        if (block[at >> np.uint64(6)] >> (at & np.uint64(63))) & _ONE:
            at = np.uint64(last)
        block[at >> np.uint64(6)] |= _ONE << (at & np.uint64(63))
    return used


@njit(cache=True, nogil=True)
def _hand_out(block: Any, width: int, flip: Any, ends: Any, words: Any, out: Any) -> None:
    """Append each row's bits of a block, turned over where `flip` says so; `ends` holds each row's last bits.

    A row of `ends` is the bits that do not fill a word yet, and how many they are.
    """
    mask = (_ONE << np.uint64(width)) - _ONE
    for who in range(out.shape[0]):
        start = np.uint64(who * width)
        word, off = start >> np.uint64(6), start & np.uint64(63)
        piece = block[word] >> off
        if off > 0:
            piece |= block[word + _ONE] << (_WORD - off)
        piece = (piece ^ flip) & mask
        ends[who, 0] |= piece << ends[who, 1]
        ends[who, 1] += np.uint64(width)
        if ends[who, 1] >= _WORD:
            out[who, words[who]] = ends[who, 0]
            words[who] += 1
            ends[who, 1] -= _WORD
            ends[who, 0] = piece >> (np.uint64(width) - ends[who, 1]) if ends[who, 1] > 0 else np.uint64(0)


@njit(cache=True, nogil=True)
def scatter(counts: Any, widths: Any, draws: Any, coins: Any, least: int, bits: int, out: Any) -> int:
    """Scatter each block's ones uniformly over all rows and places; the number of draws used, or -1 if too few.

    Draws are words of so many `bits`. A block of `least` bits or more, with many ones and zeros, is tossed from
    `coins`, each bit alike, and then bits of the kind that is too many are turned over, one random one after another.
    Of any other block the smaller of ones and zeros is placed.
    """
    used, tossed = 0, 0
    people = out.shape[0]
    words, ends = np.zeros(people, np.int64), np.zeros((people, 2), np.uint64)
    block = np.zeros(people * widths.max() // 64 + 2, np.uint64)
    for row in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            size = widths[j] * people
            ones = counts[row, j]
            rare = min(ones, size - ones)
            flip = np.uint64(0)
            if size >= least and 4 * rare >= size:
                many = _toss(block, size, ones, coins, tossed)
                tossed += 3 * (((size - 1) >> 6) + 1)
                used = _mend(block, size, many - ones, draws, used, bits)
            else:
                used = _place(block, size, rare, draws, used, bits)
                if rare != ones:
                    flip = ~np.uint64(0)
            if used < 0:
                return -1
            _hand_out(block, widths[j], flip, ends, words, out)
    for who in range(people):
        if ends[who, 1] > 0:
            out[who, words[who]] = ends[who, 0]
    return used


@njit(cache=True, nogil=True)
def join(residues: Any, moduli: Any, lifts: Any, product: int, out: Any) -> None:
    """For each row the number nearest to 0 that has these residues."""
    half = product // 2
    for i in range(residues.shape[0]):
        total = 0
        for j in range(residues.shape[1]):
            residue = np.int64(residues[i, j])
            if residue >= moduli[j]:
                residue %= moduli[j]
            total += residue * lifts[j]
        value = total % product
        out[i] = value - product if value > half else value
