"""What a dealer hands out ahead of a round, so that two servers can shuffle rows of bits that neither can read.

Client i hides its row b_i behind a mask r_i. The first server permutes the hidden rows by p0 and hides them again by U,
the second by p1 and T; what both then hold is the shuffled rows hidden behind s = p1(p0(r)) + p1(U) + T (bits). The
dealer knows s and shares it between the servers as numbers, so that sums over the shuffled rows can be taken without
opening them. `DealSpec` says how much is dealt; `ShuffleShare` is one server's part. The first server draws it from a
seed, the second is told the long part besides. All is good for one use, whatever becomes of the round.

This is RAIN's two-server shuffle, changed so that it is sound: as printed, both servers hold the one seed of both
permutations. `place.two_servers.pair` runs the dealer as a party that sees no update, and its servers and clients read
their parts by the functions here. `croupier bench tamper` deals wrong material on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import ProtocolError
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes, Words
from croupier.kernels.shares import P
from croupier.mpc.authentic import TaggedShares
from croupier.mpc.deal_shares import DealSpec, Filed, Seeded, Shares, Stored, gathered
from croupier.mpc.field import PRIME

_NONCE = bytes(12)


@dataclass
class ShuffleShare:
    """One server's part of what is dealt for one shuffle (a deck). It can be taken once.

    `order` and `masks` are its permutation and its hiding bits; `shares` its shares of s. `key` is its share of the
    hash key, and `bound` a digest that the other server's share must have. `point` is its share of the key of the tags
    of `shares`, `tag_key` that of the tags of `extras`, the elements of the check.
    """

    deal: DealSpec
    identity: bytes
    order: npt.NDArray[np.int64] = field(repr=False)
    masks: Bytes = field(repr=False)
    shares: Shares = field(repr=False)
    point: int = field(default=0, repr=False)
    tag_key: Words = field(default_factory=lambda: np.zeros((1, 2), np.uint64), repr=False)
    extras: TaggedShares | None = field(default=None, repr=False)
    key: bytes = field(default=b"", repr=False)
    bound: bytes = b""
    _taken: bool = False

    def take(self) -> ShuffleShare:
        """Raises: ProtocolError when this was used before: a second use would show the other's order."""
        if self._taken:
            raise ProtocolError("dealt material was used before; every attempt needs its own")
        self._taken = True
        return self

    def dealt(self) -> Iterator[tuple[str, TaggedShares]]:
        """The elements of the check, by what they are for.

        x, y and z are triples; "blind" is one random factor under which the check's difference is opened; "before" and
        "after" are hashes of the clients' masks and of s, where the check compares hashes.
        """
        if self.extras is None:
            return
        at = 0
        counts = {"x": self.deal.triples, "y": self.deal.triples, "z": self.deal.triples, "blind": 1}
        if self.deal.check == "hash":
            counts |= {"before": self.deal.rows, "after": self.deal.rows}
        for name, count in counts.items():
            yield name, self.extras.at(slice(at, at + count))
            at += count


def mask_of(seed: bytes, deal: DealSpec) -> Bytes:
    """The mask of a client's row, from the client's seed."""
    row: Bytes = _clean(_bits(Coins(seed).child("mask"), 1, deal), deal)[0]
    return row


def seeds(deal: DealSpec, coins: Coins) -> list[bytes]:
    """For each client the seed that its mask is drawn from."""
    return [coins.child("client", place).export() for place in range(deal.rows)]


def share_of_seed(
    seed: bytes, me: int, deal: DealSpec, identity: bytes, bound: bytes, told: Mapping[str, Any]
) -> ShuffleShare:
    """A server's part from its seed; the second server's also from what the dealer told it besides (`rest`)."""
    node = Coins(seed)
    shares: Shares = Seeded(deal, node)
    if me == 1:
        shares = Filed(deal, told["file"]) if "file" in told else Stored(deal, told["numbers"], told.get("tags"))
    extras = None
    if deal.authentic:
        extras = _extras(deal, node) if me == 0 else TaggedShares(told["values"], told["value_tags"])
    return ShuffleShare(
        deal, identity, node.child("order").secure().permutation(deal.rows), _masks(deal, node), shares,
        *_keys(deal, node), extras, node.child("key").export(), bound,
    )  # fmt: skip


def bound_of(seed: bytes, me: int) -> bytes:
    """The digest that a server's share of the hash key must have."""
    return canon.digest(("hash key", me, Coins(seed).child("key").export()))


def rest(deal: DealSpec, coins: Coins, file: Path | None = None) -> dict[str, Any]:
    """What the second server must be told, so that both servers' shares add up; the long part may go to a file."""
    first, second = (Coins(coins.child("hand", me).export()) for me in (0, 1))
    one, two = (node.child("order").secure().permutation(deal.rows) for node in (first, second))
    masks = np.stack([mask_of(seed, deal) for seed in seeds(deal, coins)])
    hiding = masks[one[two]] ^ _masks(deal, first)[two] ^ _masks(deal, second)
    point = sum(_keys(deal, node)[0] for node in (first, second)) % P
    long = _long_material(deal, first, (hiding, masks)[: deal.matrices], point)
    told = gathered(deal, long) if file is None else _written(long, file)
    if deal.authentic:
        told |= _tagged_extras(deal, coins.child("triples"), (first, second), masks, hiding)
    return told


def _long_material(
    deal: DealSpec, first: Coins, matrices: tuple[Bytes, ...], point: int
) -> Iterator[tuple[npt.NDArray[Any], Words | None]]:
    """The second server's shares, block by block."""
    for matrix, bits in enumerate(matrices):
        for start, stop, values, marks in Seeded(deal, first).blocks(matrix):
            part = np.ascontiguousarray(bits[:, start // 8 : -(-stop // 8)])
            yield kernel.spread(part, 1, values), None if marks is None else kernel.spread(part, point, marks)


def _written(long: Iterator[tuple[npt.NDArray[Any], Words | None]], path: Path) -> dict[str, Any]:
    with path.open("wb") as file:
        for values, marks in long:
            values.tofile(file)
            if marks is not None:
                marks.tofile(file)
    return {"file": path}


def _tagged_extras(
    deal: DealSpec, node: Coins, sides: tuple[Coins, Coins], masks: Bytes, hiding: Bytes
) -> dict[str, Any]:
    # The triples come from a node of the dealer's own: whoever could draw them would read what they hide.
    over, many, chance = deal.over, deal.triples, node.secure()
    first, second = sides
    x, y = over.draw(chance, many), over.draw(chance, many)
    values = [x, y, over.mul(x, y), over.draw(chance, 1)]
    if deal.check == "hash":
        key = joined(first.child("key").export(), second.child("key").export())
        values += [row_hashes(key, masks), row_hashes(key, hiding)]
    whole = np.concatenate(values)
    tag_key = over.add(_keys(deal, first)[1], _keys(deal, second)[1])
    theirs = _extras(deal, first)
    return {
        "values": over.sub(whole, theirs.values), "value_tags": over.sub(over.mul(tag_key, whole), theirs.tags),
    }  # fmt: skip


def _extras(deal: DealSpec, node: Coins) -> TaggedShares:
    values, tags = node.child("extras").secure(), node.child("extra tags").secure()
    return TaggedShares(deal.over.draw(values, deal.extras), deal.over.draw(tags, deal.extras))


def _keys(deal: DealSpec, node: Coins) -> tuple[int, Words]:
    if not deal.authentic:
        return 0, np.zeros((1, 1), np.uint64)
    point = int(PRIME.draw(node.child("point").secure(), 1)[0, 0])
    # Where the check is over the prime field too, one key serves shares and check; a tag is shown only combined.
    over = deal.over
    return point, np.array([[point]], np.uint64) if over is PRIME else over.draw(node.child("tag key").secure(), 1)


def _masks(deal: DealSpec, node: Coins) -> Bytes:
    return _clean(_bits(node.child("masks"), deal.rows, deal), deal)


def _bits(node: Coins, rows: int, deal: DealSpec) -> Bytes:
    return np.frombuffer(node.secure().bytes(rows * deal.width), np.uint8).reshape(rows, deal.width)


def _clean(rows: Bytes, deal: DealSpec) -> Bytes:
    """Bits after the last coordinate are 0, so that a row has one form."""
    if deal.spare:
        rows[:, -1] &= 0xFF >> deal.spare
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
