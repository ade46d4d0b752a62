"""What a dealer deals two parties beforehand: numbers that fit together, each half of them uniform.

Such correlated randomness is sent compressed: one side's half is a seed; the other's is a seed for what is free and an
explicit part ("fitted") for what has to fit. The dealer sees no message of the parties; with one of them it reads all.

A gate has functions for the dealer (`Dealer`) and for the parties (`ShareReader`), which must draw in the same order.
The gates are `boolean`, `products`, `compare`, `ranks`, `signs` and `trust`. `products`, `compare`, `signs` and `trust`
also say how many bytes of the explicit part they need (`fitted`): a half of another size is refused before anything is
sent, and does not end in a wrong result. `place.two_servers.scoring` sends the halves as letters. The shuffle has a
dealer of its own (`mpc.dealer`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.wire import Field, Schema
from croupier.errors import ProtocolError
from croupier.mpc.ring import Ring

Words = npt.NDArray[np.uint64]
Residues = npt.NDArray[np.unsignedinteger]
Shape = tuple[int, ...]
WORD = np.dtype("<u8")
_SEED = 32


class DealtShare:
    """One party's half for one gate. It can be opened or sent once, and is empty afterwards."""

    __slots__ = ("_kept", "side")

    def __init__(self, side: int, seed: bytes, fitted: npt.NDArray[np.uint8]) -> None:
        self.side = side
        self._kept: tuple[bytes, npt.NDArray[np.uint8]] | None = (seed, fitted)

    def __repr__(self) -> str:
        return f"DealtShare({self.side}, {'kept' if self._kept else 'spent'})"

    @classmethod
    def received(cls, side: int, body: Mapping[str, Tensor]) -> DealtShare:
        """The half that a dealer's letter holds."""
        return cls(side, body["seed"].numpy().tobytes(), body["fitted"].numpy())

    def body(self) -> dict[str, Tensor]:
        """The half as a letter's body; whoever sends it keeps nothing."""
        seed, fitted = self._spend()
        return {"seed": torch.frombuffer(bytearray(seed), dtype=torch.uint8), "fitted": torch.from_numpy(fitted)}

    def open(self, side: int, fitted: int) -> ShareReader:
        """What was dealt, to be drawn in order; `fitted` is the size of its explicit part. Call it before sending.

        Raises: ProtocolError the second time, and when it was dealt for the other party or for another size.
        """
        if side != self.side:
            raise ProtocolError(f"party {side} was handed what was dealt for party {self.side}; deal to each its own")
        seed, held = self._spend()
        if side and len(held) != fitted:
            raise ProtocolError(f"a hand of {len(held)} bytes for a gate that needs {fitted}; deal for this very size")
        return ShareReader(side, seed, held)

    def _spend(self) -> tuple[bytes, npt.NDArray[np.uint8]]:
        if self._kept is None:
            raise ProtocolError("a hand was used before, and a mask that hides two values hides neither; deal anew")
        kept, self._kept = self._kept, None
        return kept


class ShareReader:
    """An opened half: uniform halves, and halves that fit what was drawn before."""

    def __init__(self, side: int, seed: bytes, fitted: npt.NDArray[np.uint8]) -> None:
        self._side, self._stream, self._fitted, self._at = side, Coins(seed).secure(), fitted, 0

    def words(self, shape: Shape) -> Words:
        """Halves of random words, shared by XOR."""
        return np.frombuffer(self._stream.bytes(_size(shape, WORD)), WORD).reshape(shape)

    def residues(self, ring: Ring, shape: Shape) -> Residues:
        """Halves of random residues, shared by addition."""
        return np.frombuffer(self._stream.bytes(_size(shape, ring.dtype)), ring.dtype).reshape(shape)

    def fitted_words(self, shape: Shape) -> Words:
        """Halves of words that the dealer chose, shared by XOR."""
        return np.frombuffer(self._next(_size(shape, WORD)), WORD).reshape(shape)

    def fitted_residues(self, ring: Ring, shape: Shape) -> Residues:
        """Halves of residues that the dealer chose, shared by addition."""
        return np.frombuffer(self._next(_size(shape, ring.dtype)), ring.dtype).reshape(shape)

    def _next(self, size: int) -> bytes | bytearray:
        if not self._side:
            return self._stream.bytes(size)
        start, self._at = self._at, self._at + size
        # A copy is aligned, wherever the piece lies.
        return self._fitted[start : self._at].tobytes()


class Dealer:
    """Deals both halves in the order in which the parties draw."""

    def __init__(self, coins: Coins) -> None:
        self._seeds = tuple(coins.child("hand", side).export() for side in (0, 1))
        self._readers = tuple(ShareReader(0, seed, np.empty(0, np.uint8)) for seed in self._seeds)
        self._fitted: list[npt.NDArray[np.uint8]] = []

    def words(self, shape: Shape) -> Words:
        """Uniform words that neither party knows."""
        return self._readers[0].words(shape) ^ self._readers[1].words(shape)

    def residues(self, ring: Ring, shape: Shape) -> Residues:
        """Uniform residues that neither party knows."""
        return self._readers[0].residues(ring, shape) + self._readers[1].residues(ring, shape)

    def fit_words(self, secret: Words) -> None:
        """Deal halves of these words."""
        self._keep(secret ^ self._readers[0].fitted_words(secret.shape))

    def fit_residues(self, ring: Ring, secret: Residues) -> None:
        """Deal halves of these residues."""
        self._keep(secret - self._readers[0].fitted_residues(ring, secret.shape))

    def halves(self) -> tuple[DealtShare, DealtShare]:
        """Both halves: a seed, and a seed with what fits."""
        none = np.empty(0, np.uint8)
        fitted = np.concatenate([none, *self._fitted])
        return DealtShare(0, self._seeds[0], none), DealtShare(1, self._seeds[1], fitted)

    def _keep(self, half: npt.NDArray[np.unsignedinteger]) -> None:
        self._fitted.append(np.ascontiguousarray(half).reshape(-1).view(np.uint8))


def schema(side: int, fitted: int) -> Schema:
    """The letter that carries a half, whose explicit part has so many bytes for party 1 and none for party 0."""
    return Schema((Field("seed", "|u1", (_SEED,)), Field("fitted", "|u1", (fitted if side else 0,))))


def _size(shape: Shape, dtype: np.dtype[np.unsignedinteger]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
