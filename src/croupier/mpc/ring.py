"""Residues of 2^32 or 2^64, split between two parties by addition, and what the parties say to open them.

The gates (`compare`, `products`, `ranks`, `signs`, `trust`) work here and not in a field because comparisons need the
bits of a number, and in a power of two the bits of a sum are the sum of the bits with carries. Two functions fix the
habits of every gate: `kind` how a letter of a step is named, `swap` that both parties speak at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.envelope import KIND
from croupier.core.flow import Exchange, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema
from croupier.errors import RangeError, SpecError

Residues = npt.NDArray[np.unsignedinteger]
_TYPES = {32: ("<u4", "<i4"), 64: ("<u8", "<i8")}


@dataclass(frozen=True)
class Ring:
    """The residues of 2^bits; the upper half of them counts as negative."""

    bits: int = 32

    def __post_init__(self) -> None:
        if self.bits not in _TYPES:
            raise SpecError(f"bits = {self.bits}: residues are of 2^32 or 2^64")

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type that wraps around where the ring does."""
        return np.dtype(_TYPES[self.bits][0])

    def residues(self, numbers: npt.NDArray[np.integer]) -> Residues:
        """Whole numbers as residues. Raises: RangeError when they are not whole."""
        if numbers.dtype.kind not in "iu":
            raise RangeError(f"shares of dtype {numbers.dtype}: residues of 2^{self.bits} are whole; round first")
        return numbers.astype(self.dtype)

    def signed(self, residues: Residues) -> npt.NDArray[np.int64]:
        """The numbers nearest to 0 that have these residues."""
        return residues.view(np.dtype(_TYPES[self.bits][1])).astype(np.int64)

    def split(self, numbers: npt.NDArray[np.integer], coins: Coins) -> tuple[Residues, Residues]:
        """Two uniform halves that add up to the numbers."""
        whole = self.residues(numbers)
        first = np.frombuffer(coins.secure().bytes(whole.nbytes), self.dtype).reshape(whole.shape)
        return first, whole - first

    def carried(self, residues: Residues) -> Tensor:
        """Residues as the wire carries them."""
        return torch.from_numpy(np.ascontiguousarray(residues).view(np.dtype(_TYPES[self.bits][1])))

    def read(self, carried: Tensor) -> Residues:
        """Residues as they came over the wire."""
        return carried.numpy().view(self.dtype)

    def field(self, name: str, *shape: int) -> Field:
        """The field of a message that holds residues: all values of its type are residues, so none is refused."""
        return Field(name, _TYPES[self.bits][1], shape)


Z32, Z64 = Ring(32), Ring(64)


def kind(prefix: str, step: str | int) -> str:
    """The kind of one step of a gate. Raises: SpecError when the wire has no room for its name."""
    name = f"{prefix}.{step}"
    if len(name.encode()) > KIND:
        raise SpecError(f"prefix = {prefix!r}: the kind {name!r} has more than {KIND} bytes; use a shorter prefix")
    return name


def swap(peer: str, kind: str, body: Mapping[str, Tensor]) -> SubFlow:
    """Send the peer a letter and return the body of its letter of that kind: one round."""
    (got,) = yield Exchange((Letter(peer, kind, body),), Wait(kind, (peer,)))
    return got.body


def opened(peer: str, kind: str, ring: Ring, share: Residues) -> SubFlow:
    """The number that both shares add up to. Reveals: it, to both."""
    body = yield from swap(peer, kind, {"value": ring.carried(share)})
    return share + ring.read(body["value"])


def schema(ring: Ring, *shape: int) -> Schema:
    """The letter that opens residues."""
    return Schema((ring.field("value", *shape),))
