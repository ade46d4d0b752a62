"""Axes: what the sides of a network's tensors are made of, for who permutes some of them and not others.

Hidden units of a network can be put in another order if all tensors that touch them follow; other axes (classes, say)
must stay. Every axis is made of *factors*, and each factor belongs to a named *group* or stays as it is for a stated
reason. `learn.axes.trace` finds them by watching a network run; `encode.symmetry` permutes by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from croupier.errors import SpecError


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


# The factors of one stretch of an axis, the most significant first.
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
class FixedAxis:
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
