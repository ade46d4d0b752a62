"""The compiled loops of `packed`; in their own file so that their compiled form can be cached on disk.

All work is done on whole blocks that stay in a core's nearest cache: LANES words, each of which holds as many residues
as fit, and the same residues without gaps. The loops have no branch inside, so that many words are done at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels._shares_jit import times
from croupier.kernels.compiled import njit

LANES = 512
_ONE = np.uint64(1)
_NONE = np.uint64(0)
_WORD = np.uint64(64)
_P = np.uint64((1 << 61) - 1)


@njit(cache=True, nogil=True)
def join(numbers: Any, bits: int, out: Any) -> None:
    """A block's residues, as many to a word as fit."""
    width, each = np.uint64(bits), 64 // bits
    mask = ~_NONE >> np.uint64(64 - bits)
    if each == 3:
        for k in range(LANES):
            one, two, three = numbers[3 * k], numbers[3 * k + 1], numbers[3 * k + 2]
            word = (np.uint64(one) & mask) | ((np.uint64(two) & mask) << width)
            out[k] = word | ((np.uint64(three) & mask) << (width + width))
    elif each == 2:
        for k in range(LANES):
            out[k] = (np.uint64(numbers[2 * k]) & mask) | ((np.uint64(numbers[2 * k + 1]) & mask) << width)
    elif each == 1:
        for k in range(LANES):
            out[k] = np.uint64(numbers[k]) & mask
    else:
        for k in range(LANES):
            word = _NONE
            for j in range(each):
                word |= (np.uint64(numbers[each * k + j]) & mask) << (np.uint64(j) * width)
            out[k] = word


@njit(cache=True, nogil=True)
def split(words: Any, bits: int, out: Any) -> None:
    """A block's residues one by one again."""
    width, each = np.uint64(bits), 64 // bits
    mask = ~_NONE >> np.uint64(64 - bits)
    if each == 3:
        for k in range(LANES):
            word = words[k]
            out[3 * k] = word & mask
            out[3 * k + 1] = (word >> width) & mask
            out[3 * k + 2] = (word >> (width + width)) & mask
    elif each == 2:
        for k in range(LANES):
            out[2 * k], out[2 * k + 1] = words[k] & mask, (words[k] >> width) & mask
    elif each == 1:
        for k in range(LANES):
            out[k] = words[k] & mask
    else:
        for k in range(LANES):
            for j in range(each):
                out[each * k + j] = (words[k] >> (np.uint64(j) * width)) & mask


@njit(cache=True, nogil=True)
def squeeze(words: Any, width: int, out: Any) -> None:
    """A block's words of so many bits, one after another without gaps."""
    if width == 64:
        out[:] = words
        return
    if width == 63:
        for group in range(LANES // 64):
            some, into = words[64 * group : 64 * group + 64], out[63 * group : 63 * group + 63]
            lows, highs = some[:63], some[1:]
            for i in range(63):
                into[i] = (lows[i] >> np.uint64(i)) | (highs[i] << np.uint64(63 - i))
        return
    acc, fill, k, wide = _NONE, _NONE, 0, np.uint64(width)
    for i in range(LANES):
        value = words[i]
        acc |= value << fill
        fill += wide
        if fill >= _WORD:
            out[k] = acc
            k += 1
            fill -= _WORD
            acc = (value >> _ONE) >> (wide - fill - _ONE)


@njit(cache=True, nogil=True)
def stretch(data: Any, width: int, out: Any) -> None:
    """A block's words of so many bits again."""
    if width == 64:
        out[:] = data
        return
    wide = np.uint64(width)
    mask = ~_NONE >> (_WORD - wide)
    if width == 63:
        for group in range(LANES // 64):
            some, into = data[63 * group : 63 * group + 63], out[64 * group : 64 * group + 64]
            into[0], into[63] = some[0] & mask, some[62] >> _ONE
            lows, highs, middle = some[:62], some[1:], into[1:63]
            for i in range(62):
                middle[i] = ((lows[i] >> np.uint64(63 - i)) | (highs[i] << np.uint64(i + 1))) & mask
        return
    acc, have, k = _NONE, _NONE, 0
    for i in range(LANES):
        if have >= wide:
            out[i] = acc & mask
            acc >>= wide
            have -= wide
        else:
            word = data[k]
            k += 1
            out[i] = (acc | (word << have)) & mask
            used = wide - have
            acc = (word >> _ONE) >> (used - _ONE)
            have = _WORD - used


@njit(cache=True, nogil=True)
def add(total: Any, row: Any, tops: Any, sums: Any, carries: Any) -> None:
    """Add packed residues, each modulo 2^bits.

    The top bit of each residue is added apart, so that no carry leaves it. One may leave a word, for a residue that
    lies in two: it cannot go further than that residue, and so does not depend on the carry that came in.
    """
    for k in range(len(total)):
        low = total[k] & ~tops[k]
        sums[k] = low + (row[k] & ~tops[k])
        carries[k + 1] = _ONE if sums[k] < low else _NONE
    for k in range(len(total)):
        total[k] = (sums[k] + carries[k]) ^ ((total[k] ^ row[k]) & tops[k])


@njit(cache=True, nogil=True)
def subtract(total: Any, row: Any, tops: Any, sums: Any, carries: Any) -> None:
    """Take packed residues away: the top bit of each lends what the others need, and is put right after."""
    for k in range(len(total)):
        low, less = total[k] | tops[k], row[k] & ~tops[k]
        sums[k] = low - less
        carries[k + 1] = _ONE if low < less else _NONE
    for k in range(len(total)):
        total[k] = (sums[k] - carries[k]) ^ ((total[k] ^ ~row[k]) & tops[k])


@njit(cache=True, nogil=True, inline="always")
def _element(value: Any) -> Any:
    """A signed number as an element of the field."""
    word = np.uint64(value) if value >= 0 else np.uint64(-(value + 1)) + _ONE
    word = (word & _P) + (word >> np.uint64(61))
    word = word - _P if word >= _P else word
    return word if value >= 0 or word == _NONE else _P - word


@njit(cache=True, nogil=True, inline="always")
def _plus(one: Any, two: Any) -> Any:
    total = one + two
    return total - _P if total >= _P else total


@njit(cache=True, nogil=True)
def _form_narrow(low: Any, high: Any, numbers: Any, bits: int) -> Any:
    """A block's residues, as the numbers nearest to 0, times the inner key modulo 2^61 - 1; 28 bits at most.

    Products of half a key with a residue are what processors do many of at a time; so many are added as 64 bits hold.
    """
    away, some, total = np.int32(32 - bits), min(len(numbers), 1 << (33 - bits)), _NONE
    for at in range(0, len(numbers), some):
        part = numbers[at : at + some]
        lows, highs = low[at : at + len(part)], high[at : at + len(part)]
        sum0, sum1 = np.int64(0), np.int64(0)
        for i in range(len(part)):
            number = np.int64(np.int32(np.int32(part[i]) << away) >> away)
            sum0 += number * np.int64(lows[i])
            sum1 += number * np.int64(highs[i])
        total = _plus(total, _plus(_element(sum0), times(_element(sum1), np.uint64(1 << 31))))
    return total


@njit(cache=True, nogil=True)
def _form_wide(low: Any, high: Any, numbers: Any, bits: int) -> Any:
    """The same for residues of more bits, one by one."""
    away, total = np.int64(64 - bits), _NONE
    for i in range(len(numbers)):
        number = np.int64(np.int64(numbers[i]) << away) >> away
        key = np.uint64(low[i]) | (np.uint64(high[i]) << np.uint64(31))
        total = _plus(total, times(key, _element(number)))
    return total


@njit(cache=True, nogil=True)
def _form(key: Any, numbers: Any, bits: int) -> Any:
    return _form_narrow(key[0], key[1], numbers, bits) if bits <= 28 else _form_wide(key[0], key[1], numbers, bits)


@njit(cache=True, nogil=True)
def lay(numbers: Any, bits: int, key: Any, outer: Any, out: Any) -> Any:
    """Residues packed, a block at a time; and their form under the key, where there is one."""
    each = 64 // bits
    block, words = LANES * each, each * bits * LANES // 64
    lanes, packed = np.empty(LANES, np.uint64), np.empty(words, np.uint64)
    total, full = _NONE, np.zeros(block, numbers.dtype)
    for number in range((len(numbers) + block - 1) // block):
        some, into = numbers[number * block : (number + 1) * block], out[number * words : (number + 1) * words]
        if len(some) < block:
            full[: len(some)] = some
            some = full
        join(some, bits, lanes)
        if len(into) < words:
            squeeze(lanes, each * bits, packed)
            into[:] = packed[: len(into)]
        else:
            squeeze(lanes, each * bits, into)
        if len(outer):
            total = _plus(total, times(_form(key, some, bits), outer[number]))
    return total


@njit(cache=True, nogil=True)
def fold(total: Any, row: Any, tops: Any, minus: bool) -> None:
    """Add packed residues to a total, or take them away, a block at a time."""
    words = len(tops)
    sums, carries = np.empty(words, np.uint64), np.zeros(words + 1, np.uint64)
    for start in range(0, len(total), words):
        part, other = total[start : start + words], row[start : start + words]
        if minus:
            subtract(part, other, tops[: len(part)], sums, carries)
        else:
            add(part, other, tops[: len(part)], sums, carries)


@njit(cache=True, nogil=True)
def spread(data: Any, bits: int, out: Any) -> None:
    """Packed residues one by one: data of whole blocks, of which `out` holds the first so many."""
    each = 64 // bits
    block, words = LANES * each, each * bits * LANES // 64
    lanes, full = np.empty(LANES, np.uint64), np.empty(block, out.dtype)
    for number in range((len(out) + block - 1) // block):
        stretch(data[number * words : (number + 1) * words], each * bits, lanes)
        some = out[number * block : (number + 1) * block]
        if len(some) < block:
            split(lanes, bits, full)
            some[:] = full[: len(some)]
        else:
            split(lanes, bits, some)


@njit(cache=True, nogil=True)
def form_packed(key: Any, outer: Any, data: Any, bits: int, kind: Any) -> Any:
    """The form of packed residues, data of whole blocks; what is past the last of them is 0."""
    each = 64 // bits
    block, words = LANES * each, each * bits * LANES // 64
    lanes, full, total = np.empty(LANES, np.uint64), np.empty(block, kind.dtype), _NONE
    for number in range(len(data) // words):
        stretch(data[number * words : (number + 1) * words], each * bits, lanes)
        split(lanes, bits, full)
        inner = _form(key, full, bits)
        total = _plus(total, times(inner, outer[number]))
    return total
