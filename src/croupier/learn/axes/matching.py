"""Weight matching: the order of a network's hidden units, from another network that it is nearly equal to otherwise.

What never moves (the classes, a kernel's places) anchors the search: each group of units is assigned with the others
held, first the groups that most is known about, then over and over in the reverse of that order until nothing changes.
No seed is searched for, and the number of permutations does not matter. So `audit.attacks.permutation` and attacks of
the laboratory bring permuted uploads into the order of the model that was handed out; `audit.questions.permutation`
scores the orders by `shares`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins, Ints
from croupier.encode.blocks import Sheet
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError

Floats = npt.NDArray[np.float64]
# More passes than any network needed until nothing changed.
SWEEPS = 30
# A tensor that fits exactly would outweigh all others without end.
FLOOR = 1e-6


@dataclass(frozen=True)
class Matched:
    """A rule as it was recovered, and how far the model under it is from the upload (0 is equal)."""

    rule: Rule
    apart: float


def match(reference: Tensor, upload: Tensor, symmetry: Symmetry, coins: Coins) -> Matched:
    """The rule under which the reference lies nearest to the upload, by alternating linear assignment.

    In the first pass groups whose neighbours are not known yet are compared by the sorted values along these. Ties fall
    at random. Raises: RangeError on other lengths.
    """
    both = Comparison(reference, upload, symmetry)
    known = both.first(coins.child("first"))
    for sweep in range(SWEEPS):
        both.weigh(known)
        before = dict(known)
        for group in reversed(both.order):
            known[group] = assigned(both.scores(group, known), coins.child("sweep", sweep, group))
        if all(np.array_equal(before[group], known[group]) for group in known):
            break
    rule = Rule(known)
    return Matched(rule, apart(reference, upload, symmetry, rule))


def after(first: Rule, second: Rule) -> Rule:
    """The rule that does what `second` does to a model that is under `first` already."""
    return Rule({group: order[second.of[group]] for group, order in first.of.items()})


def apart(reference: Tensor, upload: Tensor, symmetry: Symmetry, rule: Rule) -> float:
    """The distance of the upload from the reference under a rule, over the upload's own length."""
    length = float(torch.linalg.vector_norm(upload.double()))
    here = torch.linalg.vector_norm(upload.double() - symmetry.apply(reference, rule).double())
    return float(here) / length if length else float(here)


def shares(found: Rule, true: Rule) -> dict[str, float]:
    """The share of each group's places that were recovered: only the scorer knows the truth."""
    return {group: float(np.mean(found.of[group] == order)) for group, order in true.of.items()}


def assigned(scores: Floats, coins: Coins) -> Ints:
    """For each row the column it is given, with the highest sum; ties fall at random and not by place."""
    from scipy.optimize import linear_sum_assignment

    generator = coins.fast()
    rows, columns = (torch.randperm(size, generator=generator).numpy() for size in scores.shape)
    taken, given = linear_sum_assignment(scores[rows][:, columns], maximize=True)
    found = np.empty(len(rows), np.int64)
    found[rows[taken]] = columns[given]
    return found


class Comparison:
    """Both models, sheet by sheet (`encode.blocks.Sheet`), and how much each sheet counts.

    `ours` is the reference, a model that was handed out; `theirs` is the upload, whose order is looked for.
    """

    def __init__(self, reference: Tensor, upload: Tensor, symmetry: Symmetry) -> None:
        size = symmetry.layout.size
        if tuple(reference.shape) != (size,) or tuple(upload.shape) != (size,):
            shapes = f"{tuple(reference.shape)} and {tuple(upload.shape)}"
            raise RangeError(f"models of shapes {shapes}, but the symmetry is of ({size},)")
        here, there = (vector.detach().cpu().double().numpy() for vector in (reference, upload))
        self.sheets: list[Sheet] = [sheet for sheet in symmetry.sheets() if sheet.groups]
        self.ours = [sheet.of(here) for sheet in self.sheets]
        self.theirs = [sheet.of(there) for sheet in self.sheets]
        # Values that are all alike tell nothing, and layers differ in scale.
        self.weights = [0.0 if part.var() < 1e-24 else 1 / part.var() for part in self.ours]
        self.groups = symmetry.groups
        self.order: list[str] = []

    def first(self, coins: Coins) -> dict[str, Ints]:
        """One pass: always the group next that most is known about."""
        known: dict[str, Ints] = {}
        while len(known) < len(self.groups):
            left = [group for group in self.groups if group not in known]
            widths = [self._width(group, known) for group in left]
            group = left[widths.index(max(widths))]
            known[group] = assigned(self.scores(group, known), coins.child(group))
            self.order.append(group)
        return known

    def weigh(self, known: Mapping[str, Ints]) -> None:
        """Let each sheet count by how well it fits so far, as if its misfit were noise."""
        for number, sheet in enumerate(self.sheets):
            if self.weights[number]:
                moved = self.ours[number][np.ix_(*(known[group] for group in sheet.groups))]
                misfit = float(np.mean((self.theirs[number] - moved) ** 2))
                self.weights[number] = 1 / (misfit + FLOOR * float(self.ours[number].var()))

    def weighed(self) -> Iterator[tuple[Sheet, Floats, Floats, float]]:
        """Every sheet that counts, with both models' values and its weight."""
        for sheet, ours, theirs, weight in zip(self.sheets, self.ours, self.theirs, self.weights, strict=True):
            if weight:
                yield sheet, ours, theirs, weight

    def scores(self, group: str, known: Mapping[str, Ints]) -> Floats:
        """How like each place of the upload (rows) is to each place of the reference (columns)."""
        size = self.groups[group]
        total = np.zeros((size, size))
        for sheet, ours, theirs, weight in self.weighed():
            for side in (number for number, name in enumerate(sheet.groups) if name == group):
                loose = [axis for axis, name in enumerate(sheet.groups) if axis != side and name not in known]
                fits = [known.get(name) if axis != side else None for axis, name in enumerate(sheet.groups)]
                total += weight * (lines(theirs, side, loose) @ lines(_moved(ours, fits), side, loose).T)
        return total

    def _width(self, group: str, known: Mapping[str, Ints]) -> int:
        """How many numbers of each place can be compared in order."""
        width = 0
        for sheet, ours, _, _ in self.weighed():
            for side in (number for number, name in enumerate(sheet.groups) if name == group):
                if all(name in known for axis, name in enumerate(sheet.groups) if axis != side):
                    width += ours.size // ours.shape[side]
        return width


def _moved(values: Floats, orders: Sequence[Ints | None]) -> Floats:
    for axis, order in enumerate(orders):
        if order is not None:
            values = np.take(values, order, axis)
    return values


def lines(values: Floats, side: int, loose: Sequence[int]) -> Floats:
    """One line of numbers for each place along a side; along sides of unknown order the values are sorted."""
    held = [axis for axis in range(values.ndim) if axis != side and axis not in loose]
    turned = values.transpose(side, *held, *loose)
    if loose:
        kept = int(np.prod([values.shape[axis] for axis in held], dtype=np.int64))
        turned = np.sort(turned.reshape(values.shape[side], kept, -1), axis=-1)
    return np.ascontiguousarray(turned).reshape(values.shape[side], -1)
