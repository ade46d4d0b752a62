"""The compiled loops of `packed`, in a file of their own so that numba is loaded only once they are needed.

Only `kernels.packed` calls them. All work is done on whole blocks that stay in a core's nearest cache: LANES words,
each of which holds as many residues as fit, and the same residues without gaps. A "form" is the secret linear form of
`packed.Key`. Where residues fill 63 or 64 bits of a word the loops have no branch inside, so that many words are done
at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels._shares_jit import times
from croupier.kernels.compiled import njit

# As `packed._LANES`.
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
def add(one: Any, two: Any, tops: Any, out: Any) -> None:
    """The sum of a block's packed residues, each modulo 2^bits.

    The top bit of each residue is added apart, so that no carry leaves it. One may leave a word, for a residue that
    lies in two: it cannot go further than that residue, and so does not depend on the carry that came in. It is made
    again from the word before, so that no word waits for another.
    """
    count = len(one)
    out[0] = ((one[0] & ~tops[0]) + (two[0] & ~tops[0])) ^ ((one[0] ^ two[0]) & tops[0])
    a, b, top, into = one[1:count], two[1:count], tops[1:count], out[1:count]
    lower_a, lower_b, lower_top = one[: count - 1], two[: count - 1], tops[: count - 1]
    for k in range(count - 1):
        low = lower_a[k] & ~lower_top[k]
        carry = _ONE if low + (lower_b[k] & ~lower_top[k]) < low else _NONE
        into[k] = ((a[k] & ~top[k]) + (b[k] & ~top[k]) + carry) ^ ((a[k] ^ b[k]) & top[k])


@njit(cache=True, nogil=True)
def _add_all(first: Any, rows: Any, start: int, tops: Any, some: Any, other: Any, out: Any) -> None:
    """A block with that block of each row added to it; on the way it lies in a core's nearest cache."""
    count, many = len(first), rows.shape[0]
    if many == 0:
        for k in range(count):
            out[k] = first[k]
        return
    # `out` may be `first`, which is written only once nothing of it is needed.
    add(first, rows[0, start : start + count], tops, some)
    for row in range(1, many - 1):
        add(some, rows[row, start : start + count], tops, other)
        some, other = other, some
    if many > 1:
        add(some, rows[many - 1, start : start + count], tops, out)
    else:
        for k in range(count):
            out[k] = some[k]


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
def _form_narrow(key: Any, lanes: Any, bits: int) -> Any:
    """A block's residues, as the numbers nearest to 0, times the inner key modulo 2^61 - 1; 28 bits at most.

    Products of half a key with a residue are what processors do many of at a time; so many are added as 64 bits hold.
    """
    some, total = min(LANES, 1 << (33 - bits)), _NONE
    down = np.int64(64 - bits)
    for j in range(64 // bits):
        up = np.int64(64 - bits * (j + 1))
        for at in range(0, LANES, some):
            part, low, high = lanes[at : at + some], key[0, j, at : at + some], key[1, j, at : at + some]
            sum0, sum1 = np.int64(0), np.int64(0)
            for k in range(len(part)):
                # That it fits 32 bits is said, so that a product is one instruction.
                number = np.int64(np.int32((np.int64(part[k]) << up) >> down))
                sum0 += number * np.int64(low[k])
                sum1 += number * np.int64(high[k])
            total = _plus(total, _plus(_element(sum0), times(_element(sum1), np.uint64(1 << 31))))
    return total


@njit(cache=True, nogil=True)
def _form_wide(key: Any, lanes: Any, bits: int) -> Any:
    """The same for residues of more bits, one by one."""
    down, total = np.int64(64 - bits), _NONE
    for j in range(64 // bits):
        up = np.int64(64 - bits * (j + 1))
        for k in range(LANES):
            number = (np.int64(lanes[k]) << up) >> down
            inner = np.uint64(key[0, j, k]) | (np.uint64(key[1, j, k]) << np.uint64(31))
            total = _plus(total, times(inner, _element(number)))
    return total


@njit(cache=True, nogil=True)
def _form(key: Any, lanes: Any, bits: int) -> Any:
    return _form_narrow(key, lanes, bits) if bits <= 28 else _form_wide(key, lanes, bits)


@njit(cache=True, nogil=True)
def cover(numbers: Any, bits: int, key: Any, outer: Any, minus: Any, plus: Any, tops: Any, out: Any) -> Any:
    """Residues packed, with rows of packed residues taken away and added.

    Returns the form of the bare residues under the key, or 0 without one. Each block goes through all of it at once.
    """
    each, words = 64 // bits, len(tops)
    block, lanes = LANES * each, np.empty(LANES, np.uint64)
    some, other, laid = np.empty(words, np.uint64), np.empty(words, np.uint64), np.empty(words, np.uint64)
    total, full = _NONE, np.zeros(block, numbers.dtype)
    for number in range((len(numbers) + block - 1) // block):
        part = numbers[number * block : (number + 1) * block]
        if len(part) < block:
            full[: len(part)] = part
            part = full
        join(part, bits, lanes)
        if len(outer):
            total = _plus(total, times(_form(key, lanes, bits), outer[number]))
        squeeze(lanes, each * bits, laid)
        at, into = number * words, out[number * words : (number + 1) * words]
        held = len(into)
        if minus.shape[0]:
            # x - y is the complement of (complement of x) + y.
            for k in range(words):
                laid[k] = ~laid[k]
            _add_all(laid[:held], minus, at, tops[:held], some[:held], other[:held], into)
            for k in range(held):
                into[k] = ~into[k]
            if plus.shape[0]:
                _add_all(into, plus, at, tops[:held], some[:held], other[:held], into)
        else:
            _add_all(laid[:held], plus, at, tops[:held], some[:held], other[:held], into)
    return total


@njit(cache=True, nogil=True)
def fold(total: Any, rows: Any, tops: Any) -> None:
    """Add rows of packed residues to a total, a block at a time."""
    words = len(tops)
    some, other = np.empty(words, np.uint64), np.empty(words, np.uint64)
    for start in range(0, len(total), words):
        into = total[start : start + words]
        held = len(into)
        _add_all(into, rows, start, tops[:held], some[:held], other[:held], into)


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
def form_packed(key: Any, outer: Any, data: Any, bits: int) -> Any:
    """The form of packed residues, data of whole blocks; what is past the last of them is 0."""
    each = 64 // bits
    words = each * bits * LANES // 64
    lanes, total = np.empty(LANES, np.uint64), _NONE
    for number in range(len(data) // words):
        stretch(data[number * words : (number + 1) * words], each * bits, lanes)
        total = _plus(total, times(_form(key, lanes, bits), outer[number]))
    return total
