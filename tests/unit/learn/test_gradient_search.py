"""Gradient inversion: what it recovers, that it cannot peek, and likeness against other ways to say it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.errors import RangeError, SpecError
from croupier.learn.datasets import Digits
from croupier.learn.gradient_search import SearchRecipe, Target, cosine_distance, search_records, variation
from croupier.learn.gradients import gradient_from, gradient_of
from croupier.learn.layer_gradients import counted_labels
from croupier.learn.likeness import BEST, matched, mse, psnr, ssim, window_for
from croupier.learn.models import ConvNet, SigmoidNet

SHAPE = (1, 8, 8)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Pictures this small are searched faster by one thread, many times so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def digits() -> tuple[Tensor, Tensor]:
    rows, labels = Digits().load(None).train.batch(torch.arange(200))
    return rows.view(-1, *SHAPE), labels


@cache
def step(seed: int, clients: int = 10) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A fresh network, clients' single pictures with their labels, and a gradient each."""
    with Coins.from_seed(seed).child("weights").ambient():
        module = SigmoidNet(*SHAPE, 10)
    x, y = (part[10 * seed : 10 * seed + clients] for part in digits())
    rows = torch.stack([gradient_of(module, x[i : i + 1], y[i : i + 1]) for i in range(clients)])
    return module, x, y, rows


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=Coins.from_seed(seed).fast())


# The search


def test_a_search_finds_a_picture_nearer_than_the_mean_and_stays_in_the_box() -> None:
    module, x, y, rows = step(2)
    target = Target(rows[0], 1, SHAPE, 10, y[:1])
    found, loss = search_records(SearchRecipe(steps=300, variation=1e-6), module, target, Coins.from_seed(0))
    mean = digits()[0][100:].mean(0, keepdim=True)
    assert float(psnr(found, x[:1])) > 3 + float(psnr(mean, x[:1]))
    assert loss == pytest.approx(float(cosine_distance(gradient_of(module, found, y[:1]), target)), abs=1e-6)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1


def test_the_same_coins_find_the_same_and_a_beginning_needs_none() -> None:
    module, x, y, rows = step(0)
    target, recipe = Target(rows[0], 1, SHAPE, 10, y[:1]), SearchRecipe(steps=2)
    one, two, other = (search_records(recipe, module, target, Coins.from_seed(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    near, far = (search_records(recipe, module, target, Coins.from_seed(seed), begin=x[:1])[0] for seed in (1, 2))
    assert torch.equal(near, far)


def test_a_search_leaves_the_network_as_it_is_and_needs_a_label_for_each_record() -> None:
    module, _, y, rows = step(0)
    module.train()
    before = [part.clone() for part in module.parameters()]
    target = Target(rows[0], 1, SHAPE, 10, y[:1])
    search_records(SearchRecipe(steps=1), module, target, Coins.from_seed(0))
    assert module.training
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert all(part.grad is None for part in module.parameters())
    for labels in (None, y[:2]):
        with pytest.raises(SpecError, match="declare one for each of 1 records"):
            search_records(SearchRecipe(steps=1), module, replace(target, labels=labels), Coins.from_seed(0))


def test_what_is_frozen_is_in_no_gradient_of_a_search() -> None:
    """Begun at the very record, the search sees at once that it is there: both gradients lie alike."""
    module, x, y, _ = step(0)
    held = deepcopy(module)
    next(held.parameters()).requires_grad_(False)
    gradient = gradient_of(held.eval(), x[:1], y[:1])
    assert len(gradient) < len(step(0)[3][0])
    target, recipe = Target(gradient, 1, SHAPE, 10, y[:1]), SearchRecipe(steps=0)
    _, loss = search_records(recipe, held, target, Coins.from_seed(0), begin=x[:1])
    assert loss == pytest.approx(0, abs=1e-6)


def test_a_search_is_given_no_truth() -> None:
    """What goes in is a network, what was seen and coins; the only labels are those that were declared."""
    assert [f.name for f in fields(Target)] == ["gradient", "records", "shape", "classes", "labels", "only"]
    given = ["recipe", "module", "target", "coins", "by", "begin"]
    assert list(inspect.signature(search_records).parameters) == given


# Gradients and labels


def test_one_step_of_plain_sgd_gives_its_gradient_back() -> None:
    module, _, _, rows = step(0)
    start = torch.cat([part.detach().reshape(-1) for part in module.parameters()])
    assert torch.allclose(gradient_from(start - 0.25 * rows[0], start, 0.25), rows[0], atol=1e-5)
    for bad in ((start[1:], start, 0.1), (start, start, 0.0)):
        with pytest.raises(RangeError, match="one shape"):
            gradient_from(*bad)


def test_chances_that_are_certain_are_classes() -> None:
    module, x, y, _ = step(0)
    sure = functional.one_hot(y, 10).float()
    assert torch.allclose(gradient_of(module, x, y), gradient_of(module, x, sure), atol=1e-6)


def test_labels_of_a_batch_are_counted() -> None:
    with Coins.from_seed(5).ambient():
        module = ConvNet(1, 28, 10)
    labels = torch.tensor([0, 3, 3, 3, 7, 9, 9, 2])
    gradient = gradient_of(module, noise(8, 1, 28, 28), labels)
    got = counted_labels(gradient, module, 8, (1, 28, 28), Coins.from_seed(0))
    assert got.tolist() == sorted(labels.tolist())


def test_variation_by_hand() -> None:
    picture = torch.tensor([[[[0.0, 1.0, 3.0], [2.0, 2.0, 2.0]]]])
    assert float(variation(picture)) == pytest.approx((1 + 2 + 0 + 0) / 4 + (2 + 1 + 1) / 3)


def test_one_cosine_over_all_weights_and_only_those_that_count() -> None:
    guess, true = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 1.0, 0.0])
    whole = Target(true, 1, SHAPE, 10)
    part = Target(true, 1, SHAPE, 10, only=((0, 1), (2, 3)))
    assert float(cosine_distance(guess, whole)) == pytest.approx(1 - 1 / math.sqrt(10))
    assert float(cosine_distance(guess, part)) == pytest.approx(1 - 1 / math.sqrt(5))


# Likeness


def test_psnr_of_known_errors() -> None:
    picture = noise(2, 3, 16, 16) * 0.5
    assert psnr(picture, picture).tolist() == [BEST, BEST]
    assert psnr(picture + 0.1, picture).tolist() == pytest.approx([20.0, 20.0], abs=1e-4)
    assert psnr(picture + 0.5, picture).tolist() == pytest.approx([6.0206, 6.0206], abs=1e-4)


def test_ssim_of_known_pictures() -> None:
    picture = noise(2, 3, 16, 16)
    assert ssim(picture, picture).tolist() == pytest.approx([1, 1])
    # Of two constant pictures only the term of the means is left.
    a, b, c1 = 0.3, 0.6, 0.01**2
    one, two = torch.full((1, 1, 12, 12), a), torch.full((1, 1, 12, 12), b)
    assert float(ssim(one, two)) == pytest.approx((2 * a * b + c1) / (a * a + b * b + c1), abs=1e-4)
    assert float(ssim(picture, 1 - picture).max()) < 0


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 20), (1, 11, 11), (1, 8, 9)])
def test_ssim_is_what_scipys_gaussian_gives(channels: int, height: int, width: int) -> None:
    one, two = noise(1, channels, height, width, seed=1), noise(1, channels, height, width, seed=2)
    two = 0.7 * one + 0.3 * two
    side = window_for(height, width)
    assert side == {8: 7}.get(min(height, width), 11)
    edge = side // 2
    sums = []
    for x, y in zip(one[0].double().numpy(), two[0].double().numpy(), strict=True):

        def blur(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Tensor:
            inside = gaussian_filter(values, 1.5, radius=edge)
            return torch.from_numpy(inside)[edge : height - edge, edge : width - edge]

        mx, my = blur(x), blur(y)
        vx, vy, both = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
        top = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
        sums.append(float((top / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))).mean()))
    assert float(ssim(one, two)) == pytest.approx(sum(sums) / len(sums), abs=1e-9)


def test_matching_does_not_mind_the_order() -> None:
    true = noise(6, 1, 8, 8)
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    found = (true + 0.05 * noise(6, 1, 8, 8, seed=1))[order]
    rows, columns = matched(found, true)
    assert columns.tolist() == order[rows].tolist()
    other, whose = matched(found[order], true[order.flip(0)])
    ratios = psnr(found[rows], true[columns]), psnr(found[order][other], true[order.flip(0)][whose])
    assert sorted(ratios[0].tolist()) == pytest.approx(sorted(ratios[1].tolist()))


def test_matching_is_one_to_one_and_the_best_in_sum() -> None:
    """The greedy pairing would give 0 to 0; the best one in sum crosses."""
    level = torch.tensor([0.5, 0.6]).view(2, 1, 1, 1).expand(2, 1, 8, 8)
    true = torch.tensor([0.52, 0.2]).view(2, 1, 1, 1).expand(2, 1, 8, 8)
    rows, columns = matched(level, true)
    every = {(0, 1): 0.0, (1, 0): 0.0}
    for pair in every:
        every[pair] = float(psnr(level, true[list(pair)]).sum())
    assert tuple(columns[rows.argsort()].tolist()) == max(every, key=lambda pair: every[pair])
    assert sorted(columns.tolist()) == [0, 1]


def test_one_picture_is_matched_with_the_nearest_of_many() -> None:
    true = noise(5, 1, 8, 8)
    assert [part.tolist() for part in matched(true[3:4], true)] == [[0], [3]]


def test_pictures_of_other_shapes_are_refused() -> None:
    for one, two in ((noise(2, 1, 8, 8), noise(1, 1, 8, 8)), (noise(1, 64), noise(1, 64))):
        with pytest.raises(RangeError, match="number, channels, height, width"):
            mse(one, two)
