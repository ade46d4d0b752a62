"""The compiled loops of `lanes`, in a file of their own so that numba is loaded only once they are needed.

`lanes._moved` alone calls them: `lay_out` turns bits of rows into planes, `shuffle` permutes planes lane by lane, and
`put_back` turns planes into rows again. A vector is eight 64-bit words; a plane is one vector, 512 bits, one a lane.

Lane k = 64 a + 8 w + c (w and c below 8) lies in word w of a plane, at bit 8 c + a. The reason is how choices become
planes. They are made as bytes, one a lane, so that 512 of them are eight vectors, and the choice of lane k is byte c of
word w of vector a. `_bits` then exchanges the number of the vector, a, with the place of a bit in its byte: bit e of
that choice goes to vector e, the plane of all bits e, and there to word w, bit 8 c + a.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.kernels._eight import (
    below,
    both,
    either,
    left,
    load,
    plus,
    right,
    spread,
    store,
    store_bytes,
    times,
    xor,
    zeros,
)
from croupier.kernels.compiled import njit

_U = np.uint64
_ALL = _U(0xFFFFFFFFFFFFFFFF)
_HALF, _LOW = _U(32), _U(0xFFFFFFFF)
_SIX, _LAST, _WORD = _U(6), _U(63), _U(64)
_EIGHT, _LANES = _U(8), _U(512)


@njit(cache=True, nogil=True)
def _trade(planes: Any, count: Any, step: Any, mask: Any) -> None:
    """Exchange one binary digit of the number of a vector with that of the place of a bit in its word.

    The digit is the one that counts `step`, a power of two; `count` vectors take part. `mask` has the places in a word
    whose digit is 0. The bit at place p + step of vector v changes places with the one at place p of vector v + step.
    """
    bits, number = spread(mask), _U(0)
    while number < count:
        low, high = load(planes, _EIGHT * number), load(planes, _EIGHT * (number + step))
        moved = both(xor(right(low, step), high), bits)
        store(planes, _EIGHT * (number + step), xor(high, moved))
        store(planes, _EIGHT * number, xor(low, left(moved, step)))
        number += _U(1)
        if number & step:
            number += step


@njit(cache=True, nogil=True)
def _turn(planes: Any) -> None:
    """Transpose bits: in each of the eight words, bit b of vector v (of 64) goes to bit v of vector b."""
    step, mask = _U(32), _LOW
    while step:
        _trade(planes, _WORD, step, mask)
        step >>= _U(1)
        mask ^= mask << step


@njit(cache=True, nogil=True)
def lay_out(words: Any, place: Any, wide: Any, count: Any, targets: Any, planes: Any) -> None:
    """The bits of `count` numbers of each row, from bit `place` on, to the planes that `targets` names.

    A number has `wide` bits in each row; targets[r, b] is the plane of bit b of row r (`lanes._Plan`). At most 64 bits
    of 512 numbers are transposed at a time.
    """
    near = np.empty(512, np.uint64)
    for row in range(words.shape[0]):
        line, bit = words[row], _U(0)
        while bit < wide:
            some = min(_WORD, wide - bit)
            near[:] = 0
            for lane in range(count):
                k = _U(lane)
                at = place + k * wide + bit
                word, shift = at >> _SIX, at & _LAST
                value = line[word] >> shift
                if shift:
                    value |= line[word + _U(1)] << (_WORD - shift)
                near[_place(k)] = value
            _turn(near)
            for b in range(some):
                store(planes, _EIGHT * targets[row, bit + b], load(near, _EIGHT * b))
            bit += _WORD


@njit(cache=True, nogil=True)
def put_back(planes: Any, targets: Any, place: Any, wide: Any, count: Any, words: Any) -> None:
    """The planes' bits back to the rows that `lay_out` took them from, here into words that are 0 there."""
    near = np.empty(512, np.uint64)
    for row in range(words.shape[0]):
        line, bit = words[row], _U(0)
        while bit < wide:
            some = min(_WORD, wide - bit)
            near[:] = 0
            for b in range(some):
                store(near, _EIGHT * b, load(planes, _EIGHT * targets[row, bit + b]))
            _turn(near)
            for lane in range(count):
                k = _U(lane)
                at = place + k * wide + bit
                word, shift = at >> _SIX, at & _LAST
                value = near[_place(k)]
                line[word] |= value << shift
                if shift:
                    line[word + _U(1)] |= value >> (_WORD - shift)
            bit += _WORD


@njit(cache=True, nogil=True)
def _place(lane: Any) -> Any:
    """Which word of 64 vectors a lane's bits are written to, so that `_turn` brings them to its place in the planes."""
    a, w, c = lane >> _SIX, (lane >> _U(3)) & _U(7), lane & _U(7)
    return _WORD * c + _EIGHT * a + w


@njit(cache=True, nogil=True)
def _digits(rest: Any, number: Any, low: Any, high: Any) -> None:
    """Every lane's next choice, below `number`; the formula is in `permute`.

    A lane's rest times `number` is the choice times 2^64, plus the new rest. The choice's lower byte goes to `low`, its
    upper one, where there can be one, to `high`. Products have up to 96 bits and are made of halves.
    """
    span, bits, k = spread(number), spread(_LOW), _U(0)
    while k < _LANES:
        word = load(rest, k)
        upper = plus(times(right(word, _HALF), span), right(times(both(word, bits), span), _HALF))
        digit = right(upper, _HALF)
        store_bytes(low, k, digit)
        if number > _U(256):
            store_bytes(high, k, right(digit, _EIGHT))
        store(rest, k, times(word, span))
        k += _EIGHT


@njit(cache=True, nogil=True)
def _bits(planes: Any, first: Any) -> None:
    """Eight vectors of bytes, one a lane, as planes, the lowest bits first (see above)."""
    some = planes[first:]
    _trade(some, _EIGHT, _U(4), _U(0x0F0F0F0F0F0F0F0F))
    _trade(some, _EIGHT, _U(2), _U(0x3333333333333333))
    _trade(some, _EIGHT, _U(1), _U(0x5555555555555555))


@njit(cache=True, nogil=True)
def _marks(planes: Any, first: Any, count: Any, out: Any) -> None:
    """For each number of `count` bits a plane of the lanes that have it; its bits are in plane `first` and the next."""
    store(out, _U(0), spread(_ALL))
    many = _U(1)
    for b in range(count):
        here = load(planes, _EIGHT * (first + _U(b)))
        e = _U(0)
        while e < many:
            lanes = load(out, _EIGHT * e)
            yes = both(lanes, here)
            store(out, _EIGHT * (e + many), yes)
            store(out, _EIGHT * e, xor(lanes, yes))
            e += _U(1)
        many <<= _U(1)


@njit(cache=True, nogil=True)
def _swap(planes: Any, last: Any, upper: Any, lower: Any) -> None:
    """Swap the bits of plane `last` with those of the plane that each lane chose, of the planes up to it.

    `upper` and `lower` have the planes of lanes that chose 16 `high` + `low`, by `high` and by `low`. Up to 15 planes
    beyond the last are read, too, which no lane chose: `lanes._plan` keeps room for them (`_TOGETHER`).
    """
    mine, change, high = load(planes, _EIGHT * last), zeros(), _U(0)
    while high <= last >> _U(4):
        lanes, at = load(upper, _EIGHT * high), _U(128) * high
        for low in range(16):
            p = at + _EIGHT * _U(low)
            theirs = load(planes, p)
            move = both(xor(theirs, mine), both(lanes, load(lower, _EIGHT * _U(low))))
            store(planes, p, xor(theirs, move))
            change = xor(change, move)
        high += _U(1)
    store(planes, _EIGHT * last, xor(mine, change))


@njit(cache=True, nogil=True)
def shuffle(planes: Any, words: Any, bases: Any, steps: Any, leasts: Any, refused: Any) -> int:
    """Permute the planes of each modulus, lane by lane, as words say; `lanes._Plan` says what the other arguments are.

    Marks in `refused`, by modulus and lane, where a word was refused, and returns the number of marks. Lanes behind the
    last number are marked as well; `lanes` leaves them out.
    """
    # Choices are below `lanes.MOST`, 2^10: two bytes a lane, and six bits (64 planes) above the lowest four (16).
    rest, choice = np.empty(512, np.uint64), np.zeros(128, np.uint64)
    low, high = choice[:64].view(np.uint8), choice[64:].view(np.uint8)
    upper, lower = np.empty(512, np.uint64), np.empty(128, np.uint64)
    refused[:] = 0
    for g in range(len(steps)):
        modulus = steps[g, 0]
        some = planes[_EIGHT * bases[modulus] :]
        rest[:] = words[512 * g : 512 * g + 512]
        for number in range(steps[g, 1], steps[g, 2] - 1, -1):
            last, count = _U(number - 1), 0
            _digits(rest, _U(number), low, high)
            _bits(choice, 0)
            if number > 256:
                _bits(choice, 64)
            while (last >> _U(4)) >> _U(count):
                count += 1
            _marks(choice, _U(0), 4, lower)
            _marks(choice, _U(4), count, upper)
            _swap(some, last, upper, lower)
        _refuse(rest, leasts[g], refused[modulus])
    return int(refused.sum())


@njit(cache=True, nogil=True)
def _refuse(rest: Any, least: Any, refused: Any) -> None:
    """Mark the lanes whose rest is too small."""
    limit, k = spread(least), _U(0)
    while k < _LANES:
        store(refused, k, either(load(refused, k), below(load(rest, k), limit)))
        k += _EIGHT
