"""Weight matching gives the rule back, from one upload or their average, and nothing from an unrelated model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.encode.symmetry import Symmetry
from croupier.errors import RangeError
from croupier.learn.axes import symmetry_of
from croupier.learn.axes.matching import assigned, match, shares
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.flat import layout_of
from croupier.learn.models import CifarCnn, Mixer, Mlp, Network, Rnn, Vit

COINS = Coins.from_seed(7)
CASES: dict[str, tuple[Network, tuple[int, ...]]] = {
    "mlp": (Mlp(hidden=(256, 128)), (1, 28, 28)),
    "rnn": (Rnn(), (30, 20)),
    "mixer": (Mixer(layers=2, width=64), (3, 32, 32)),
    "vit": (Vit(layers=2), (3, 32, 32)),
    "cnn": (CifarCnn(), (3, 32, 32)),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def vector_of(module: nn.Module) -> Tensor:
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    return layout_of(module).flatten(tensors).detach().clone()


def built(name: str, label: str = "") -> tuple[nn.Module, Symmetry, TensorRecords]:
    """A fresh network, its symmetry and some records whose edge never lights up."""
    network, shape = CASES[name]
    with COINS.child(name, label).ambient():
        x = torch.rand(640, *shape)
        x[..., 0] = 0
        rows = TensorRecords(x, torch.arange(640) % 10)
        module = network.build(Dataset(name, "classify", 10, rows, rows, "none", "drawn", labels=rows.y))
    return module, symmetry_of(module, rows.x[:2]), rows


def trained(module: nn.Module, rows: TensorRecords, epochs: int, lr: float = 1e-3) -> Tensor:
    search = torch.optim.Adam(module.parameters(), lr)
    for _ in range(epochs):
        for at in torch.arange(len(rows)).split(64):  # type: ignore[no-untyped-call]
            search.zero_grad()
            nn.functional.cross_entropy(module(rows.x[at]), rows.y[at]).backward()  # type: ignore[no-untyped-call]
            search.step()
    return vector_of(module)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_recovered_from_a_trained_model(name: str) -> None:
    module, symmetry, rows = built(name)
    few = rows.take(torch.arange(64 if name != "mlp" else 640))
    reference = vector_of(module)
    rule = symmetry.rule(bytes(32), 3)
    upload = symmetry.apply(trained(module, few, 1), rule)
    found = match(reference, upload, symmetry, COINS.child("attack"))
    assert min(shares(found.rule, rule).values()) >= 0.99
    assert found.apart < 0.5


@pytest.mark.parametrize("epochs", [1, 10])
def test_the_average_of_clients_gives_the_rule_away_as_one_does(epochs: int) -> None:
    module, symmetry, rows = built("mlp")
    reference = vector_of(module)
    uploads = []
    for part in torch.arange(len(rows)).chunk(3):
        nn.utils.vector_to_parameters(reference, module.parameters())
        uploads.append(trained(module, rows.take(part), epochs))
    rule = symmetry.rule(bytes(32), epochs)
    for upload in (uploads[0], torch.stack(uploads).mean(0)):
        found = match(reference, symmetry.apply(upload, rule), symmetry, COINS.child("mean"))
        assert min(shares(found.rule, rule).values()) >= 0.99


def test_an_unrelated_model_gives_nothing_away() -> None:
    _, symmetry, _ = built("mlp")
    other, _, _ = built("mlp", "other")
    mine, _, _ = built("mlp", "mine")
    rule = symmetry.rule(bytes(32), 0)
    found = match(vector_of(other), symmetry.apply(vector_of(mine), rule), symmetry, COINS.child("stranger"))
    assert max(shares(found.rule, rule).values()) < 0.05
    assert found.apart > 1


def test_ties_fall_at_random() -> None:
    orders = {tuple(assigned(np.zeros((5, 5)), COINS.child("tie", number)).tolist()) for number in range(20)}
    assert len(orders) > 10


def test_models_of_another_length_are_refused() -> None:
    module, symmetry, _ = built("mlp")
    with pytest.raises(RangeError, match="the symmetry is of"):
        match(vector_of(module)[:-1], vector_of(module), symmetry, COINS.child("short"))
