"""Inversion on permuted uploads: nothing without the rule, all of it with it; and a distance of what came out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.encode.symmetry import Symmetry
from croupier.errors import RangeError, SpecError
from croupier.learn.axes import symmetry_of
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.flat import layout_of
from croupier.learn.gradients import gradient_of
from croupier.learn.likeness import psnr
from croupier.learn.models import Perceptron, SigmoidNet
from croupier_lab.attacks.feature_distance import Perceiver, fitted, perceiver
from croupier_lab.attacks.gradient_search import Dlg, dlg
from croupier_lab.attacks.permuted_upload import Knows, read_upload, record_of

COINS = Coins.from_seed(5)
RATE = 0.1


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def perceptron() -> tuple[nn.Module, Symmetry, Tensor]:
    with COINS.child("weights").ambient():
        module = Perceptron((64, 32, 16, 4))
    handed = layout_of(module).flatten(dict(module.named_parameters())).detach().clone()
    return module, symmetry_of(module, torch.zeros(2, 1, 8, 8)), handed


def step(module: nn.Module, handed: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return handed - RATE * gradient_of(module, x, y)


def found_by(knows: Knows) -> tuple[Tensor, Tensor]:
    """A record, and what the server makes of its permuted upload."""
    module, symmetry, handed = perceptron()
    x, y = torch.rand(1, 1, 8, 8, generator=COINS.child("record", knows).fast()), torch.tensor([2])
    rule, frame = symmetry.rule(bytes(32), 0), symmetry.rule(bytes(32), 1)
    upload = step(module, handed, x, y)
    sent = upload if knows == "order" else symmetry.apply(upload, rule)
    mine = symmetry.apply(handed, frame) if knows == "relative" else handed
    view = read_upload(knows, module, mine, sent, symmetry, RATE, COINS.child("glance", knows), rule)
    got = record_of(view, (1, 8, 8), 4, COINS.child("invert", knows))
    return (symmetry.permute_inputs(x, frame) if knows == "relative" else x), got.clamp(0, 1)


@pytest.mark.parametrize("knows", get_args(Knows))
def test_a_record_is_read_off_wherever_the_order_is_known(knows: Knows) -> None:
    true, found = found_by(knows)
    ratio = float(psnr(found, true))
    assert ratio < 15 if knows == "nothing" else ratio > 40


def test_a_search_finds_the_same_with_the_matched_rule_as_without_a_defence() -> None:
    with COINS.child("lenet").ambient():
        module = SigmoidNet(1, 8, 8, 4)
    symmetry = symmetry_of(module, torch.zeros(2, 1, 8, 8))
    handed = layout_of(module).flatten(dict(module.named_parameters())).detach().clone()
    x, y = torch.rand(1, 1, 8, 8, generator=COINS.child("picture").fast()), torch.tensor([1])
    sent = symmetry.apply(step(module, handed, x, y), symmetry.rule(bytes(32), 0))
    ratios = {}
    for knows in ("nothing", "matched"):
        view = read_upload(knows, module, handed, sent, symmetry, RATE, COINS.child(knows))
        got = record_of(view, (1, 8, 8), 4, COINS.child("search"), dlg(Dlg(steps=25, restarts=2, enough=1e-4)))
        ratios[knows] = float(psnr(got.nan_to_num(0.5).clamp(0, 1), x))
    assert ratios["matched"] > 20 > ratios["nothing"]


def test_a_rule_that_was_told_must_be_given() -> None:
    module, symmetry, handed = perceptron()
    with pytest.raises(SpecError, match="'told'"):
        read_upload("told", module, handed, handed, symmetry, RATE, COINS.child("untold"))


def _eye() -> Perceiver:
    generator = COINS.child("classes").fast()
    y = torch.arange(200) % 2
    x = 0.2 * torch.rand(200, 3, 32, 32, generator=generator) + 0.8 * (y.view(-1, 1, 1, 1) * torch.linspace(0, 1, 32))
    rows = TensorRecords(x, y)
    return perceiver(Dataset("cifar10", "classify", 2, rows, rows, "none", "drawn", labels=y), 2, COINS.child("eye"))


def test_the_perceptual_distance_is_zero_for_equals_and_grows_with_noise() -> None:
    eye = _eye()
    assert eye.accuracy > 0.9
    pictures = torch.rand(4, 1, 28, 28, generator=COINS.child("shown").fast())
    noise = torch.rand(4, 1, 28, 28, generator=COINS.child("noise").fast())
    zero, little, much = (eye.distance(pictures + share * (noise - pictures), pictures) for share in (0, 0.1, 1))
    assert float(zero.max()) < 1e-9
    assert bool((little < much).all())
    assert fitted(pictures).shape == (4, 3, 32, 32)
    with pytest.raises(RangeError, match="two sets alike"):
        eye.distance(pictures, pictures[:1])
    assert np.isfinite(much.numpy()).all()
