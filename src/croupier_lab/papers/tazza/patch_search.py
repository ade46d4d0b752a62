"""Tazza's Figure 18: a server that looks for the layout of patches in the pictures.

The paper counts the permutations of one picture. But all records of a round lie under one rule, so their seams add up,
and the puzzle becomes easier with every picture. `croupier reproduce tazza/figure18` runs it, on
`attacks.patch_layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.learn.datasets import Cifar10
from croupier.learn.likeness import psnr
from croupier.learn.png import png
from croupier_lab.attacks.patch_layout import (
    chance_kept,
    chance_turned,
    cut,
    joined,
    kept,
    kept_turned,
    misfit,
    solve,
    together,
    uncover,
)
from croupier_lab.attacks.smooth_layout import turned
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.trainings import cell
from croupier_lab.papers.tazza.inversion import PAPER
from croupier_lab.papers.tazza.parameter_search_rows import interval

Watch = Callable[[str], None]
# By scale: pictures under one rule, rules, and pieces a side.
PUZZLES: Mapping[Scale, tuple[int, int, tuple[int, ...]]] = {
    "smoke": (10, 2, (3,)), "small": (50, 5, (3, 4, 8)), "paper": (100, 20, (3, 4, 8)),
}  # fmt: skip

FIRST = "pixels by co-occurrence first"


def figure18(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    """Rows for puzzles of one picture and of many under one rule, with patches permuted or their pixels too."""
    many, rules, grids = PUZZLES[scale]
    dataset = Cifar10(train=max(1000, many * rules), test=1000).load(means.folder)
    public = dataset.test.batch(torch.arange(1000))[0]
    rows = []
    for grid in grids:
        found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        first: dict[tuple[str, str], str] = {}
        size = 32 - 32 % grid
        for seed in seeds:
            for number in range(rules):
                coins = Coins.from_seed(seed).child("figure 18", grid, number)
                pictures = dataset.train.batch(torch.arange(number * many, (number + 1) * many))[0][..., :size, :size]
                for key, result, shown in _puzzles(pictures, public[..., :size, :size], grid, coins):
                    found.setdefault(key, []).append(result)
                    first.setdefault(key, png(shown))
        watch(f"{grid} x {grid} pieces")
        turning = chance_turned(grid, Coins.from_seed(0).child("figure 18", grid))
        for (shuffle, attack), got in found.items():
            chance = turning if attack.endswith(FIRST) else chance_kept(grid, grid)
            seams, before, now = (cell([one[place] for one in got]) for place in range(3))
            rows.append({
                "pieces": f"{grid} x {grid}", "shuffle": shuffle, "attack": attack, "paper": None, "rules": len(got),
                "seams_kept": interval(seams, 3), "chance": round(chance, 3),
                "psnr_shuffled": interval(before, 1), "psnr": interval(now, 1), "_seams": seams,
                "_png": first[shuffle, attack], "_chance": chance,
            })  # fmt: skip
    return rows


def _puzzles(
    pictures: Tensor, public: Tensor, grid: int, coins: Coins
) -> list[tuple[tuple[str, str], tuple[float, float, float], Tensor]]:
    """One rule's puzzles: each with its name, seams kept and PSNR before and after, and a picture."""
    side = pictures.shape[-1] // grid
    pieces = cut(pictures, side)
    order = torch.from_numpy(coins.child("patches").secure().permutation(grid * grid))
    pixels = torch.from_numpy(coins.child("pixels").secure().permutation(pieces[0, 0].numel()))
    patches = pieces[:, order]
    both = patches.flatten(2)[..., pixels].view(patches.shape)
    true = np.argsort(order.numpy())
    out = []
    many = f"{len(pictures)} pictures together"
    for shuffle, seen in (("patches", patches), ("patches and pixels", both)):
        for attack, used in (("one picture", seen[:1]), (many, seen)):
            layout = solve(misfit(used), grid, grid, coins.child(shuffle, attack))
            solved = joined(used[:, torch.from_numpy(layout)], grid, grid)
            out.append(_result(shuffle, attack, kept(layout, true, grid, grid), seen, [solved], pictures, grid))
    plain = uncover(both, cut(public, side), coins.child("uncover"))
    turn, layout = together(plain, grid, grid, coins.child("together"))
    turns = turned(joined(turn[:, torch.from_numpy(layout)], grid, grid))
    name = f"{many}, {FIRST}"
    out.append(_result("patches and pixels", name, kept_turned(layout, true, grid), both, turns, pictures, grid))
    return out


def _result(
    shuffle: str, attack: str, seams: float, seen: Tensor, solved: Sequence[Tensor], true: Tensor, grid: int
) -> tuple[tuple[str, str], tuple[float, float, float], Tensor]:
    count = len(solved[0])
    each = [float(psnr(one, true[:count]).mean()) for one in solved]
    before = float(psnr(joined(seen, grid, grid)[:count], true[:count]).mean())
    return (shuffle, attack), (seams, before, max(each)), solved[each.index(max(each))][0]


def says(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on why one picture is the wrong count."""
    best = [row for row in rows if row["attack"].endswith(FIRST)]
    back = [row for row in best if row["_seams"]["mean"] >= 0.99]
    alone = [row for row in rows if row["attack"] == "one picture" and row["shuffle"] != "patches"]
    above = [row for row in alone if row["_seams"]["low"] > row["_chance"]]
    return [
        f"One picture whose pixels are permuted too is above chance in {len(above)} of {len(alone)} "
        "settings. But all records of a round are under one rule: many together give the layout of patches back whole "
        f"in {len(back)} of {len(best)}.",
        "Layouts with permuted pixels are scored up to turning and mirroring, which a person undoes at a glance.",
    ]


FIGURES = (
    Figure(
        "tazza/figure18", f"{PAPER}, Figure 18", "the layout of patches as a jigsaw puzzle, one picture and many",
        "'Seams kept' is the share of neighbouring pieces that are neighbours again, right of right and under, beside "
        "what a random layout keeps; PSNR before and after. Means with 95 % intervals over rules. The paper prints "
        "pictures and no numbers.",
        figure18, {"smoke": 1, "small": 1, "paper": 1},
        (
            "CIFAR-10 for STL-10, cut to 30 x 30 for 3 x 3 pieces; edges and swaps for the paper's transformer, which "
            "is made for large pictures",
        ),
        says,
    ),
)  # fmt: skip
