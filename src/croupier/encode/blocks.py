"""Where the groups of a tensor lie in the flat vector: blocks with offsets, the same whatever the permutation.

A tensor with concatenated axes is taken apart into one block for each combination. `encode.symmetry` makes moves of
memory out of them once (`tensor_blocks`), and `learn.axes.matching`, the attack on a secret order, compares the values
along their sides (`tensor_sheets`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Ints
from croupier.encode.axes import Axis, Block
from croupier.encode.shuffled import BlockSide, TensorBlock, grid
from croupier.errors import SpecError

# Sides that were made already, by group and by size and stride of its digits: many tensors share them.
Sides = dict[tuple[str | tuple[int, int], ...], BlockSide]


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


def group_sizes(tensor: str, blocks: tuple[Block, ...]) -> Iterator[tuple[str, int]]:
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


def tensor_blocks(axes: tuple[Axis, ...], shape: tuple[int, ...], start: int, sides: Sides) -> Iterator[TensorBlock]:
    """The parts that a tensor which begins at `start` is moved in, one for each combination of its axes' blocks."""
    strides = tuple(prod(shape[number + 1 :]) for number in range(len(shape)))
    for chosen in product(*(_placed(axis) for axis in axes)):
        at = start + sum(offset * stride for (offset, _), stride in zip(chosen, strides, strict=True))
        yield _tensor_block(at, tuple(block for _, block in chosen), strides, sides)


def tensor_sheets(tensor: str, axes: tuple[Axis, ...], shape: tuple[int, ...], start: int) -> Iterator[Sheet]:
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


def _tensor_block(at: int, blocks: tuple[Block, ...], strides: tuple[int, ...], sides: Sides) -> TensorBlock:
    """One block: the offsets along each use of a group, the fixed digits among them; equal sides are one."""
    found: list[tuple[int, BlockSide]] = []
    for group, places in (*_uses("a tensor", blocks, strides), *(("", [place]) for place in _still(blocks, strides))):
        side = sides.setdefault((group, *places), BlockSide(group, _offsets(places)))
        found.append((min(stride for _, stride in places), side))
    found.sort(key=lambda pair: -pair[0])
    return grid(at, [side for _, side in found])


def _offsets(places: list[tuple[int, int]]) -> Ints:
    """How far each place of a group lies from its first, in coordinates of the vector."""
    found = np.zeros(1, np.int64)
    for size, stride in places:
        found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return found
