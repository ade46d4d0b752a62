"""A vector and its inputs under a rule: what moves where, worked out once.

A rule is a permutation for each group of hidden units. `encode.symmetry` says which axes belong together; this file
turns that and one rule into moves of memory (`kernels.moves`), so that permuting a model costs about two copies of it.
On another device than the CPU every number is indexed by itself. `encode.permuting` keeps the latest `Shuffled` for
clients, and `croupier bench tazza` times it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.errors import RangeError
from croupier.kernels.moves import Way, Ways, is_packed

Ints = npt.NDArray[np.int64]
Permutations = Mapping[str, Ints]
# Sums of offsets that were worked out already, by the sides that they are made of: many tensors have the same ones.
Known = dict[tuple[int, ...], Ints]
# Columns of a row are taken together up to this many numbers, which the nearer caches hold.
WIDE = 1 << 13
# Numbers travel as words of their size: torch has kinds that numpy does not know.
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class BlockSide:
    """How far the places of a group lie from its first; without a group, those of an axis that stays as it is."""

    group: str
    offsets: Ints = field(repr=False)

    def under(self, rule: Permutations) -> Ints:
        """The offset of the place that each place's number comes from, under a rule."""
        return self.offsets[rule[self.group]] if self.group else self.offsets


@dataclass(frozen=True, eq=False)
class TensorBlock:
    """One block of a tensor, whatever the rule: sides that are rows, sides that are columns, and runs of neighbours.

    The block begins at `at`; a run of `run` neighbours stays together. `kernels.moves.Way` says what becomes of it.
    """

    at: int
    rows: tuple[BlockSide, ...]
    columns: tuple[BlockSide, ...]
    run: int

    def way(self, rule: Permutations, known: Known) -> Way:
        """What moves where under a rule."""
        before = _added(self.columns, rule, known)
        return Way(
            (self._rows, self.at + _added(self.rows, rule, known)), (self._columns, before), self.run, self._packed
        )

    @cached_property
    def _rows(self) -> Ints:
        return self.at + _outer([side.offsets for side in self.rows])

    @cached_property
    def _columns(self) -> Ints:
        return _outer([side.offsets for side in self.columns])

    @cached_property
    def _packed(self) -> bool:
        return is_packed(self._columns, self.run)


def grid(at: int, sides: Sequence[BlockSide]) -> TensorBlock:
    """The block that begins at `at` and has these sides, the widest stride first.

    Its last sides without a group are a run. The side before them, and as many as fit `WIDE` numbers, are columns; the
    rest are rows.
    """
    rest, run = list(sides), 1
    while rest and not rest[-1].group and is_packed(rest[-1].offsets, run):
        run *= len(rest.pop().offsets)
    columns = [rest.pop()] if rest else []
    wide = run * prod(len(side.offsets) for side in columns)
    while rest and wide * len(rest[-1].offsets) <= WIDE:
        wide *= len(rest[-1].offsets)
        columns.insert(0, rest.pop())
    return TensorBlock(at, tuple(rest), tuple(columns), run)


def _added(sides: tuple[BlockSide, ...], rule: Permutations, known: Known) -> Ints:
    key = tuple(id(side) for side in sides)
    if key not in known:
        known[key] = _outer([side.under(rule) for side in sides])
    return known[key]


def _outer(offsets: Sequence[Ints]) -> Ints:
    found = offsets[0] if offsets else np.zeros(1, np.int64)
    for more in offsets[1:]:
        found = (found[:, None] + more).reshape(-1)
    return found


@dataclass(frozen=True)
class Shuffled:
    """What a rule does to vectors of one layout and to batches of inputs.

    `apply` and `invert` take the whole vector, of `size` coordinates, or only its `weights`, which come first: an
    optimiser's state. `shape` and `inputs` are those of one record.
    """

    size: int
    weights: int
    grids: tuple[TensorBlock, ...] = field(repr=False)
    shape: tuple[int, ...]
    inputs: tuple[TensorBlock, ...] = field(repr=False)
    rule: Permutations = field(repr=False)

    def apply(self, vector: Tensor, out: Tensor | None = None) -> Tensor:
        """The vector in the rule's coordinates."""
        return self._carry(vector, self._there, out) if _near(vector) else self._select(vector, self._index, out)

    def invert(self, vector: Tensor, out: Tensor | None = None) -> Tensor:
        """A vector in the rule's coordinates as it was before."""
        if _near(vector):
            return self._carry(vector, self._back, out)
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

    def _carry(self, vector: Tensor, ways: Ways, out: Tensor | None) -> Tensor:
        self._check(vector)
        out = torch.empty_like(vector, memory_format=torch.contiguous_format) if out is None else out
        if out.shape != vector.shape or out.dtype != vector.dtype or not (out.is_contiguous() and _near(out)):
            raise RangeError(f"out has shape {tuple(out.shape)} and {out.dtype}, but must be like the vector")
        given = vector.detach().contiguous()
        if given.untyped_storage().data_ptr() == out.untyped_storage().data_ptr():
            raise RangeError("out is the vector itself: numbers cannot change places within it")
        word = WORDS.get(vector.element_size(), vector.dtype)
        ways.carry(out.detach().view(word).numpy(), given.view(word).numpy())
        return out

    def prepare(self) -> None:
        """Work out now, both ways, what is otherwise worked out when first asked for."""
        self._there.prepare()
        self._back.prepare()

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """What moves where in the vector."""
        return _ways(self.grids, self.rule)

    @cached_property
    def _there(self) -> Ways:
        return Ways(self.ways)

    @cached_property
    def _back(self) -> Ways:
        return Ways(_ways(self.grids, {name: inverse(found) for name, found in self.rule.items()}))

    @cached_property
    def _index(self) -> Tensor:
        """For each coordinate of the permuted vector the one it comes from."""
        return _index(self.ways, self.size)

    @cached_property
    def _pixels(self) -> Tensor:
        return _index(_ways(self.inputs, self.rule), prod(self.shape))


def inverse(permutation: Ints) -> Ints:
    """The permutation that undoes it."""
    found = np.empty_like(permutation)
    found[permutation] = np.arange(len(permutation))
    return found


def _ways(grids: tuple[TensorBlock, ...], rule: Permutations) -> tuple[Way, ...]:
    known: Known = {}
    return tuple(part.way(rule, known) for part in grids)


def _near(vector: Tensor) -> bool:
    return vector.device.type == "cpu"


def _index(ways: tuple[Way, ...], size: int) -> Tensor:
    found = np.arange(size)
    for part in ways:
        to, source = part.places()
        found[to] = source
    return torch.from_numpy(found)
