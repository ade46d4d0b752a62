"""Layouts of pixels and of patches: found from pictures under one order, scored against chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import RangeError
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
    total,
    uncover,
)
from croupier_lab.attacks.pixel_layout import chance_neighbours, kept_neighbours
from croupier_lab.attacks.smooth_layout import by_smoothness, turned

COINS = Coins.from_seed(11)


def smooth(count: int, side: int, label: str, colours: int = 1) -> Tensor:
    """Pictures of blurred noise, brighter towards one corner: near pixels vary together."""
    noise = torch.rand(count, colours, side + 6, side + 6, generator=COINS.child("smooth", label).fast())
    blurred = functional.avg_pool2d(noise, 4, 1)[..., :side, :side]
    slope = torch.linspace(0, 0.2, side) + 2 * torch.linspace(0, 0.2, side)[:, None]
    return (blurred - 0.5) * 2 + 0.3 + slope


def test_smoothness_brings_neighbours_together_again() -> None:
    side = 12
    samples = smooth(2000, side, "a").flatten(1)
    order = COINS.child("order").sampler().permutation(side * side)
    places = by_smoothness(samples[:, torch.from_numpy(order)], side, side, COINS.child("layout"))
    assert sorted(places) == list(range(side * side))
    chance = chance_neighbours(side, side)
    assert kept_neighbours(places, order, side, side) > 0.5 > 10 * chance
    blind = [
        kept_neighbours(COINS.child("no", n).sampler().permutation(side * side), order, side, side) for n in range(50)
    ]
    assert abs(np.mean(blind) - chance) < 0.01
    assert kept_neighbours(order, order, side, side) == 1


def test_the_score_of_neighbours_does_not_mind_turning() -> None:
    grid = np.arange(16).reshape(4, 4)
    for turn in turned(torch.from_numpy(grid)):
        assert kept_neighbours(np.argsort(turn.numpy().reshape(-1)), np.arange(16), 4, 4) == 1


def test_pixels_that_never_vary_are_placed_at_random() -> None:
    side = 10
    samples = smooth(500, side, "dead")
    samples[:, :, 0] = 0
    first = by_smoothness(samples.flatten(1), side, side, COINS.child("dead", 1))
    other = by_smoothness(samples.flatten(1), side, side, COINS.child("dead", 2))
    assert sorted(first) == sorted(other) == list(range(side * side))
    assert not np.array_equal(first[:side], other[:side])
    nothing = by_smoothness(torch.zeros(5, 9), 3, 3, COINS.child("zero"))
    assert sorted(nothing) == list(range(9))


def test_a_puzzle_of_patches_is_solved_and_many_pictures_solve_it_better() -> None:
    pictures = smooth(20, 32, "puzzle", 3)
    pieces = cut(pictures, 8)
    assert torch.equal(joined(pieces, 4, 4), pictures)
    order = COINS.child("pieces").sampler().permutation(16)
    seen, true = pieces[:, torch.from_numpy(order)], np.argsort(order)
    one = [kept(solve(misfit(seen[n : n + 1]), 4, 4, COINS.child("one", n)), true, 4, 4) for n in range(10)]
    layout = solve(misfit(seen), 4, 4, COINS.child("many"))
    assert np.mean(one) > 0.5 > 5 * chance_kept(4, 4)
    assert kept(layout, true, 4, 4) == 1
    assert torch.equal(joined(seen[:, torch.from_numpy(layout)], 4, 4), pictures)
    assert total(layout, misfit(seen), 4, 4) <= total(np.arange(16), misfit(seen), 4, 4)


def test_permuted_pixels_stop_the_puzzle_but_not_many_pictures() -> None:
    pictures, public = smooth(60, 16, "both"), smooth(400, 16, "both, public")
    pieces = cut(pictures, 4)
    order = COINS.child("both, patches").sampler().permutation(16)
    pixels = torch.from_numpy(COINS.child("both, pixels").sampler().permutation(16))
    seen = pieces[:, torch.from_numpy(order)].flatten(2)[..., pixels].view(pieces.shape)
    true = np.argsort(order)
    blind = [kept(solve(misfit(seen[n : n + 1]), 4, 4, COINS.child("blind", n)), true, 4, 4) for n in range(10)]
    assert np.mean(blind) < 0.35
    turn, layout = together(uncover(seen, cut(public, 4), COINS.child("uncover")), 4, 4, COINS.child("together"))
    assert kept_turned(layout, true, 4) > 0.8
    assert turn.shape == pieces.shape


def test_chance_is_what_random_layouts_keep() -> None:
    true = np.arange(12)
    sampler = COINS.child("chance").sampler()
    found = [kept(sampler.permutation(12), true, 3, 4) for _ in range(4000)]
    assert np.mean(found) == pytest.approx(chance_kept(3, 4), abs=0.005)
    assert chance_kept(4, 4) < chance_turned(4, COINS.child("turned")) < 0.3


def test_pieces_must_tile() -> None:
    with pytest.raises(RangeError, match="side = 3"):
        cut(torch.zeros(1, 1, 8, 8), 3)
    with pytest.raises(RangeError, match="do not fill"):
        solve(misfit(cut(torch.rand(1, 1, 8, 8), 4)), 2, 3, COINS.child("fill"))
