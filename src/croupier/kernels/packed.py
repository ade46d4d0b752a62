"""Residues of 2^bits as they travel, one after another without gaps: masked, added and tagged a cache full at a time.

What a client of sum servers or of masks does to its update, and what servers do to shares: `mpc.shares` and
`place.servers` call it. The residues of a vector are added where they lie in the packed words, so that nobody unpacks
them before the sum is read. Compiled loops, with plain references whose names end in `_plain`, for short vectors, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels import pack as packing
from croupier.kernels.few import few
from croupier.kernels.shares import P, Words
from croupier.kernels.threads import over

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[Any]
# Writes the next so many uniform residues into words, packed.
Draw = Callable[[Words, int], None]
# Opens such draws at a residue, which is the first of a block.
Source = Callable[[int], Draw]

# A block's words, of which each holds as many whole residues as fit; packed without gaps a block ends on a word, too.
_LANES = 512
# Residues of one pass, about, counting all that is drawn for them: they stay in a core's own cache.
_PASS = 1 << 19
# Vectors that are drawn before they are added.
_AT_ONCE = 8
_own = threading.local()


def size(count: int, bits: int) -> int:
    """Bytes of so many residues."""
    return (count * bits + 7) // 8


def block(bits: int) -> int:
    """Residues of a block."""
    return _LANES * (64 // bits)


def dtype(bits: int) -> Any:
    """The smaller of two types that holds a residue."""
    return np.int32 if bits <= 31 else np.int64


@dataclass(frozen=True)
class Key:
    """A secret linear form, of which `mpc.tags` makes tags: residue i of block j counts inner[i] * outer[j] times.

    It is taken modulo 2^61 - 1. The inner part lies in `halves`, of 31 and 30 bits; blocks are those of `block`.
    """

    halves: npt.NDArray[np.int32] = field(repr=False)
    outer: Words = field(repr=False)

    @staticmethod
    def sizes(count: int, bits: int) -> tuple[int, int]:
        """How many elements the inner and the outer part have, for `count` residues."""
        return min(count, block(bits)), -(-count // block(bits))

    @classmethod
    def of(cls, inner: Words, outer: Words, bits: int) -> Key:
        """From elements of the field; the inner part is filled up with 0, where no residue lies."""
        full = np.zeros(block(bits), np.uint64)
        full[: len(inner)] = inner
        halves = np.stack([full & np.uint64((1 << 31) - 1), full >> np.uint64(31)])
        return cls(halves.astype(np.int32), outer)

    def part(self, start: int, stop: int) -> Key:
        """The same for some of the residues, from the first of a block on."""
        each = self.halves.shape[1]
        return Key(self.halves, self.outer[start // each : -(-stop // each)])

    def lanes(self) -> npt.NDArray[np.int32]:
        """The halves in the order of the words that residues are joined to."""
        return np.ascontiguousarray(self.halves.reshape(2, -1, len(self.halves[0]) // _LANES or 1).transpose(0, 2, 1))

    def at(self, place: int) -> int:
        """How often one residue counts."""
        number, i = divmod(place, self.halves.shape[1])
        return (int(self.halves[0, i]) + (int(self.halves[1, i]) << 31)) * int(self.outer[number]) % P


NO_KEY = Key(np.zeros((2, 0), np.int32), np.zeros(0, np.uint64))


def cover(
    numbers: Numbers, bits: int, minus: Sequence[Source], plus: Sequence[Source] = (), key: Key = NO_KEY
) -> tuple[Bytes, int]:
    """Residues less the draws of `minus`, plus those of `plus`, packed; and the key's form of the bare residues."""
    if few(len(numbers)):
        return cover_plain(numbers, bits, minus, plus, key)
    from croupier.kernels import _packed_jit as jit

    room, data = _room(len(numbers), bits)
    forms, inner, step = list[int](), key.lanes(), _step(bits, len(minus) + len(plus) + 1)

    def part(start: int, stop: int) -> None:
        drawn, draws = _scratch(len(minus) + len(plus), _words(step, bits)), [open(start) for open in (*minus, *plus)]
        for a in range(start, stop, step):
            b = min(stop, a + step)
            total, outer = room[_words(a, bits) : _words(b, bits)], key.outer[a // block(bits) : -(-b // block(bits))]
            for draw, words in zip(draws, drawn, strict=True):
                draw(words[: len(total)], b - a)
            rows = drawn[: len(minus)], drawn[len(minus) :]
            forms.append(int(jit.cover(numbers[a:b], bits, inner, outer, *rows, _tops(bits), total)))

    over(len(numbers), block(bits), part)
    _end(room, len(numbers), bits)
    return data, sum(forms) % P


def fold(rows: Sequence[Bytes], sources: Sequence[Source], count: int, bits: int) -> Bytes:
    """The sum of packed rows and of draws, packed."""
    if few(count):
        return fold_plain(rows, sources, count, bits)
    from croupier.kernels import _packed_jit as jit

    room, data = _room(count, bits)
    # Draws are added a few at a time: those of many clients together would fall out of the cache.
    step = _step(bits, min(_AT_ONCE, len(sources)) + 2)

    def part(start: int, stop: int) -> None:
        draws, scratch = [open(start) for open in sources], _scratch(_AT_ONCE, _words(step, bits))
        for a in range(start, stop, step):
            b = min(stop, a + step)
            total, held = room[_words(a, bits) : _words(b, bits)], _words(b, bits) - _words(a, bits)
            total[:] = 0
            for first in range(0, len(draws), _AT_ONCE):
                some = draws[first : first + _AT_ONCE]
                for draw, words in zip(some, scratch, strict=False):
                    draw(words[:held], b - a)
                jit.fold(total, scratch[: len(some)], _tops(bits))
            for row in rows:
                words = _read(row, _words(a, bits), _words(b, bits), scratch[0])
                jit.fold(total, words.reshape(1, -1), _tops(bits))

    over(count, block(bits), part)
    _end(room, count, bits)
    return data


def numbers(data: Bytes, count: int, bits: int) -> Numbers:
    """Packed residues one by one."""
    if few(count):
        return packing.unpack_plain(data, count, (bits,))[:, 0].astype(dtype(bits))
    from croupier.kernels import _packed_jit as jit

    out = np.empty(count, dtype(bits))

    def part(start: int, stop: int) -> None:
        for a in range(start, stop, _step(bits)):
            b = min(stop, a + _step(bits))
            jit.spread(_blocks(data, a, b, bits), bits, out[a:b])

    over(count, block(bits), part)
    return out


def form(key: Key, data: Bytes, count: int, bits: int) -> int:
    """The key's form of packed residues, each taken as the number nearest to 0."""
    if few(count):
        return form_plain(key, packing.unpack_plain(data, count, (bits,))[:, 0], bits)
    from croupier.kernels import _packed_jit as jit

    forms, inner = list[int](), key.lanes()

    def part(start: int, stop: int) -> None:
        for a in range(start, stop, _step(bits)):
            b = min(stop, a + _step(bits))
            outer = key.outer[a // block(bits) : -(-b // block(bits))]
            forms.append(int(jit.form_packed(inner, outer, _blocks(data, a, b, bits), bits)))

    over(count, block(bits), part)
    return sum(forms) % P


def packed(numbers: Numbers, bits: int) -> Bytes:
    """Residues without gaps."""
    return cover(numbers, bits, ())[0]


def last(data: Bytes, count: int, bits: int) -> int:
    """The last of packed residues."""
    first = (count - 1) * bits // 8
    return (int.from_bytes(data[first:].tobytes(), "little") >> ((count - 1) * bits % 8)) & ((1 << bits) - 1)


def cover_plain(
    numbers: Numbers, bits: int, minus: Sequence[Source], plus: Sequence[Source] = (), key: Key = NO_KEY
) -> tuple[Bytes, int]:
    """The same residue by residue."""
    total = numbers.astype(np.int64)
    for source in minus:
        total -= _drawn(source, len(numbers), bits)
    for source in plus:
        total += _drawn(source, len(numbers), bits)
    own = form_plain(key, numbers, bits) if len(key.outer) else 0
    return packing.pack_plain(total & ((1 << bits) - 1), (bits,)), own


def fold_plain(rows: Sequence[Bytes], sources: Sequence[Source], count: int, bits: int) -> Bytes:
    """The same residue by residue."""
    total = np.zeros(count, np.int64)
    for row in rows:
        total += packing.unpack_plain(row, count, (bits,))[:, 0]
    for source in sources:
        total += _drawn(source, count, bits)
    return packing.pack_plain(total & ((1 << bits) - 1), (bits,))


def form_plain(key: Key, numbers: Numbers, bits: int) -> int:
    """The same in whole numbers."""
    half, size = 1 << (bits - 1), key.halves.shape[1]
    signed = [(number + half) % (2 * half) - half for number in numbers.tolist()]
    low, high = (part[: len(signed)].tolist() for part in key.halves)
    inner = [one + (two << 31) for one, two in zip(low, high, strict=True)]
    blocks = (sum(map(mul, inner, signed[at : at + size])) for at in range(0, len(signed), size))
    return int(sum(map(mul, blocks, key.outer.tolist())) % P)


def _drawn(source: Source, count: int, bits: int) -> npt.NDArray[np.int64]:
    words = np.zeros(_words(count, bits), np.uint64)
    source(0)(words, count)
    return packing.unpack_plain(words.view(np.uint8), count, (bits,))[:, 0]


def _words(count: int, bits: int) -> int:
    return -(-count * bits // 64)


def _step(bits: int, arrays: int = 4) -> int:
    """Residues of a pass that has so many arrays of them in use: whole blocks, as many as stay in the cache."""
    return -(-_PASS // (arrays * block(bits))) * block(bits)


@lru_cache(maxsize=64)
def _tops(bits: int) -> Words:
    """The top bit of every residue of a packed block."""
    bit = np.zeros(block(bits) * bits, np.uint8)
    bit[bits - 1 :: bits] = 1
    words: Words = np.packbits(bit, bitorder="little").view(np.uint64)
    return words


def _room(count: int, bits: int) -> tuple[Words, Bytes]:
    """Room for packed residues, as words and as the bytes that travel."""
    room = np.empty(_words(count, bits), np.uint64)
    return room, room.view(np.uint8)[: size(count, bits)]


def _end(room: Words, count: int, bits: int) -> None:
    """What lies past the last residue is 0, whatever was drawn for it."""
    if used := count * bits % 64:
        room[-1] &= np.uint64((1 << used) - 1)


def _scratch(rows: int, words: int) -> Words:
    """Words to draw into, which a thread keeps: fresh pages would have to be cleared every time."""
    kept: Words | None = getattr(_own, "words", None)
    if kept is None or kept.size < rows * words:
        kept = _own.words = np.empty(max(1, rows * words), np.uint64)
    return kept[: rows * words].reshape(rows, words)


def _read(data: Bytes, start: int, stop: int, scratch: Words) -> Words:
    """Some words of packed bytes: where they lie, or copied where no whole aligned words lie there."""
    part = data[8 * start : 8 * stop]
    if len(part) == 8 * (stop - start):
        words: Words = part.view(np.uint64)
        if words.flags.aligned:
            return words
    out = scratch[: stop - start]
    out[-1] = 0
    out.view(np.uint8)[: len(part)] = part
    return out


def _blocks(data: Bytes, start: int, stop: int, bits: int) -> Words:
    """The words of whole blocks, the last one filled up with 0."""
    many = -(-(stop - start) // block(bits)) * _words(block(bits), bits)
    held, first = _words(stop, bits) - _words(start, bits), _words(start, bits)
    scratch: Words = _scratch(1, many)[0]
    words = _read(data, first, first + held, scratch)
    if held == many:
        return words
    scratch[:held] = words
    scratch[held:] = 0
    return scratch
