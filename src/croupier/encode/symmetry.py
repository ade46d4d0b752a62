"""The symmetries of a network: which axes of its tensors may be permuted together without changing what it computes.

Every axis of every tensor is made of *factors*, and each factor belongs to a named *group* or stays as it is for a
stated reason. A *rule* is one permutation for each group; under it the tensors, and the inputs, are indexed alike.
`symmetry.rule(secret, round)` gives the rule of a secret of 32 bytes, `symmetry.permute_inputs(x, rule)` moves inputs.

`learn.axes` finds a symmetry by watching a network; it may also be declared by hand. `encode.hidden` permutes by it,
and attacks (`audit.match`) search for the rule with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
from torch import Tensor

from croupier.core.coins import Coins, Node
from croupier.core.update import Layout
from croupier.encode.shuffled import Grid, Shuffled, Side, grid
from croupier.errors import RangeError, SpecError

Ints = npt.NDArray[np.int64]
Sides = dict[tuple[str | tuple[int, int], ...], Side]


@dataclass(frozen=True)
class Factor:
    """One digit of the position along an axis, counted from the most significant: a channel of a flattened picture.

    A group may be spread over several digits of one tensor (the row and the column of a patch); `digit` says which of
    the group's own digits this is. A factor without a group stays as it is, for `reason`.
    """

    size: int
    group: str = ""
    reason: str = ""
    digit: int = 0

    def __post_init__(self) -> None:
        if self.size < 1 or bool(self.group) == bool(self.reason):
            raise SpecError(f"{self!r}: a factor has a size, and either a group or the reason why it is fixed")


Block = tuple[Factor, ...]


@dataclass(frozen=True)
class Axis:
    """Blocks one after the other (what was concatenated), each a product of factors (what was flattened)."""

    blocks: tuple[Block, ...]

    @cached_property
    def size(self) -> int:
        """How long it is."""
        return sum(prod(factor.size for factor in block) for block in self.blocks)


@dataclass(frozen=True)
class Held:
    """A part of an axis that stays as it is, and why."""

    tensor: str
    axis: int
    size: int
    reason: str


def free(group: str, size: int) -> Axis:
    """An axis that is one group."""
    return Axis(((Factor(size, group),),))


def fixed(size: int, reason: str) -> Axis:
    """An axis that stays as it is."""
    return Axis(((Factor(size, reason=reason),),))


@dataclass(frozen=True)
class Rule:
    """One permutation for each group: entry i of a permuted axis is entry `permutation[i]` of the plain one.

    Made by `Symmetry.rule` or `Symmetry.draw`. What it looks like in print tells groups and sizes, and no order.
    """

    of: Mapping[str, Ints]

    def __repr__(self) -> str:
        return f"Rule({', '.join(f'{name}: {len(found)} places' for name, found in self.of.items())})"

    def __post_init__(self) -> None:
        for name, permutation in self.of.items():
            if not np.array_equal(np.sort(permutation), np.arange(len(permutation))):
                raise RangeError(f"the rule's entry for {name!r} is no permutation")

    def still(self) -> dict[str, float]:
        """The share of each group's places that stay where they were."""
        return {name: float(np.mean(found == np.arange(len(found)))) for name, found in self.of.items()}


@dataclass(frozen=True)
class Sheet:
    """One block of a carried tensor with a side for each use of a group, and one more for all that stays as it is.

    `sides` and `rest` are offsets from `at` in the vector; a group may have two sides (a recurrent matrix).
    """

    tensor: str
    at: int
    groups: tuple[str, ...]
    sides: tuple[Ints, ...] = field(repr=False)
    rest: Ints = field(repr=False)

    def of(self, vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The numbers of a vector of the layout, one axis for each side and a last one for the rest."""
        index = np.full((1,) * len(self.sides) + (1,), self.at, np.int64)
        for number, offsets in enumerate((*self.sides, self.rest)):
            index = index + offsets.reshape([-1 if axis == number else 1 for axis in range(len(self.sides) + 1)])
        return vector[index]


@dataclass(frozen=True)
class Symmetry:
    """Which group each axis of the carried tensors and of one input belongs to.

    Built by tracing a network (`learn.axes`), or declared: `axes` names the axes of each carried tensor, `inputs` those
    of one input, the batch left out. Raises: SpecError when they do not fit the layout or each other.
    """

    layout: Layout
    axes: Mapping[str, tuple[Axis, ...]]
    inputs: tuple[Axis, ...]

    def __post_init__(self) -> None:
        for part in self.layout.carried:
            if part.name not in self.axes:
                raise SpecError(f"the symmetry says nothing of {part.name!r}: declare its {len(part.shape)} axes")
            sizes = tuple(axis.size for axis in self.axes[part.name])
            if sizes != part.shape:
                raise SpecError(f"{part.name!r} has shape {part.shape}, but axes of sizes {sizes} are declared")
        if unknown := set(self.axes) - {part.name for part in self.layout.carried}:
            raise SpecError(f"the symmetry speaks of {min(unknown)!r}, which the network does not carry")
        _ = self.groups

    @cached_property
    def groups(self) -> Mapping[str, int]:
        """Each group and its size, in order of the tensors. Raises: SpecError when a group has two sizes."""
        found: dict[str, int] = {}
        for tensor, axes in self._tensors():
            for blocks in product(*(axis.blocks for axis in axes)):
                for name, size in _sizes(tensor, blocks):
                    if found.setdefault(name, size) != size:
                        raise SpecError(f"group {name!r} has {found[name]} places, but {size} in {tensor!r}")
        return found

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """Every axis, or part of one, that stays as it is, and why; nothing of size 1."""
        found: dict[Held, None] = {}
        for tensor, axes in self._tensors():
            for number, axis in enumerate(axes):
                for factor in (factor for block in axis.blocks for factor in block if factor.reason):
                    if factor.size > 1:
                        found[Held(tensor, number, factor.size, factor.reason)] = None
        return tuple(found)

    def says(self) -> tuple[str, ...]:
        """Lines of a statement: what is permuted, and what stays and why, tensors with one reason together."""
        stays: dict[str, list[str]] = {}
        for held in self.held:
            stays.setdefault(held.reason, []).append(f"{held.tensor} axis {held.axis}")
        return (
            *(f"{group}: {size} places are permuted" for group, size in self.groups.items()),
            *(
                f"stays as it is, because {reason}: {', '.join(dict.fromkeys(names))}"
                for reason, names in stays.items()
            ),
        )

    def brief(self) -> str:
        """What is permuted, in one line, and whether that is anything of the hidden units."""
        own = {factor.group for axis in self.inputs for block in axis.blocks for factor in block}
        hidden = {name: size for name, size in self.groups.items() if name not in own}
        entry = ", ".join(f"{size} of {name}" for name, size in self.groups.items() if name in own)
        if not hidden:
            return f"no hidden unit of this network can be permuted, only inputs ({entry or 'and these neither'})"
        return (
            f"permuted: {sum(hidden.values())} hidden units in {len(hidden)} groups; inputs: {entry or 'none'}; "
            f"axes that stay as they are: {len(self.held)}"
        )

    def draw(self, coins: Node, number: int) -> Rule:
        """The rule of one round from coins (`Coins.from_os()`, or `Coins.from_seed(1)` to have it again).

        Each group's permutation has a node of its own, so that no order matters.
        """
        return Rule(
            {name: coins.child("rule", number, name).secure().permutation(size) for name, size in self.groups.items()}
        )

    def rule(self, seed: bytes, number: int) -> Rule:
        """The rule that a secret of 32 bytes gives for one round: who has the secret has the rule of every round.

        Clients agree on it; for an experiment `secrets.token_bytes(32)` makes one. Raises: RangeError.
        """
        if not isinstance(seed, bytes) or len(seed) != 32:
            given = f"{len(seed)} bytes" if isinstance(seed, bytes) else f"a value of type {type(seed).__name__}"
            raise RangeError(f"seed: the secret of a rule is 32 bytes, not {given}; secrets.token_bytes(32) makes one")
        return self.draw(Coins(seed), number)

    def under(self, rule: Rule) -> Shuffled:
        """What moves where under a rule, worked out once for any number of vectors. Raises: RangeError."""
        for name, size in self.groups.items():
            if name not in rule.of or len(rule.of[name]) != size:
                raise RangeError(f"the rule has no permutation of {size} places for group {name!r}")
        weights = sum(part.size for part in self.layout.carried if part.role == "weight")
        tensors, inputs = self._grids
        shape = tuple(axis.size for axis in self.inputs)
        return Shuffled(self.layout.size, weights, tensors, shape, inputs, rule.of)

    @cached_property
    def _grids(self) -> tuple[tuple[Grid, ...], tuple[Grid, ...]]:
        """How the tensors, and one input, are taken apart: the same whatever the rule."""
        sides: Sides = {}
        tensors = [
            found
            for part, start, _ in self.layout.spans()
            for found in _grids(self.axes[part.name], part.shape, start, sides)
        ]
        shape = tuple(axis.size for axis in self.inputs)
        return tuple(tensors), tuple(_grids(self.inputs, shape, 0, sides))

    def sheets(self) -> Iterator[Sheet]:
        """Every carried tensor, block by block, with the groups of its sides."""
        for part, start, _ in self.layout.spans():
            if part.name in self.axes:
                yield from _sheets(part.name, self.axes[part.name], part.shape, start)

    def apply(self, vector: Tensor, rule: Rule) -> Tensor:
        """A vector of this layout (a model, a difference, an optimiser's state) in the rule's coordinates."""
        return self.under(rule).apply(vector)

    def invert(self, vector: Tensor, rule: Rule) -> Tensor:
        """A vector in the rule's coordinates as it was before."""
        return self.under(rule).invert(vector)

    def permute_inputs(self, batch: Tensor, rule: Rule) -> Tensor:
        """A batch of inputs as the network under the rule takes them. Raises: RangeError on inputs of another shape."""
        return self.under(rule).permute(batch)

    def _tensors(self) -> Iterator[tuple[str, tuple[Axis, ...]]]:
        yield "input", self.inputs
        yield from ((part.name, self.axes[part.name]) for part in self.layout.carried)


def _sizes(tensor: str, blocks: tuple[Block, ...]) -> Iterator[tuple[str, int]]:
    """The groups of one block of a tensor, each with its size. Raises: SpecError when one lacks a digit."""
    for group, places in _uses(tensor, blocks, (1,) * len(blocks)):
        yield group, prod(size for size, _ in places)


def _uses(
    tensor: str, blocks: tuple[Block, ...], strides: tuple[int, ...]
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Per use of a group in a block: the group, and size and stride of its digits, most significant first.

    A group may be used twice (rows and columns of a recurrent matrix): a digit that was seen already begins a new use.
    """
    begun: dict[str, list[dict[int, tuple[int, int]]]] = {}
    for block, width in zip(blocks, strides, strict=True):
        stride = width
        for factor in reversed(block):
            if factor.group:
                uses = begun.setdefault(factor.group, [])
                if not uses or factor.digit in uses[-1]:
                    uses.append({})
                uses[-1][factor.digit] = (factor.size, stride)
            stride *= factor.size
    for group, uses in begun.items():
        for digits in uses:
            if sorted(digits) != list(range(len(digits))):
                raise SpecError(f"group {group!r} has only the digits {sorted(digits)} in {tensor!r}")
            yield group, [digits[number] for number in range(len(digits))]


def _grids(axes: tuple[Axis, ...], shape: tuple[int, ...], start: int, sides: Sides) -> Iterator[Grid]:
    """A tensor that begins at `start`, one grid for each combination of blocks."""
    strides = tuple(prod(shape[number + 1 :]) for number in range(len(shape)))
    for chosen in product(*(_placed(axis) for axis in axes)):
        at = start + sum(offset * stride for (offset, _), stride in zip(chosen, strides, strict=True))
        yield _grid(at, tuple(block for _, block in chosen), strides, sides)


def _sheets(tensor: str, axes: tuple[Axis, ...], shape: tuple[int, ...], start: int) -> Iterator[Sheet]:
    """The blocks of a tensor, each with the offsets of its groups and of what stays."""
    strides = tuple(prod(shape[number + 1 :]) for number in range(len(shape)))
    for chosen in product(*(_placed(axis) for axis in axes)):
        at = start + sum(offset * stride for (offset, _), stride in zip(chosen, strides, strict=True))
        blocks = tuple(block for _, block in chosen)
        uses = list(_uses(tensor, blocks, strides))
        rest = _offsets(list(_still(blocks, strides)))
        yield Sheet(tensor, at, tuple(name for name, _ in uses), tuple(_offsets(places) for _, places in uses), rest)


def _still(blocks: tuple[Block, ...], strides: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Size and stride of the factors of a block that belong to no group."""
    for block, width in zip(blocks, strides, strict=True):
        stride = width
        for factor in reversed(block):
            if not factor.group and factor.size > 1:
                yield factor.size, stride
            stride *= factor.size


def _placed(axis: Axis) -> Iterator[tuple[int, Block]]:
    """The blocks of an axis, each with its first place."""
    start = 0
    for block in axis.blocks:
        yield start, block
        start += prod(factor.size for factor in block)


def _grid(at: int, blocks: tuple[Block, ...], strides: tuple[int, ...], sides: Sides) -> Grid:
    """One block: the offsets along each use of a group, the fixed digits among them; equal sides are one."""
    found: list[tuple[int, Side]] = []
    for group, places in (*_uses("a tensor", blocks, strides), *(("", [place]) for place in _still(blocks, strides))):
        side = sides.setdefault((group, *places), Side(group, _offsets(places)))
        found.append((min(stride for _, stride in places), side))
    found.sort(key=lambda pair: -pair[0])
    return grid(at, [side for _, side in found])


def _offsets(places: list[tuple[int, int]]) -> Ints:
    """How far each place of a group lies from its first, in coordinates of the vector."""
    found = np.zeros(1, np.int64)
    for size, stride in places:
        found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return found
