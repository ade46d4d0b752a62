"""Recurrent layers written out: the same answers, the same names, and a gradient for every record."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.learn.data import TensorRecords
from croupier.learn.dp_fit import DpAdam
from croupier.learn.flat import layout_of
from croupier.learn.models.rnn import Cell, Listener
from croupier.learn.private import each
from croupier.learn.train import Learner
from croupier.learn.unroll import unrolled

COINS = Coins.from_seed(21)
DRAWN = torch.randn(6, 7, 5, generator=COINS.child("x").fast())
LABELS = torch.arange(6) % 3


def listener(cell: Cell, both: bool = False) -> Listener:
    with COINS.child("net").ambient():
        return Listener(cell, 5, 4, 2, 3, both)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_the_same_network_written_out(cell: Cell, both: bool) -> None:
    module = listener(cell, both)
    twin = unrolled(module)
    assert [name for name, _ in twin.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert all(one is other for one, other in zip(module.parameters(), twin.parameters(), strict=True))
    assert not any(isinstance(part, nn.RNNBase) for part in twin.modules())
    assert torch.allclose(module(DRAWN), twin(DRAWN), atol=1e-6)
    for row, x, y in zip(each(twin, "classify", DRAWN, LABELS), DRAWN, LABELS, strict=True):
        loss = nn.functional.cross_entropy(module(x.unsqueeze(0)), y.unsqueeze(0))
        alone = torch.autograd.grad(loss, list(module.parameters()))
        assert torch.allclose(row, torch.cat([part.flatten() for part in alone]), atol=1e-6)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU])
def test_layers_alone_with_time_first_without_biases_or_with_relu(kind: type[nn.RNN | nn.GRU]) -> None:
    every: list[dict[str, Any]] = [{}, {"bias": False}, *([{"nonlinearity": "relu"}] if kind is nn.RNN else [])]
    for more in every:
        layer = kind(5, 4, **more)
        assert torch.allclose(layer(DRAWN)[0], unrolled(layer)(DRAWN)[0], atol=1e-6)


def test_others_stay_as_they_are() -> None:
    for module in (nn.Linear(2, 2), listener("lstm"), nn.RNN(5, 4, 2, dropout=0.5)):
        assert unrolled(module) is module


def test_a_recurrent_network_trains_on_noised_gradients() -> None:
    module, fit = listener("rnn"), DpAdam(epochs=2, batch=3)
    start = layout_of(module).flatten(module.state_dict())
    (done,) = Learner(module, "classify", fit, {"a": TensorRecords(DRAWN, LABELS)})([(start, "a", COINS.child("fit"))])
    assert isinstance(done, Update)
    assert bool((done.vector != start).all())
