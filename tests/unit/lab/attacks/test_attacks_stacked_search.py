"""Stacked searches find what searches one by one find, and none touches another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.learn.flat import layout_of
from croupier.learn.gradient_search import Target
from croupier.learn.gradients import gradient_of
from croupier.learn.models import AttentionBlocks, Listener, PatchMixer, PatchReader
from croupier_lab.attacks.gradient_search import Inverting, inverting
from croupier_lab.attacks.stacked_search import inverting_stacked

COINS = Coins.from_seed(5)
NETWORKS: dict[str, tuple[tuple[int, ...], int]] = {
    "mixer": ((3, 8, 8), 10),
    "vit": ((3, 8, 8), 10),
    "rnn": ((6, 4), 3),
}


def built(name: str) -> nn.Module:
    shape, classes = NETWORKS[name]
    if name == "rnn":
        return Listener("rnn", shape[1], 8, 2, classes)
    if name == "mixer":
        return PatchMixer((3, 8, 8), classes, 4, 16, 8, 32, 1)
    return PatchReader((3, 8, 8), classes, 4, AttentionBlocks(16, 2, 1, 32))


def uploads(name: str, count: int) -> tuple[list[nn.Module], Tensor, Tensor, Tensor]:
    """Fresh models, the same as rows, one record's gradient on each, and its class."""
    shape, classes = NETWORKS[name]
    with COINS.child(name).ambient():
        modules = [built(name).eval() for _ in range(count)]
        records = torch.rand(count, 1, *shape)
    labels = torch.arange(count) % classes
    rows = [layout_of(module).flatten(dict(module.named_parameters())).detach() for module in modules]
    every = zip(modules, records, labels, strict=True)
    gradients = torch.stack([gradient_of(module, x, y.reshape(1)) for module, x, y in every])
    return modules, torch.stack(rows), gradients, labels


@pytest.mark.parametrize("name", list(NETWORKS))
def test_stacked_searches_are_the_same_searches(name: str) -> None:
    shape, classes = NETWORKS[name]
    recipe = Inverting(steps=4, variation=1e-2, labels="known", restarts=2, boxed=name != "rnn")
    modules, rows, gradients, labels = uploads(name, 3)
    coins = [COINS.child("search", number) for number in range(3)]
    alone = torch.cat(
        [
            inverting(recipe)(module, Target(gradient, 1, shape, classes, label.reshape(1)), one).pictures
            for module, gradient, label, one in zip(modules, gradients, labels, coins, strict=True)
        ]
    )
    found = inverting_stacked(recipe, modules[0], rows, gradients, labels, shape, coins)
    assert found.shape == (3, *shape)
    # A sign may tip where a derivative is all but zero: hardly anywhere.
    assert float(((found - alone).abs() > 1e-3).double().mean()) < 0.02
    assert float((found[0] - found[1]).abs().mean()) > 0.01


def test_a_search_that_fails_harms_no_other() -> None:
    recipe = Inverting(steps=3, labels="known")
    modules, rows, gradients, labels = uploads("rnn", 2)
    coins = [COINS.child("search", number) for number in range(2)]
    before = inverting_stacked(recipe, modules[0], rows, gradients, labels, (6, 4), coins)
    gradients[1] = torch.nan
    after = inverting_stacked(recipe, modules[0], rows, gradients, labels, (6, 4), coins)
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_what_does_not_fit_is_named() -> None:
    modules, rows, gradients, labels = uploads("rnn", 2)
    coins = [COINS, COINS]
    with pytest.raises(SpecError, match="'recovered'"):
        inverting_stacked(Inverting(steps=1), modules[0], rows, gradients, labels, (6, 4), coins)
    known = Inverting(steps=1, labels="known")
    with pytest.raises(SpecError, match="2 models, 2 gradients, 2 labels, 1 coins"):
        inverting_stacked(known, modules[0], rows, gradients, labels, (6, 4), coins[:1])
    none = Inverting(steps=1, labels="known", restarts=0)
    with pytest.raises(SpecError, match="restarts = 0"):
        inverting_stacked(none, modules[0], rows, gradients, labels, (6, 4), coins)
