"""Whether bytes hold an update, in the clear or encoded.

Tests search with it what a Flower server or a relay stored and passed on (`tests/claims/test_flower_superlink`,
`tests/unit/flower/test_flower_shield`), which must hold no client's update. Only tests use it. A trace is a window of
two neighbouring floats or integers of 64 bits, of four integers of 32 bits, or of 16 bytes of packed residues.

It looks for floats of 32 and 64 bits and whole numbers of 32 and 64, in both orders of bytes, and for residues packed
without gaps at any bit. What the model that was handed out holds as well is no trace of an update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
# Bytes of a window: two numbers of four bytes; four of these, or two of eight.
_SHORT, _LONG = 8, 16
# Windows of fewer different bytes are padding, or nearly.
_DIFFERENT = 5
# An odd constant by which 16 bytes are mixed into 8; two windows are rarely taken for one.
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Haystack:
    """Bytes in which every window of 8 and of 16 can be looked up; those of 16 by a number of 64 bits made of them."""

    data: bytes

    @cached_property
    def _known(self) -> dict[int, Words]:
        return {width: np.unique(_windows(np.frombuffer(self.data, np.uint8), width)) for width in (_SHORT, _LONG)}

    def holds(self, sought: bytes, width: int, step: int) -> npt.NDArray[np.bool_]:
        """Of each window of `sought` that begins at a multiple of `step`: whether it is here."""
        known, windows = self._known[width], _windows(np.frombuffer(sought, np.uint8), width)[::step]
        if not len(known):
            return np.zeros(len(windows), np.bool_)
        found: npt.NDArray[np.bool_] = known[np.searchsorted(known, windows).clip(max=len(known) - 1)] == windows
        return found


def _windows(data: npt.NDArray[np.uint8], width: int) -> Words:
    """Every window as one number: eight bytes as they are, sixteen mixed."""
    count = max(0, len(data) - width + 1)
    halves = []
    for half in range(0, width, 8):
        word = np.zeros(count, np.uint64)
        for at in range(8):
            word |= data[half + at : half + at + count].astype(np.uint64) << np.uint64(8 * at)
        halves.append(word)
    if width == _SHORT:
        return halves[0]
    mixed: Words = halves[0] * _MIX ^ (halves[1] << np.uint64(17) | halves[1] >> np.uint64(47))
    return mixed


@dataclass(frozen=True)
class TracedUpdate:
    """A client's update, the model that it began with, its examples, and how a protocol makes numbers of it.

    units: factors from a value to the whole number that is sent, with the client's weight where values are multiplied
    by it. bits: widths of a packed residue to look for.
    """

    update: Floats
    start: Floats
    examples: float
    units: Sequence[float] = ()
    bits: Sequence[int] = ()

    def forms(self) -> Iterator[tuple[str, bytes, bytes, int, int]]:
        """Each form: its name, its bytes, those of the model that was handed out, the width of a window, the step."""
        weighed = np.float32(self.examples)
        for name, value, known in (
            ("update", self.update, self.start), ("difference", self.update - self.start, np.zeros_like(self.start)),
            ("weighed", self.update * weighed, self.start * weighed),
        ):  # fmt: skip
            for kind in ("<f4", ">f4", "<f8", ">f8"):
                yield f"{name} {kind}", *_bytes(value, known, kind)
            for unit in self.units:
                for rounding in (np.rint, np.floor, np.ceil):
                    numbers, public = (rounding(one.astype(np.float64) * unit) for one in (value, known))
                    for kind in ("<i4", ">i4", "<i8", ">i8"):
                        held = _fitting(numbers, kind), _fitting(public, kind)
                        yield f"{name} {kind} x {unit:g} by {rounding.__name__}", *_bytes(*held, kind)

    def traces(self, hay: Haystack) -> dict[str, int]:
        """How many windows of each form the bytes hold; forms of which there are none are left out."""
        found: dict[str, int] = {}
        for name, sought, public, width, step in self.forms():
            held = hay.holds(sought, width, step) & ~Haystack(public).holds(sought, width, step)
            if count := int((held & _varied(sought, width, step)).sum()):
                found[name] = count
        for unit, bits in product(self.units, self.bits):
            if count := self._packed(hay, unit, bits):
                found[f"packed in {bits} bits x {unit:g}"] = count
        return found

    def _packed(self, hay: Haystack, unit: float, bits: int) -> int:
        """Windows of residues without gaps between them, beginning at any bit.

        Rounded to the nearest, or each of two neighbours up or down.
        """
        total = 0
        for value, known in ((self.update, self.start), (self.update - self.start, np.zeros_like(self.start))):
            exact, public = value.astype(np.float64) * unit, known.astype(np.float64) * unit
            for ways in ((np.rint, np.rint), *product((np.floor, np.ceil), repeat=2)):
                lines = [_residues(exact, ways, bits), _residues(public, ways, bits)]
                for shift in range(8):
                    sought, other = (_laid(line, bits, shift) for line in lines)
                    held = hay.holds(sought, _LONG, 1) & ~Haystack(other).holds(sought, _LONG, 1)
                    total += int((held & _varied(sought, _LONG, 1)).sum())
        return total


def _bytes(value: npt.NDArray[Any], known: npt.NDArray[Any], kind: str) -> tuple[bytes, bytes, int, int]:
    size = np.dtype(kind).itemsize
    # Two whole numbers of 32 bits, which are mostly small, are soon met by chance: four of them are asked for.
    width = _SHORT if kind[1:] == "f4" else _LONG
    return value.astype(kind).tobytes(), known.astype(kind).tobytes(), width, size


def _fitting(values: npt.NDArray[np.float64], kind: str) -> npt.NDArray[np.float64]:
    """Numbers that the type can hold; the others are 0, which is no trace."""
    return np.where(np.abs(values) < float(np.iinfo(np.dtype(kind)).max), values, 0.0)


def _varied(sought: bytes, width: int, step: int) -> npt.NDArray[np.bool_]:
    """Which windows are more than padding."""
    view = np.lib.stride_tricks.sliding_window_view(np.frombuffer(sought, np.uint8), width)[::step]
    ordered = np.sort(view, axis=1)
    many: npt.NDArray[np.bool_] = 1 + (np.diff(ordered, axis=1) != 0).sum(1) >= _DIFFERENT
    return many


def _residues(exact: npt.NDArray[np.float64], ways: Sequence[Any], bits: int) -> npt.NDArray[np.uint64]:
    """Whole numbers modulo 2^bits, one coordinate rounded one way and its neighbour the other."""
    rounded = np.empty_like(exact)
    rounded[::2], rounded[1::2] = ways[0](exact[::2]), ways[1](exact[1::2])
    fitting = np.where(np.abs(rounded) < 2.0**62, rounded, 0.0)
    return fitting.astype(np.int64).astype(np.uint64) & np.uint64((1 << bits) - 1)


def _laid(numbers: npt.NDArray[np.uint64], bits: int, shift: int) -> bytes:
    """Residues one after another, lowest bit first, behind `shift` bits of zero."""
    each = (numbers[:, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    return np.packbits(np.concatenate([np.zeros(shift, np.uint8), each.reshape(-1)]), bitorder="little").tobytes()
