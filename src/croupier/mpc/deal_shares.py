"""How much is dealt for a shuffle, and shares of matrices of numbers: from a seed, in memory, or in a file.

For a hundred clients and a hundred thousand parameters this is what takes the room: hundreds of megabytes, which one of
the two servers can draw from a seed and the other must be sent. So shares come block by block, from wherever they lie:
who has a seed or a file need not hold a whole matrix of them; who was sent them in a letter does (`Stored`).

`mpc.dealer` deals them, `mpc.tallies` adds them up block by block. What `place/two_servers` sends and computes is sized
by `DealSpec`. No round deals to a file (`Filed`): `croupier bench rain` does.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.errors import ProtocolError
from croupier.kernels.field import Words
from croupier.mpc.field import BINARY, PRIME, ShareField

Check = Literal["none", "hash", "product"]
# Numbers of a block of shares: as many as stay near the processor while they are added up.
BLOCK = 1 << 20


@dataclass(frozen=True)
class DealSpec:
    """Sizes of what is dealt: rows, coordinates, and how the shuffle is checked ("none": nobody cheats)."""

    rows: int
    size: int
    check: Check = "hash"

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return -(-self.size // 8)

    @property
    def authentic(self) -> bool:
        """Whether shares carry tags."""
        return self.check != "none"

    @property
    def over(self) -> ShareField:
        """The field in which the check of the shuffle computes."""
        return PRIME if self.check == "product" else BINARY

    @property
    def dtype(self) -> Any:
        """Of a share: 32 bits do where shares carry no tags."""
        return np.dtype(np.uint64 if self.authentic else np.uint32)

    @property
    def triples(self) -> int:
        """Products of a check: two trees over all rows, and one to hide their difference."""
        return 2 * (self.rows - 1) + 1

    @property
    def extras(self) -> int:
        """Elements that are dealt for the check: triples, a random one, and for hashes two a row."""
        return 3 * self.triples + 1 + (2 * self.rows if self.check == "hash" else 0)

    @property
    def matrices(self) -> int:
        """Matrices of shares: of s, and of the clients' masks where the check sums over them."""
        return 2 if self.check == "product" else 1

    @cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Ranges of coordinates that are worked on at a time; each begins with a whole byte."""
        step = max(8, BLOCK // self.rows // 8 * 8)
        return tuple((at, min(self.size, at + step)) for at in range(0, self.size, step))

    @property
    def spare(self) -> int:
        """Unused bits of a row's last byte."""
        return 8 * self.width - self.size


Block = tuple[int, int, npt.NDArray[Any], Words | None]


class Shares(Protocol):
    """Shares of a matrix, block by block: first coordinate, the one after the last, numbers, and tags."""

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Every block of a matrix, in order."""


@dataclass(frozen=True)
class Seeded:
    """Shares that a seed stands for, drawn when they are needed."""

    deal: DealSpec
    coins: Coins

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Drawn anew each time they are asked for, and always the same."""
        for number, (start, stop) in enumerate(self.deal.blocks):
            node = self.coins.child("shares", matrix, number)
            yield start, stop, self._drawn(node.child("values"), stop - start), self._tags(node, stop - start)

    def _tags(self, node: Coins, width: int) -> Words | None:
        return self._drawn(node.child("tags"), width) if self.deal.authentic else None

    def _drawn(self, node: Coins, width: int) -> npt.NDArray[Any]:
        count, stream = self.deal.rows * width, node.secure()
        if not self.deal.authentic:
            return np.frombuffer(stream.bytes(4 * count), np.uint32).reshape(self.deal.rows, width)
        return PRIME.draw(stream, count).reshape(self.deal.rows, width)


@dataclass(frozen=True)
class Stored:
    """Shares that were dealt one by one, in memory: numbers and tags apart; in each, all blocks of a matrix."""

    deal: DealSpec
    numbers: npt.NDArray[Any] = field(repr=False)
    tags: Words | None = field(default=None, repr=False)

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Views of the arrays in memory."""
        rows, base = self.deal.rows, matrix * self.deal.rows * self.deal.size
        for start, stop in self.deal.blocks:
            part = slice(base + rows * start, base + rows * stop)
            shape = (rows, stop - start)
            tags = None if self.tags is None else self.tags[part].reshape(shape)
            yield start, stop, self.numbers[part].reshape(shape), tags

    @classmethod
    def of(cls, deal: DealSpec, shares: Shares) -> Stored:
        """The same shares, drawn once and kept."""
        found = gathered(deal, (block[2:] for matrix in range(deal.matrices) for block in shares.blocks(matrix)))
        return cls(deal, **found)


@dataclass(frozen=True)
class Filed:
    """Shares that were dealt ahead of time to a file, block by block: a block's numbers, then its tags."""

    deal: DealSpec
    path: Path

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Read anew each time, into the same memory: a block is gone when the next one is asked for."""
        deal, sides = self.deal, 2 if self.deal.authentic else 1
        room = np.empty(sides * deal.rows * max(stop - start for start, stop in deal.blocks), deal.dtype)
        with self.path.open("rb", buffering=0) as file:
            file.seek(matrix * sides * deal.rows * deal.size * deal.dtype.itemsize)
            for start, stop in deal.blocks:
                count = deal.rows * (stop - start)
                _fill(file, room[: sides * count])
                shape = (deal.rows, stop - start)
                tags = room[count : 2 * count].reshape(shape) if deal.authentic else None
                yield start, stop, room[:count].reshape(shape), tags


def _fill(file: io.FileIO | Any, room: npt.NDArray[Any]) -> None:
    view = memoryview(room.view(np.uint8))  # type: ignore[arg-type]
    while len(view):
        read = file.readinto(view)
        if not read:
            raise ProtocolError("a file of dealt material ends too early; deal anew")
        view = view[read:]


def gathered(deal: DealSpec, long: Iterator[tuple[npt.NDArray[Any], Words | None]]) -> dict[str, Any]:
    """Blocks of numbers and tags as two long arrays, by the names that a dealer's letter gives them."""
    numbers = np.empty(deal.matrices * deal.rows * deal.size, deal.dtype)
    tags = np.empty_like(numbers) if deal.authentic else None
    at = 0
    for values, marks in long:
        span = slice(at, at + values.size)
        numbers[span] = values.reshape(-1)
        if tags is not None and marks is not None:
            tags[span] = marks.reshape(-1)
        at += values.size
    return {"numbers": numbers} | ({} if tags is None else {"tags": tags})
