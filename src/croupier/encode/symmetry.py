"""The symmetries of a network: which axes of its tensors may be permuted together without changing what it computes.

Every axis of every tensor is made of *factors*, and each factor belongs to a named *group* or stays as it is for a
stated reason. A *rule* is one permutation for each group; under it the tensors, and the inputs, are indexed alike.
`symmetry.rule(secret, round)` gives the rule of a secret of 32 bytes, `symmetry.permute_inputs(x, rule)` moves inputs.

`learn.axes` finds a symmetry by watching a network; it may also be declared by hand. Tazza's clients permute by it
(`encode.hidden`, through `encode.permuting`), and attacks search for the rule with it (`learn.axes.matching`, the
audit's question `permutation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from torch import Tensor

from croupier.core.coins import Coins, Ints, Node
from croupier.core.update import Layout
from croupier.encode.axes import Axis, FixedAxis
from croupier.encode.blocks import Sheet, Sides, group_sizes, tensor_blocks, tensor_sheets
from croupier.encode.shuffled import Shuffled, TensorBlock
from croupier.errors import RangeError, SpecError


@dataclass(frozen=True)
class Rule:
    """One permutation for each group: entry i of a permuted axis is entry `permutation[i]` of the plain one.

    Made by `Symmetry.rule` or `Symmetry.draw`. Printed, it shows groups and sizes only: the order is a secret.
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
                for name, size in group_sizes(tensor, blocks):
                    if found.setdefault(name, size) != size:
                        raise SpecError(f"group {name!r} has {found[name]} places, but {size} in {tensor!r}")
        return found

    @cached_property
    def held(self) -> tuple[FixedAxis, ...]:
        """Every axis, or part of one, that stays as it is, and why; nothing of size 1."""
        found: dict[FixedAxis, None] = {}
        for tensor, axes in self._tensors():
            for number, axis in enumerate(axes):
                for factor in (factor for block in axis.blocks for factor in block if factor.reason):
                    if factor.size > 1:
                        found[FixedAxis(tensor, number, factor.size, factor.reason)] = None
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
        tensors, inputs = self._blocks
        shape = tuple(axis.size for axis in self.inputs)
        return Shuffled(self.layout.size, weights, tensors, shape, inputs, rule.of)

    @cached_property
    def _blocks(self) -> tuple[tuple[TensorBlock, ...], tuple[TensorBlock, ...]]:
        """How the tensors, and one input, are taken apart: the same whatever the rule."""
        sides: Sides = {}
        tensors = [
            found
            for part, start, _ in self.layout.spans()
            for found in tensor_blocks(self.axes[part.name], part.shape, start, sides)
        ]
        shape = tuple(axis.size for axis in self.inputs)
        return tuple(tensors), tuple(tensor_blocks(self.inputs, shape, 0, sides))

    def sheets(self) -> Iterator[Sheet]:
        """Every carried tensor, block by block, with the groups of its sides; for `learn.axes.matching`."""
        for part, start, _ in self.layout.spans():
            if part.name in self.axes:
                yield from tensor_sheets(part.name, self.axes[part.name], part.shape, start)

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
