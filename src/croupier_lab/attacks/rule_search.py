"""Ways to find the rule behind a permuted model other than weight matching (`croupier.learn.axes.matching`).

They are the search over parameters of Tazza's own paper in two readings, matching by sorted values alone, and trying
seed after seed of the paper's printed listing, which stands here too (`literal_listing1`). They show what attackers
find who know less or more than the paper's. Tazza's Figure 17 (`papers.tazza.parameter_search`) compares them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins, Ints
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import RangeError
from croupier.learn.axes.matching import Comparison, Matched, apart, assigned, lines

# `torch.manual_seed` takes 64 bits, of which the generator on the CPU uses these.
BITS = 32
Floats = npt.NDArray[np.float64]


def nearest_by_norm(reference: Tensor, upload: Tensor, coins: Coins) -> Ints:
    """For each column of the upload, the column of the reference whose length is the nearest.

    Tazza's section 7.6.1 says that the attacker minimises the L2 norm of the difference between parameters, and not
    how. A search that compares lengths and not entries is one reading of it, and about as good as guessing. Ties fall
    at random.
    """
    ours, theirs = (matrix.double().norm(dim=0) for matrix in (reference, upload))
    order = torch.randperm(len(ours), generator=coins.fast())
    return order[(theirs[:, None] - ours[order]).abs().argmin(1)].numpy().astype(np.int64)


def swapped(reference: Tensor, upload: Tensor, steps: int, coins: Coins) -> Ints:
    """A random order of columns, in which two are swapped wherever that lowers the L2 distance to the upload.

    This is the other reading of Tazza's section 7.6.1: the true objective under a search that ends after `steps` tries.
    """
    count, sampler = reference.shape[1], coins.sampler()
    order = sampler.permutation(count)
    likes = (upload.double().T @ reference.double()).numpy()
    for one, two in sampler.integers(0, count, (steps, 2)):
        a, b = order[one], order[two]
        if likes[one, b] + likes[two, a] > likes[one, a] + likes[two, b]:
            order[one], order[two] = b, a
    return order.astype(np.int64)


def match_sorted(reference: Tensor, upload: Tensor, symmetry: Symmetry, coins: Coins) -> Matched:
    """The rule from sorted values alone: every group by itself, with no anchor and no other group's help."""
    both = Comparison(reference, upload, symmetry)
    found = {group: assigned(_sorted_scores(both, group), coins.child(group)) for group in symmetry.groups}
    return Matched(Rule(found), apart(reference, upload, symmetry, Rule(found)))


def _sorted_scores(both: Comparison, group: str) -> Floats:
    """How like each place of the upload (rows) is to each place of the reference (columns), without any order."""
    total = np.zeros((both.groups[group],) * 2)
    for sheet, ours, theirs, weight in both.weighed():
        for side in (number for number, name in enumerate(sheet.groups) if name == group):
            others = [axis for axis in range(len(sheet.groups) + 1) if axis != side]
            total += weight * (lines(theirs, side, others) @ lines(ours, side, others).T)
    return total


def index_error(found: Ints, true: Ints) -> float:
    """How many places off an index is on average, which is the paper's measure of a found rule."""
    return float(np.abs(found - true).mean())


def blind_index_error(size: int) -> float:
    """The index error of a random order of this size: (n^2 - 1) / 3n."""
    return (size * size - 1) / (3 * size)


@dataclass(frozen=True)
class Sought:
    """What a search over seeds gave: the seeds that fit, how many were tried, and the seconds a trial."""

    seeds: tuple[int, ...]
    tried: int
    trial_s: float

    def core_hours(self, bits: int = BITS) -> float:
        """Hours that one core would need to try all seeds of so many bits; half of it on average."""
        return self.trial_s * float(2**bits) / 3600


def seek(reference: Tensor, upload: Tensor, seeds: Iterable[int], close: float = 0.5) -> Sought:
    """Try seeds of the printed listing on a first layer (rows are units): the order of its columns, by one row.

    A trial draws both orders as the listing does, and compares the reference's row that they put first, its columns
    moved by them, with the first row of the upload. `close` is the share of that row's length that training may have
    moved it by. In Tazza's Listing 1 the rule is an `int` given to `torch.manual_seed`. Raises: RangeError where the
    two layers differ in shape.
    """
    if reference.shape != upload.shape or reference.dim() != 2:
        raise RangeError(f"layers of shapes {tuple(reference.shape)} and {tuple(upload.shape)}: needs two alike")
    row, found, tried = upload[0], [], 0
    limit = close * float(row.norm())
    begun = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.manual_seed(seed)
            columns = torch.randperm(reference.shape[1])
            rows = torch.randperm(reference.shape[0])
            tried += 1
            if float((reference[rows[0]][columns] - row).norm()) < limit:
                found.append(seed)
    return Sought(tuple(found), tried, (time.perf_counter() - begun) / max(tried, 1))


def literal_listing1(module: nn.Module, rule: int) -> nn.Module:
    """Shuffle every linear layer in place as Tazza's Listing 1 prints it, with both orders of a layer from one seed.

    The order of a layer's outputs is the second draw, and the order that the next layer's inputs are read in is the
    first. They do not match, so the network computes something else. The classes are shuffled too.
    """
    for layer in (part for part in module.modules() if isinstance(part, nn.Linear)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rule)
            hidden, width = layer.weight.shape
            columns = torch.randperm(width)
            rows = torch.randperm(hidden)
        layer.weight = nn.Parameter(layer.weight[rows][:, columns])
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias[rows])
    return module
