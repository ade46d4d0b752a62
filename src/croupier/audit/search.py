"""Other ways to a rule: the paper's own search over parameters, and trying every seed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.encode.symmetry import Ints
from croupier.errors import RangeError

# `torch.manual_seed` takes 64 bits, of which the generator on the CPU uses these.
BITS = 32


def nearest_by_norm(reference: Tensor, upload: Tensor, coins: Coins) -> Ints:
    """For each column of the upload, the column of the reference whose length is the nearest.

    The paper says that the attacker minimises the L2 norm of the difference between parameters, and not how. A search
    that compares lengths and not entries is one reading of it, and about as good as guessing. Ties fall at random.
    From: Tazza section 7.6.1.
    """
    ours, theirs = (matrix.double().norm(dim=0) for matrix in (reference, upload))
    order = torch.randperm(len(ours), generator=coins.fast())
    return order[(theirs[:, None] - ours[order]).abs().argmin(1)].numpy().astype(np.int64)


def swapped(reference: Tensor, upload: Tensor, steps: int, coins: Coins) -> Ints:
    """A random order of columns, in which two are swapped wherever that lowers the L2 distance to the upload.

    The other reading: the true objective under a search that stops after `steps` tries. From: Tazza section 7.6.1.
    """
    count, sampler = reference.shape[1], coins.sampler()
    order = sampler.permutation(count)
    likes = (upload.double().T @ reference.double()).numpy()
    for one, two in sampler.integers(0, count, (steps, 2)):
        a, b = order[one], order[two]
        if likes[one, b] + likes[two, a] > likes[one, a] + likes[two, b]:
            order[one], order[two] = b, a
    return order.astype(np.int64)


def index_error(found: Ints, true: Ints) -> float:
    """How many places off an index is on average: the paper's measure of a rule."""
    return float(np.abs(found - true).mean())


def blind_index_error(size: int) -> float:
    """The same of a random order: (n^2 - 1) / 3n."""
    return (size * size - 1) / (3 * size)


@dataclass(frozen=True)
class Sought:
    """What a search over seeds came to: the seeds that fit, seconds a trial, and core-hours for all seeds of a size."""

    seeds: tuple[int, ...]
    tried: int
    trial_s: float

    def core_hours(self, bits: int = BITS) -> float:
        """What one core would need for all seeds of so many bits; half as much on average."""
        return self.trial_s * float(2**bits) / 3600


def seek(reference: Tensor, upload: Tensor, seeds: Iterable[int], close: float = 0.5) -> Sought:
    """Try seeds of the printed listing on a first layer (rows are units): the order of its columns, by one row.

    A trial draws the order of the columns as the listing does and compares the rows of the reference in that order with
    one row of the upload. `close` is the share of that row's length that training may have moved it by.
    From: Tazza Listing 1, where the rule is an `int` given to `torch.manual_seed`.
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
