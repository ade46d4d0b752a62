"""Rows of elements of a small group: packed bits under XOR, or residues under addition.

A shuffle only adds, subtracts and draws, so that one text of it (`translate`, `correlate`) serves bits and residues
alike; `onion` and `convert` are for bits only. A `Group` also says how rows travel, and refuses bytes that are no rows
of it. The product shuffles bits (`Xor`, in `place.two_servers.shuffles`); residues (`Modular`) serve the laboratory,
which shows how RAIN's shuffle fails as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Choices
from croupier.errors import RangeError, WireError
from croupier.kernels.shares import P

Rows = npt.NDArray[Any]


class Group(Protocol):
    """What a shuffle of rows needs of the group that their elements are in."""

    def zeros(self, rows: int) -> Rows:
        """Rows of 0."""

    def draw(self, rows: int, choices: Choices) -> Rows:
        """Uniform rows."""

    def add(self, one: Rows, two: Rows) -> Rows:
        """The sum, element by element."""

    def subtract(self, one: Rows, two: Rows) -> Rows:
        """The difference, element by element."""

    def pack(self, rows: Rows) -> bytes:
        """Rows as they travel."""

    def unpack(self, data: bytes, rows: int) -> Rows:
        """So many rows. Raises: WireError when the length is wrong; RangeError when an element is none of the group."""


@dataclass(frozen=True)
class Xor:
    """Rows of so many bits, eight to a byte, lowest first; bits after the last one are 0."""

    width: int

    def __post_init__(self) -> None:
        _check_width(self.width)

    @property
    def size(self) -> int:
        """Bytes of a row."""
        return (self.width + 7) // 8

    def zeros(self, rows: int) -> Rows:
        """Bits that are 0."""
        return np.zeros((rows, self.size), np.uint8)

    def draw(self, rows: int, choices: Choices) -> Rows:
        """Uniform bits."""
        out = self.zeros(rows)
        choices.blind(out.reshape(-1), 8)
        out[:, -1] &= np.uint8(0xFF >> self._spare)
        return out

    def add(self, one: Rows, two: Rows) -> Rows:
        """Bit by bit."""
        return one ^ two

    def subtract(self, one: Rows, two: Rows) -> Rows:
        """The same as adding."""
        return one ^ two

    def pack(self, rows: Rows) -> bytes:
        """The bytes as they lie."""
        return rows.tobytes()

    def unpack(self, data: bytes, rows: int) -> Rows:
        """Rows of bits."""
        out = _cut(data, rows, self.size, np.uint8)
        if (out[:, -1] > 0xFF >> self._spare).any():
            raise RangeError(f"bits are set after the {self.width} of a row")
        return out

    @property
    def _spare(self) -> int:
        return 8 * self.size - self.width


@dataclass(frozen=True)
class Modular:
    """Rows of so many residues, by default of the field of 2^61 - 1."""

    width: int
    modulus: int = P

    def __post_init__(self) -> None:
        _check_width(self.width)
        if not 2 <= self.modulus <= 1 << 63:
            raise RangeError(f"modulus = {self.modulus}: residues are of 2 to 2^63, so that two of them fit a word")

    def zeros(self, rows: int) -> Rows:
        """Residues that are 0."""
        return np.zeros((rows, self.width), np.uint64)

    def draw(self, rows: int, choices: Choices) -> Rows:
        """Uniform residues."""
        return choices.mask(self.modulus, rows * self.width).astype(np.uint64).reshape(rows, self.width)

    def add(self, one: Rows, two: Rows) -> Rows:
        """Modulo the modulus."""
        total: Rows = one + two
        np.minimum(total, total - np.uint64(self.modulus), out=total)
        return total

    def subtract(self, one: Rows, two: Rows) -> Rows:
        """Modulo the modulus."""
        total: Rows = one - two
        # Below 0 the word wraps around to more than any residue; adding the modulus brings exactly those back.
        np.minimum(total, total + np.uint64(self.modulus), out=total)
        return total

    def pack(self, rows: Rows) -> bytes:
        """Eight bytes a residue, lowest first."""
        return rows.astype("<u8", copy=False).tobytes()

    def unpack(self, data: bytes, rows: int) -> Rows:
        """Rows of residues."""
        out = _cut(data, rows, 8 * self.width, np.dtype("<u8"))
        if out.size and int(out.max()) >= self.modulus:
            raise RangeError(f"{int(out.max())} is no residue of {self.modulus}")
        return out.astype(np.uint64)


def _check_width(width: int) -> None:
    if width < 1:
        raise RangeError(f"width = {width}: a row has at least one element")


def _cut(data: bytes, rows: int, size: int, dtype: Any) -> Rows:
    if len(data) != rows * size:
        raise WireError(f"{len(data)} bytes, where {rows} rows of {size} were to come")
    return np.frombuffer(data, dtype).reshape(rows, -1)
