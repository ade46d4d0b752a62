"""Find the layout of pictures whose pixels are in one unknown order, from nothing but that neighbours vary together.

Unlike `attacks.pixel_layout` it needs no public picture, and so shows what the records alone give away. It cannot tell
a layout from its turned and mirrored forms. It is used by Tazza's Figures 17 and 18 (`papers.tazza.parameter_search`
and, for `turned`, `papers.tazza.patch_search` and `attacks.patch_layout`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from croupier.core.coins import Coins, Ints
from croupier.learn.axes.matching import assigned
from croupier_lab.attacks.pixel_layout import ROUNDS, check_samples, nearness

Floats = npt.NDArray[np.float64]
# Each pixel is joined to so many in the graph whose paths are measured: half as many again as its 4 neighbours.
NEIGHBOURS = 6


def by_smoothness(samples: Tensor, height: int, width: int, coins: Coins, rounds: int = ROUNDS) -> Ints:
    """Where each pixel of (number, pixels) lies in a picture, from nothing but that neighbours vary together.

    Pixels become a graph in which each is joined to those most like it. The lengths of its paths give points in two
    dimensions, and the points are assigned to the places of a grid. Then each pixel is drawn to the middle of those
    most like it and assigned again, at most `rounds` times, until nothing changes. Turned and mirrored layouts are as
    smooth. Pixels that never vary go to the places that are left, at random.
    """
    check_samples(samples, height * width)
    likeness = _correlations(samples)
    live = np.flatnonzero(np.diag(likeness) > 0)
    places = np.full(height * width, -1, np.int64)
    if len(live) > 2 * NEIGHBOURS:
        near = likeness[np.ix_(live, live)]
        points = _on_a_plane(_paths(near))
        taken = _placed(points, height, width, coins.child("first"))
        for number in range(rounds):
            drawn = _drawn(near, taken, height, width)
            again = _placed(drawn, height, width, coins.child("round", number))
            if np.array_equal(again, taken):
                break
            taken = again
        places[live] = taken
    return _rest(places, coins.child("rest"))


def turned(pictures: Tensor) -> list[Tensor]:
    """The eight turned and mirrored forms of square pictures; a layout found by smoothness is one of them."""
    both = (pictures, pictures.flip(-1))
    return [one.rot90(number, (-2, -1)) for one in both for number in range(4)]


def _correlations(samples: Tensor) -> Floats:
    values = samples.double().numpy()
    values = values - values.mean(0)
    spread = np.sqrt((values**2).sum(0))
    values = np.divide(values, spread, out=np.zeros_like(values), where=spread > 1e-9)
    found: Floats = values.T @ values
    return found


def _paths(near: Floats) -> Floats:
    """How far pixels are from each other along steps between the most alike."""
    apart = np.sqrt(np.clip(1 - near, 1e-9, None))
    np.fill_diagonal(apart, np.inf)
    joined = np.zeros_like(apart)
    closest = np.argpartition(apart, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    rows = np.arange(len(apart))[:, None]
    joined[rows, closest] = apart[rows, closest]
    found = shortest_path(csr_matrix(np.maximum(joined, joined.T)), directed=False)
    most = found[np.isfinite(found)].max()
    whole: Floats = np.where(np.isfinite(found), found, 2 * most)
    return whole


def _on_a_plane(apart: Floats) -> Floats:
    """Classical scaling: points of two dimensions with about these distances."""
    squared = apart**2
    centred = -0.5 * (squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean())
    values, vectors = eigh(centred, subset_by_index=[len(apart) - 2, len(apart) - 1])
    found: Floats = vectors * np.sqrt(np.clip(values, 0, None))
    return found


def _placed(points: Floats, height: int, width: int, coins: Coins) -> Ints:
    """Points given to places of the grid, the sum of squared distances as small as can be; the middle stays filled."""
    grid = np.stack(np.divmod(np.arange(height * width), width), 1).astype(np.float64)
    count = len(points)
    middle = grid - grid.mean(0)
    # As many places as points, those nearest to the middle; of equally near ones any.
    ties = coins.child("ties").sampler().random(len(grid))
    used = np.lexsort((ties, np.abs(middle).max(1)))[:count] if count < len(grid) else np.arange(count)
    spread = middle[used]
    scaled = (points - points.mean(0)) / np.maximum(points.std(0), 1e-12) * spread.std(0)
    return used[assigned(nearness(scaled, spread), coins.child("given"))].astype(np.int64)


def _drawn(near: Floats, places: Ints, height: int, width: int) -> Floats:
    """Each pixel at the middle of the pixels most like it, by how like they are."""
    at = np.stack(np.divmod(places, width), 1).astype(np.float64)
    weights = near.copy()
    np.fill_diagonal(weights, 0)
    least = np.partition(weights, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS][:, None]
    weights = np.where(weights >= least, np.clip(weights, 1e-9, None), 0)
    found: Floats = (weights @ at) / weights.sum(1, keepdims=True)
    return found


def _rest(places: Ints, coins: Coins) -> Ints:
    """Pixels without a place get those that are left, at random."""
    left = np.setdiff1d(np.arange(len(places)), places)
    places[places < 0] = coins.sampler().permutation(left)
    return places
