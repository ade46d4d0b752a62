"""Shares of two parties that neither can alter unseen: each also holds a share of a secret key times the value.

These products are the tags, as in the SPDZ protocol. What is opened is taken down; before anything is done with it,
both parties toss a joint coin and compare one random combination of all that was opened with the same combination of
its tags. An altered value passes with probability 2 over the size of the field.

RAIN's two servers use it where one of them may be malicious (`place.two_servers.server_flow`, with
`place.two_servers.shuffle_check`): nothing is opened to a client or acted on before the check has passed. The same
coin toss (`toss`) serves the cut-and-choose of what is dealt. Most other modules that import this one, in `place/` and
in `agree/`, want only `byte_tensor` and `bytes_of`, by which bytes travel in letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import Field as Array
from croupier.core.wire import Schema
from croupier.errors import IntegrityError
from croupier.kernels.field import Words
from croupier.mpc.field import ShareField


@dataclass(frozen=True)
class TaggedShares:
    """One party's shares of some elements, and of their tags."""

    values: Words = field(repr=False)
    tags: Words = field(repr=False)

    def at(self, index: slice) -> TaggedShares:
        """Some of them."""
        return TaggedShares(self.values[index], self.tags[index])

    def shaped(self, *sides: int) -> TaggedShares:
        """Reshaped to these sides; the words of an element stay together."""
        return TaggedShares(self.values.reshape(*sides, -1), self.tags.reshape(*sides, -1))


@dataclass
class TagHolder:
    """One of the two parties in one attempt: the other's name, its own share of the key, and what was opened.

    `me` is 0 or 1. `checks` is false only where `croupier bench tamper` shows what happens without checks.
    """

    me: int
    peer: str
    over: ShareField
    key: Words = field(repr=False)
    given: Given
    coins: Coins
    opened: list[tuple[Words, Words]] = field(default_factory=list, repr=False)
    checks: bool = True

    def add(self, one: TaggedShares, two: TaggedShares) -> TaggedShares:
        """Sums, element by element."""
        return TaggedShares(self.over.add(one.values, two.values), self.over.add(one.tags, two.tags))

    def sub(self, one: TaggedShares, two: TaggedShares) -> TaggedShares:
        """Differences, element by element."""
        return TaggedShares(self.over.sub(one.values, two.values), self.over.sub(one.tags, two.tags))

    def plus(self, held: TaggedShares, known: Words) -> TaggedShares:
        """The same values with a public element added to each."""
        values = self.over.add(held.values, known) if self.me == 0 else held.values
        return TaggedShares(values, self.over.add(held.tags, self.over.mul(self.key, known)))

    def scaled(self, held: TaggedShares, known: Words) -> TaggedShares:
        """The same values, each times a public element."""
        return TaggedShares(self.over.mul(held.values, known), self.over.mul(held.tags, known))

    def open(self, kind: str, held: TaggedShares) -> SubFlow:
        """The values themselves, from both parties' shares; they may be used only after a check.

        Reveals: them, to both. Raises: IntegrityError when the other party sends what is no element.
        """
        mine = held.values
        inbox = yield Exchange((Letter(self.peer, kind, {"value": as_tensor(mine)}),), Wait(kind, (self.peer,)))
        theirs = as_words(inbox[0].body["value"]).reshape(mine.shape)
        if not self.over.valid(theirs):
            raise IntegrityError(f"round aborted: {self.peer} sent words that are no elements")
        found = self.over.add(mine, theirs)
        self.opened.append((found.reshape(-1, self.over.words), held.tags.reshape(-1, self.over.words)))
        return found

    def multiply(
        self, kind: str, one: TaggedShares, two: TaggedShares, triple: tuple[TaggedShares, TaggedShares, TaggedShares]
    ) -> SubFlow:
        """Products, with one dealt triple (x, y, xy) for each. Reveals: factors under uniform masks, to both."""
        x, y, z = triple
        count = len(one.values)
        hidden = self.sub(
            TaggedShares(np.concatenate([one.values, two.values]), np.concatenate([one.tags, two.tags])),
            TaggedShares(np.concatenate([x.values, y.values]), np.concatenate([x.tags, y.tags])),
        )
        seen = yield from self.open(kind, hidden)
        left, right = seen[:count], seen[count:]
        found = self.add(z, self.add(self.scaled(y, left), self.scaled(x, right)))
        return self.plus(found, self.over.mul(left, right))

    def check(self, step: str) -> SubFlow:
        """Compare the tags of all that was opened since the last check. Raises: IntegrityError."""
        opened, self.opened = self.opened, []
        if not self.checks:
            return
        chance = yield from toss(self.given, self.me, self.peer, step, self.coins)
        values = np.concatenate([value for value, _ in opened])
        tags = np.concatenate([tag for _, tag in opened])
        factors = self.over.draw(chance.child("factors").secure(), len(values))
        combined = self.over.total(self.over.mul(factors, values))
        mine = self.over.sub(self.over.total(self.over.mul(factors, tags)), self.over.mul(self.key, combined))
        theirs = yield from exchanged(self.given, self.me, self.peer, f"{step}-s", as_bytes(mine), self.coins)
        other = np.frombuffer(theirs, np.uint64).reshape(mine.shape)
        if not self.over.valid(other) or self.over.add(mine, other).any():
            raise IntegrityError("round aborted: what was opened is not what was shared")


def toss(given: Given, me: int, peer: str, step: str, coins: Coins) -> SubFlow:
    """A coin that neither party can choose: commitments to both parts, then the parts. Raises: IntegrityError."""
    own = coins.child("coin", step).export()
    theirs = yield from exchanged(given, me, peer, step, own, coins)
    parts = (own, theirs) if me == 0 else (theirs, own)
    return Coins(canon.digest(("coin out", given.run, given.round, given.attempt, step, *parts)))


def exchanged(given: Given, me: int, peer: str, step: str, own: bytes, coins: Coins) -> SubFlow:
    """The other party's bytes; each party fixed its own before it saw the other's.

    Raises: IntegrityError when the other party echoes this one's commitment, or opens another value than it had fixed.
    """
    nonce = coins.child("nonce", step).export()
    mine = _bound(given, step, me, own, nonce)
    (heard,) = yield _swap(peer, f"{step}-c", {"digest": byte_tensor(mine)})
    bound = bytes_of(heard.body["digest"])
    if bound == mine:
        raise IntegrityError(f"round aborted: {peer} echoed a commitment")
    (shown,) = yield _swap(peer, f"{step}-o", {"nonce": byte_tensor(nonce), "value": byte_tensor(own)})
    theirs = bytes_of(shown.body["value"])
    if _bound(given, step, 1 - me, theirs, bytes_of(shown.body["nonce"])) != bound:
        raise IntegrityError(f"round aborted: {peer} opened another value than it had fixed")
    return theirs


def toss_schemas(step: str, size: int = 32) -> Mapping[str, Schema]:
    """The messages of `toss`, or of an exchange of so many bytes."""
    return {
        f"{step}-c": Schema((Array("digest", "|u1", (32,)),)),
        f"{step}-o": Schema((Array("nonce", "|u1", (32,)), Array("value", "|u1", (size,)))),
    }


def check_schemas(step: str, over: ShareField) -> Mapping[str, Schema]:
    """The messages of `TagHolder.check`."""
    return {**toss_schemas(step), **toss_schemas(f"{step}-s", 8 * over.words)}


def value_schema(count: int, over: ShareField) -> Schema:
    """The message by which `TagHolder.open` opens so many elements."""
    return Schema((Array("value", "<i8", (count, over.words)),))


def _bound(given: Given, step: str, who: int, value: bytes, nonce: bytes) -> bytes:
    return canon.digest(("coin", given.run, given.round, given.attempt, step, who, value, nonce))


def _swap(peer: str, kind: str, body: Mapping[str, Tensor]) -> Exchange:
    return Exchange((Letter(peer, kind, body),), Wait(kind, (peer,)))


def as_tensor(words: Words) -> Tensor:
    """Words as the wire carries them."""
    return torch.from_numpy(np.ascontiguousarray(words).view(np.int64))


def as_words(numbers: Tensor) -> Words:
    """Words as the wire carried them."""
    return np.ascontiguousarray(numbers.numpy()).view(np.uint64)


def as_bytes(words: Words) -> bytes:
    """Words as bytes, low ones first."""
    return np.ascontiguousarray(words).astype("<u8").tobytes()


def byte_tensor(data: bytes) -> Tensor:
    """Bytes as a tensor."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def bytes_of(values: Tensor) -> bytes:
    """A tensor of bytes as bytes."""
    return values.numpy().tobytes()
