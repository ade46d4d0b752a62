"""Layouts of pixels: found from pictures under one order and public ones like them, scored against chance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier_lab.attacks.pixel_layout import by_example, chance_neighbours, kept_neighbours, laid_out

COINS = Coins.from_seed(11)


def smooth(count: int, side: int, label: str, colours: int = 1) -> Tensor:
    """Pictures of blurred noise, brighter towards one corner: near pixels vary together."""
    noise = torch.rand(count, colours, side + 6, side + 6, generator=COINS.child("smooth", label).fast())
    blurred = functional.avg_pool2d(noise, 4, 1)[..., :side, :side]
    slope = torch.linspace(0, 0.2, side) + 2 * torch.linspace(0, 0.2, side)[:, None]
    return (blurred - 0.5) * 2 + 0.3 + slope


def test_public_pictures_give_the_order_itself() -> None:
    side = 8
    samples, public = smooth(4000, side, "own").flatten(1), smooth(4000, side, "public").flatten(1)
    order = COINS.child("own order").sampler().permutation(side * side)
    seen = samples[:, torch.from_numpy(order)]
    places = by_example(seen, public, COINS.child("example"))
    assert np.mean(places == order) > 0.9
    found = laid_out(seen, order)
    assert torch.equal(found, samples)
    with pytest.raises(RangeError, match="rows of 64 pixels"):
        by_example(seen[:, :5], public, COINS.child("wrong"))


def test_chance_is_what_random_layouts_keep_of_neighbours() -> None:
    order = COINS.child("order").sampler().permutation(144)
    blind = [kept_neighbours(COINS.child("no", n).sampler().permutation(144), order, 12, 12) for n in range(50)]
    assert abs(np.mean(blind) - chance_neighbours(12, 12)) < 0.01
    assert kept_neighbours(order, order, 12, 12) == 1
