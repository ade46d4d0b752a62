"""Find the layout of pictures whose pixels are in one unknown order, with the help of public pictures like them.

All records of a round are under one order, so pixels that are near each other still vary together. This attack is what
is left to a server that only knows orders relative to each other: it needs no model in plain order, and no seed. The
attack is `by_example`, and the other functions score layouts. `bench.leakage.permuted_pictures`
(`croupier bench permutation`), Tazza's Figures 4 and 17 (`papers.tazza.picture_distance`, `parameter_search`) and the
attacks `patch_layout` and `smooth_layout` use it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins, Ints
from croupier.errors import RangeError
from croupier.learn.axes.matching import assigned

Floats = npt.NDArray[np.float64]
# At most so many rounds of assigning pixels anew.
ROUNDS = 30


def by_example(samples: Tensor, public: Tensor, coins: Coins, rounds: int = ROUNDS) -> Ints:
    """Where each pixel of (number, pixels) lies, from public records of the same kind in plain order.

    Each pixel's mean and sorted covariances with all pixels are compared first; then its covariances in the order found
    so far, at most `rounds` times, until nothing changes.
    """
    check_samples(samples, public.shape[1])
    ours, theirs = _moments(public), _moments(samples)
    looks = [np.concatenate([mean[:, None], np.sort(shared, 1)], 1) for mean, shared in (ours, theirs)]
    order = assigned(nearness(looks[1], looks[0]), coins.child("first"))
    for number in range(rounds):
        moved = ours[1][:, order]
        here = np.concatenate([ours[0][:, None], moved], 1)
        there = np.concatenate([theirs[0][:, None], theirs[1]], 1)
        again = assigned(nearness(there, here), coins.child("round", number))
        if np.array_equal(again, order):
            break
        order = again
    return order


def laid_out(samples: Tensor, places: Ints) -> Tensor:
    """Records with pixel i at the place `places[i]`."""
    out = torch.empty_like(samples)
    out[:, torch.from_numpy(places)] = samples
    return out


def kept_neighbours(places: Ints, true: Ints, height: int, width: int) -> float:
    """The share of truly adjacent pairs that are adjacent again: turning and mirroring do not change it."""
    at = np.argsort(true).reshape(height, width)
    pairs = np.concatenate([_pairs(at[:, :-1], at[:, 1:]), _pairs(at[:-1], at[1:])])
    rows, columns = np.divmod(places[pairs], width)
    apart = np.abs(np.diff(rows, axis=1)) + np.abs(np.diff(columns, axis=1))
    return float(np.mean(apart == 1))


def chance_neighbours(height: int, width: int) -> float:
    """The share that a random layout keeps on average: adjacent pairs among all pairs."""
    count = height * width
    return (2 * count - height - width) / (count * (count - 1) / 2)


def check_samples(samples: Tensor, pixels: int) -> None:
    """Raises: RangeError unless samples are two or more rows of so many pixels."""
    if samples.dim() != 2 or samples.shape[1] != pixels or len(samples) < 2:
        raise RangeError(f"samples have shape {tuple(samples.shape)}: needs two or more rows of {pixels} pixels")


def _moments(samples: Tensor) -> tuple[Floats, Floats]:
    values = samples.double().numpy()
    # The mean has as much say as all co-occurrences of a pixel together.
    return values.mean(0) * np.sqrt(values.shape[1]), np.cov(values.T) / values.std()


def nearness(ours: Floats, theirs: Floats) -> Floats:
    """Minus the squared distances between rows of one and of the other."""
    found: Floats = 2 * ours @ theirs.T - (ours**2).sum(1)[:, None] - (theirs**2).sum(1)
    return found


def _pairs(one: Ints, two: Ints) -> Ints:
    return np.stack([one.reshape(-1), two.reshape(-1)], 1)
