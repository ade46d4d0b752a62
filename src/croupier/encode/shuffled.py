"""A vector and its inputs under a rule: what moves where, worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.errors import RangeError
from croupier.kernels.moves import Way

Ints = npt.NDArray[np.int64]
Pair = tuple[Ints, Ints]


# Columns of a row are taken together up to this many numbers, which the nearer caches hold.
WIDE = 1 << 13


def way(at: int, pairs: Sequence[Pair]) -> Way:
    """From the offsets of each factor of a block that begins at `at`, the widest stride first."""
    rest, run = list(pairs), 1
    while rest and _runs_on(rest[-1], run):
        run *= len(rest.pop()[0])
    columns = rest.pop() if rest else (np.zeros(1, np.int64), np.zeros(1, np.int64))
    while rest and run * len(columns[0]) * len(rest[-1][0]) <= WIDE:
        columns = _outer(rest.pop(), columns)
    rows = (np.full(1, at, np.int64), np.full(1, at, np.int64))
    for pair in rest:
        rows = _outer(rows, pair)
    return Way(rows, columns, run)


def _outer(one: Pair, two: Pair) -> Pair:
    after, before = ((a[:, None] + b).reshape(-1) for a, b in zip(one, two, strict=True))
    return after, before


def _runs_on(pair: Pair, run: int) -> bool:
    """Whether this factor stays as it is and continues the run within it."""
    to, source = pair
    return to is source and bool(np.array_equal(to, np.arange(len(to)) * run))


@dataclass(frozen=True)
class Shuffled:
    """What a rule does to vectors of one layout and to batches of inputs.

    `apply` and `invert` take the whole vector, or only its weights, which come first: an optimiser's state.
    """

    size: int
    weights: int
    ways: tuple[Way, ...] = field(repr=False)
    shape: tuple[int, ...]
    inputs: tuple[Way, ...] = field(repr=False)

    def apply(self, vector: Tensor, out: Tensor | None = None) -> Tensor:
        """The vector in the rule's coordinates."""
        return self._carry(vector, self.ways, out) if _near(vector) else self._select(vector, self._index, out)

    def invert(self, vector: Tensor, out: Tensor | None = None) -> Tensor:
        """A vector in the rule's coordinates as it was before."""
        if _near(vector):
            return self._carry(vector, self.returning, out)
        return self._select(vector, torch.argsort(self._index), out)

    def permute(self, batch: Tensor) -> Tensor:
        """A batch of inputs as the network under the rule takes them. Raises: RangeError on another shape."""
        if tuple(batch.shape[1:]) != self.shape:
            raise RangeError(f"inputs have shape {tuple(batch.shape[1:])}, but the rule is for {self.shape}")
        return batch.flatten(1)[:, self._pixels.to(batch.device)].view(batch.shape)

    def restore(self, batch: Tensor) -> Tensor:
        """A batch of permuted inputs as they were before. Raises: RangeError on another shape."""
        if tuple(batch.shape[1:]) != self.shape:
            raise RangeError(f"inputs have shape {tuple(batch.shape[1:])}, but the rule is for {self.shape}")
        return batch.flatten(1)[:, torch.argsort(self._pixels).to(batch.device)].view(batch.shape)

    @property
    def still(self) -> float:
        """The share of the vector's coordinates that stay where they were."""
        return float((self._index == torch.arange(self.size)).double().mean())

    def _check(self, vector: Tensor) -> None:
        if vector.dim() != 1 or len(vector) not in (self.size, self.weights):
            raise RangeError(f"a vector has shape {tuple(vector.shape)}, but the rule is for ({self.size},)")

    def _select(self, vector: Tensor, index: Tensor, out: Tensor | None) -> Tensor:
        self._check(vector)
        return torch.index_select(vector, 0, index[: len(vector)].to(vector.device), out=out)

    def _carry(self, vector: Tensor, ways: tuple[Way, ...], out: Tensor | None) -> Tensor:
        self._check(vector)
        out = torch.empty_like(vector) if out is None else out
        given, done = vector.detach().contiguous().numpy(), out.numpy()
        for part in ways:
            if part.rows[0][0] < len(vector):
                part.carry(done, given)
        return out

    @cached_property
    def returning(self) -> tuple[Way, ...]:
        """The ways back, worked out when first asked for."""
        return tuple(part.back() for part in self.ways)

    @cached_property
    def _index(self) -> Tensor:
        """For each coordinate of the permuted vector the one it comes from."""
        return _index(self.ways, self.size)

    @cached_property
    def _pixels(self) -> Tensor:
        return _index(self.inputs, prod(self.shape))


def _near(vector: Tensor) -> bool:
    return vector.device.type == "cpu"


def _index(ways: tuple[Way, ...], size: int) -> Tensor:
    found = np.arange(size)
    for part in ways:
        to, source = part.places()
        found[to] = source
    return torch.from_numpy(found)
