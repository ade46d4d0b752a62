"""What a dealer hands out ahead of a round, so that two servers can shuffle rows of bits that neither can read.

Client i hides its row b_i behind a mask r_i. The first server permutes the hidden rows by p0 and hides them again by U,
the second by p1 and T; what both then hold is the shuffled rows hidden behind s = p1(p0(r)) + p1(U) + T (bits). The
dealer knows s and shares it between the servers as numbers, so that sums over the shuffled rows can be taken without
opening them. `Deck` says how much is dealt; `Hand` is one server's part, most of it as a seed.

From: RAIN's two-server shuffle in a sound form; one use each, whatever becomes of the round.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import ProtocolError
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes, Words
from croupier.kernels.shares import P
from croupier.mpc.authentic import Held
from croupier.mpc.field import BINARY, PRIME, Field

Check = Literal["none", "hash", "product"]
# Numbers of a block of shares: as many as stay near the processor while they are added up.
BLOCK = 1 << 20
_NONCE = bytes(12)


@dataclass(frozen=True)
class Deck:
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
    def over(self) -> Field:
        """The field of the check."""
        return PRIME if self.check == "product" else BINARY

    @property
    def dtype(self) -> Any:
        """Of a share: 32 bits do where nobody cheats."""
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

    deck: Deck
    coins: Coins

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Drawn anew each time they are asked for, and always the same."""
        for number, (start, stop) in enumerate(self.deck.blocks):
            node = self.coins.child("shares", matrix, number)
            yield start, stop, self._drawn(node.child("values"), stop - start), self._tags(node, stop - start)

    def _tags(self, node: Coins, width: int) -> Words | None:
        return self._drawn(node.child("tags"), width) if self.deck.authentic else None

    def _drawn(self, node: Coins, width: int) -> npt.NDArray[Any]:
        count, stream = self.deck.rows * width, node.secure()
        if not self.deck.authentic:
            return np.frombuffer(stream.bytes(4 * count), np.uint32).reshape(self.deck.rows, width)
        return PRIME.draw(stream, count).reshape(self.deck.rows, width)


@dataclass(frozen=True)
class Stored:
    """Shares that were dealt one by one, in memory: all numbers of a matrix, then all tags, block after block."""

    deck: Deck
    numbers: npt.NDArray[Any] = field(repr=False)
    tags: Words | None = field(default=None, repr=False)

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Views of what is there."""
        rows, base = self.deck.rows, matrix * self.deck.rows * self.deck.size
        for start, stop in self.deck.blocks:
            part = slice(base + rows * start, base + rows * stop)
            shape = (rows, stop - start)
            tags = None if self.tags is None else self.tags[part].reshape(shape)
            yield start, stop, self.numbers[part].reshape(shape), tags

    @classmethod
    def of(cls, deck: Deck, shares: Shares) -> Stored:
        """The same shares, drawn once and kept."""
        found = _gathered(deck, (block[2:] for matrix in range(deck.matrices) for block in shares.blocks(matrix)))
        return cls(deck, **found)


@dataclass(frozen=True)
class Filed:
    """Shares that were dealt ahead of time to a file, read block by block: numbers, then their tags."""

    deck: Deck
    path: Path

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Read anew each time, into the same memory: a block is gone when the next one is asked for."""
        deck, sides = self.deck, 2 if self.deck.authentic else 1
        room = np.empty(sides * deck.rows * max(stop - start for start, stop in deck.blocks), deck.dtype)
        with self.path.open("rb", buffering=0) as file:
            file.seek(matrix * sides * deck.rows * deck.size * deck.dtype.itemsize)
            for start, stop in deck.blocks:
                count = deck.rows * (stop - start)
                _fill(file, room[: sides * count])
                shape = (deck.rows, stop - start)
                tags = room[count : 2 * count].reshape(shape) if deck.authentic else None
                yield start, stop, room[:count].reshape(shape), tags


@dataclass
class Hand:
    """One server's part of a deck. It can be taken once.

    `order` and `masks` are its permutation and its hiding bits; `key` its share of the hash key, with `bound`, what
    the other's share must fit; `point` and `tag_key` its shares of the keys of tags, of shares and of the check.
    """

    deck: Deck
    identity: bytes
    order: npt.NDArray[np.int64] = field(repr=False)
    masks: Bytes = field(repr=False)
    shares: Shares = field(repr=False)
    point: int = field(default=0, repr=False)
    tag_key: Words = field(default_factory=lambda: np.zeros((1, 2), np.uint64), repr=False)
    extras: Held | None = field(default=None, repr=False)
    key: bytes = field(default=b"", repr=False)
    bound: bytes = b""
    _taken: bool = False

    def take(self) -> Hand:
        """Raises: ProtocolError when this hand was played before: a second use would show the other's order."""
        if self._taken:
            raise ProtocolError("dealt material was used before; every attempt needs its own")
        self._taken = True
        return self

    def dealt(self) -> Iterator[tuple[str, Held]]:
        """The elements of the check, by what they are for."""
        if self.extras is None:
            return
        at = 0
        counts = {"x": self.deck.triples, "y": self.deck.triples, "z": self.deck.triples, "blind": 1}
        if self.deck.check == "hash":
            counts |= {"before": self.deck.rows, "after": self.deck.rows}
        for name, count in counts.items():
            yield name, self.extras.at(slice(at, at + count))
            at += count


def _fill(file: io.FileIO | Any, room: npt.NDArray[Any]) -> None:
    view = memoryview(room.view(np.uint8))  # type: ignore[arg-type]
    while len(view):
        read = file.readinto(view)
        if not read:
            raise ProtocolError("a file of dealt material ends too early; deal anew")
        view = view[read:]


def mask_of(seed: bytes, deck: Deck) -> Bytes:
    """A client's mask."""
    row: Bytes = _clean(_bits(Coins(seed).child("mask"), 1, deck), deck)[0]
    return row


def seeds(deck: Deck, coins: Coins) -> list[bytes]:
    """What each client's mask is drawn from."""
    return [coins.child("client", place).export() for place in range(deck.rows)]


def hand_of(seed: bytes, me: int, deck: Deck, identity: bytes, bound: bytes, told: Mapping[str, Any]) -> Hand:
    """A server's hand from its seed, and from what it was told besides: everything, for the second server."""
    node = Coins(seed)
    shares: Shares = Seeded(deck, node)
    if me == 1:
        shares = Filed(deck, told["file"]) if "file" in told else Stored(deck, told["numbers"], told.get("tags"))
    extras = None
    if deck.authentic:
        extras = _extras(deck, node) if me == 0 else Held(told["values"], told["value_tags"])
    return Hand(
        deck, identity, node.child("order").secure().permutation(deck.rows), _masks(deck, node), shares,
        *_keys(deck, node), extras, node.child("key").export(), bound,
    )  # fmt: skip


def bound_of(seed: bytes, me: int) -> bytes:
    """What a server's share of the hash key must fit."""
    return canon.digest(("hash key", me, Coins(seed).child("key").export()))


def rest(deck: Deck, coins: Coins, file: Path | None = None) -> dict[str, Any]:
    """What the second server must be told, so that both servers' shares add up; the long part may go to a file."""
    first, second = (Coins(coins.child("hand", me).export()) for me in (0, 1))
    one, two = (node.child("order").secure().permutation(deck.rows) for node in (first, second))
    masks = np.stack([mask_of(seed, deck) for seed in seeds(deck, coins)])
    hiding = masks[one[two]] ^ _masks(deck, first)[two] ^ _masks(deck, second)
    point = sum(_keys(deck, node)[0] for node in (first, second)) % P
    long = _told(deck, first, (hiding, masks)[: deck.matrices], point)
    told = _gathered(deck, long) if file is None else _written(long, file)
    if deck.authentic:
        told |= _told_extras(deck, coins.child("triples"), (first, second), masks, hiding)
    return told


def _told(
    deck: Deck, first: Coins, matrices: tuple[Bytes, ...], point: int
) -> Iterator[tuple[npt.NDArray[Any], Words | None]]:
    """The second server's shares, block by block."""
    for matrix, bits in enumerate(matrices):
        for start, stop, values, marks in Seeded(deck, first).blocks(matrix):
            part = np.ascontiguousarray(bits[:, start // 8 : -(-stop // 8)])
            yield kernel.spread(part, 1, values), None if marks is None else kernel.spread(part, point, marks)


def _gathered(deck: Deck, long: Iterator[tuple[npt.NDArray[Any], Words | None]]) -> dict[str, Any]:
    numbers = np.empty(deck.matrices * deck.rows * deck.size, deck.dtype)
    tags = np.empty_like(numbers) if deck.authentic else None
    at = 0
    for values, marks in long:
        span = slice(at, at + values.size)
        numbers[span] = values.reshape(-1)
        if tags is not None and marks is not None:
            tags[span] = marks.reshape(-1)
        at += values.size
    return {"numbers": numbers} | ({} if tags is None else {"tags": tags})


def _written(long: Iterator[tuple[npt.NDArray[Any], Words | None]], path: Path) -> dict[str, Any]:
    with path.open("wb") as file:
        for values, marks in long:
            values.tofile(file)
            if marks is not None:
                marks.tofile(file)
    return {"file": path}


def _told_extras(deck: Deck, node: Coins, hands: tuple[Coins, Coins], masks: Bytes, hiding: Bytes) -> dict[str, Any]:
    # The triples come from a node of the dealer's own: whoever could draw them would read what they hide.
    over, many, chance = deck.over, deck.triples, node.secure()
    first, second = hands
    x, y = over.draw(chance, many), over.draw(chance, many)
    values = [x, y, over.mul(x, y), over.draw(chance, 1)]
    if deck.check == "hash":
        key = joined(first.child("key").export(), second.child("key").export())
        values += [row_hashes(key, masks), row_hashes(key, hiding)]
    whole = np.concatenate(values)
    tag_key = over.add(_keys(deck, first)[1], _keys(deck, second)[1])
    theirs = _extras(deck, first)
    return {
        "values": over.sub(whole, theirs.values), "value_tags": over.sub(over.mul(tag_key, whole), theirs.tags),
    }  # fmt: skip


def _extras(deck: Deck, node: Coins) -> Held:
    values, tags = node.child("extras").secure(), node.child("extra tags").secure()
    return Held(deck.over.draw(values, deck.extras), deck.over.draw(tags, deck.extras))


def _keys(deck: Deck, node: Coins) -> tuple[int, Words]:
    if not deck.authentic:
        return 0, np.zeros((1, 1), np.uint64)
    point = int(PRIME.draw(node.child("point").secure(), 1)[0, 0])
    # Over one field one key serves both; a tag is never shown but in a combination.
    over = deck.over
    return point, np.array([[point]], np.uint64) if over is PRIME else over.draw(node.child("tag key").secure(), 1)


def _masks(deck: Deck, node: Coins) -> Bytes:
    return _clean(_bits(node.child("masks"), deck.rows, deck), deck)


def _bits(node: Coins, rows: int, deck: Deck) -> Bytes:
    return np.frombuffer(node.secure().bytes(rows * deck.width), np.uint8).reshape(rows, deck.width)


def _clean(rows: Bytes, deck: Deck) -> Bytes:
    """Bits after the last coordinate are 0, so that a row has one form."""
    if deck.spare:
        rows[:, -1] &= 0xFF >> deck.spare
    return rows


def joined(one: bytes, two: bytes) -> bytes:
    """A key from both shares of it."""
    return bytes(a ^ b for a, b in zip(one, two, strict=True))


def row_hashes(key: bytes, rows: Bytes) -> Words:
    """Each row's hash in GF(2^128): the hash of a difference of rows is the difference of their hashes.

    It is GHASH, by way of AES-GCM's tag of the row as associated data under one fixed nonce, less the tag of a row of
    zeros. Two rows of so many bits collide with probability (bits / 128 + 1) / 2^128 under a key that nobody knew when
    the rows were fixed.
    """
    seal = AESGCM(key)
    none = seal.encrypt(_NONCE, b"", bytes(rows.shape[1]))
    tags = b"".join(seal.encrypt(_NONCE, b"", row.tobytes()) for row in rows)
    found = np.frombuffer(tags, np.uint64).reshape(-1, 2)
    return found ^ np.frombuffer(none, np.uint64)
