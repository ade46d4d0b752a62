"""Put the patches of pictures back in place: by their edges, by what patches of public pictures look like, or both.

Tazza may permute patches of a picture instead of pixels. One such picture is a jigsaw puzzle. All pictures under one
rule are many puzzles with one solution, so the misfit of two edges is added up over all of them. Tazza's Figure 18
(`papers.tazza.patch_search`) uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Coins, Ints
from croupier.errors import RangeError
from croupier_lab.attacks.pixel_layout import by_example, laid_out
from croupier_lab.attacks.smooth_layout import turned

Floats = npt.NDArray[np.float64]
# How many pieces are tried as the first, top left one; the solution with the least misfit is kept.
STARTS = 8


@dataclass(frozen=True)
class Misfit:
    """How badly piece j fits to the right of piece i (`right[i, j]`), and under it."""

    right: Floats
    down: Floats


def cut(pictures: Tensor, side: int) -> Tensor:
    """Pictures (number, colours, height, width) as pieces (number, pieces, colours, side, side), row by row.

    Raises: RangeError where the side does not divide the pictures.
    """
    number, colours, height, width = pictures.shape
    if height % side or width % side:
        raise RangeError(f"side = {side} does not divide pictures of {height} x {width}")
    grid = pictures.reshape(number, colours, height // side, side, width // side, side)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


def joined(pieces: Tensor, height: int, width: int) -> Tensor:
    """Pieces in order, as pictures of `height` x `width` pieces."""
    number, _, colours, side, _ = pieces.shape
    grid = pieces.reshape(number, height, width, colours, side, side)
    return grid.permute(0, 3, 1, 4, 2, 5).reshape(number, colours, height * side, width * side)


def seams(pieces: Tensor) -> Misfit:
    """How badly each pair of edges joins, as a mean over all pictures given.

    Both edges are carried on by half of their last step, and the results are compared in absolute differences.
    """
    values = pieces.double()
    right = _steps(values[..., -1], values[..., -2], values[..., 0], values[..., 1])
    down = _steps(values[..., -1, :], values[..., -2, :], values[..., 0, :], values[..., 1, :])
    return Misfit(right, down)


def misfit(pieces: Tensor) -> Misfit:
    """The same, divided by the sum of both pieces' second-best misfits, because flat pieces fit everything."""
    plain = seams(pieces)
    return Misfit(_scaled(plain.right), _scaled(plain.down))


def solve(costs: Misfit, height: int, width: int, coins: Coins, starts: int = STARTS) -> Ints:
    """The piece at each place, from the best of several starts.

    Places are filled greedily row by row. Then pieces are swapped and rows or columns shifted while that lowers the
    misfit. Raises: RangeError where the pieces do not fill the places.
    """
    count = height * width
    if costs.right.shape != (count, count):
        raise RangeError(f"{len(costs.right)} pieces do not fill {height} x {width} places")
    firsts = coins.sampler().permutation(count)[:starts]
    tries = [_better(_filled(costs, int(first), height, width), costs) for first in firsts]
    spent = [float(_total(one[None], costs)[0]) for one in tries]
    return tries[spent.index(min(spent))].reshape(-1)


def total(layout: Ints, costs: Misfit, height: int, width: int) -> float:
    """The misfit of all seams of a layout: what a solver can judge itself by."""
    return float(_total(layout.reshape(1, height, width), costs)[0])


def kept(layout: Ints, true: Ints, height: int, width: int) -> float:
    """The share of true seams (which piece is right of, or under, which) that the layout has too."""
    found, wanted = (_seams(one.reshape(height, width)) for one in (layout, true))
    return len(found & wanted) / len(wanted)


def kept_turned(layout: Ints, true: Ints, side: int) -> float:
    """The same for the best of the eight turned and mirrored forms of a square layout."""
    turns = turned(torch.from_numpy(layout.reshape(side, side)))
    return max(kept(one.numpy(), true, side, side) for one in turns)


def chance_kept(height: int, width: int) -> float:
    """The share of true seams that a random layout keeps on average."""
    count = height * width
    seams = (height * (width - 1), width * (height - 1))
    return sum(each * each for each in seams) / (count * (count - 1) * sum(seams))


def chance_turned(side: int, coins: Coins, draws: int = 500) -> float:
    """What the best of the eight forms of a random layout keeps, as a mean over draws."""
    sampler, true = coins.sampler(), np.arange(side * side)
    return float(np.mean([kept_turned(sampler.permutation(side * side), true, side) for _ in range(draws)]))


def uncover(pieces: Tensor, public: Tensor, coins: Coins) -> Tensor:
    """Pieces whose pixels are all in one unknown order, put in plain order by the look of public pieces.

    The statistics of patches hardly change when they are turned, so what is found may be turned: see `together`.
    """
    places = by_example(pieces.flatten(0, 1).flatten(1), public.flatten(0, 1).flatten(1), coins)
    return laid_out(pieces.flatten(0, 1).flatten(1), places).view(pieces.shape)


def together(pieces: Tensor, height: int, width: int, coins: Coins) -> tuple[Tensor, Ints]:
    """Of the eight ways to turn the pieces, the one whose seams fit best, and its layout; each is a puzzle of its own.

    Whole pictures may still come out turned or mirrored: their seams fit as well.
    """
    found = []
    for number, turn in enumerate(turned(pieces)):
        layout = solve(misfit(turn), height, width, coins.child(number))
        found.append((total(layout, seams(turn), height, width), number, turn, layout))
    _, _, turn, layout = min(found, key=lambda one: one[:2])
    return turn, layout


def _steps(end: Tensor, before: Tensor, begin: Tensor, behind: Tensor) -> Floats:
    number, count = end.shape[:2]
    out = (end + 0.5 * (end - before)).reshape(number, count, -1)
    into = (begin + 0.5 * (begin - behind)).reshape(number, count, -1)
    found = torch.zeros(count, count, dtype=torch.float64)
    for one, two in zip(out, into, strict=True):
        found += torch.cdist(one, two, p=1)
    return (found / number).numpy()


def _scaled(costs: Floats) -> Floats:
    costs = costs.copy()
    np.fill_diagonal(costs, np.inf)
    best = np.sort(costs, axis=1)[:, 1][:, None] + np.sort(costs, axis=0)[1]
    found: Floats = costs / np.maximum(best, 1e-9)
    np.fill_diagonal(found, 0)
    return found


def _filled(costs: Misfit, first: int, height: int, width: int) -> Ints:
    """Row by row, always the piece that fits best to those above and to the left."""
    layout = np.full((height, width), -1, np.int64)
    layout[0, 0] = first
    left = [piece for piece in range(height * width) if piece != first]
    for row, column in list(np.ndindex(height, width))[1:]:
        price = np.zeros(len(left))
        price += costs.right[layout[row, column - 1], left] if column else 0
        price += costs.down[layout[row - 1, column], left] if row else 0
        layout[row, column] = left.pop(int(price.argmin()))
    return layout


def _better(layout: Ints, costs: Misfit) -> Ints:
    """Swap two pieces, or shift all rows or columns round, as long as that lowers the misfit."""
    height, width = layout.shape
    pairs = np.stack(np.triu_indices(height * width, 1), 1)
    current = float(_total(layout[None], costs)[0])
    while True:
        flat = np.repeat(layout.reshape(1, -1), len(pairs), 0)
        rows = np.arange(len(pairs))
        flat[rows, pairs[:, 0]], flat[rows, pairs[:, 1]] = (
            layout.reshape(-1)[pairs[:, 1]],
            layout.reshape(-1)[pairs[:, 0]],
        )
        shifts = [np.roll(layout, step, axis) for axis in (0, 1) for step in range(1, layout.shape[axis])]
        every = np.concatenate([flat.reshape(-1, height, width), np.stack(shifts)])
        spent = _total(every, costs)
        if spent.min() >= current - 1e-12:
            return layout
        layout, current = every[int(spent.argmin())], float(spent.min())


def _total(layouts: Ints, costs: Misfit) -> Floats:
    right = costs.right[layouts[:, :, :-1], layouts[:, :, 1:]].sum((1, 2))
    down = costs.down[layouts[:, :-1], layouts[:, 1:]].sum((1, 2))
    found: Floats = right + down
    return found


def _seams(layout: Ints) -> set[tuple[str, int, int]]:
    right = {("right", int(a), int(b)) for a, b in zip(layout[:, :-1].flat, layout[:, 1:].flat, strict=True)}
    return right | {("down", int(a), int(b)) for a, b in zip(layout[:-1].flat, layout[1:].flat, strict=True)}
