"""Clients that train as one, the way a device does it: the same models as one by one on the CPU, and these on the CPU.

On a GPU too, where there is one; elsewhere the same steps through all weights at once run on the CPU.
"""

from __future__ import annotations

import pytest
import torch

from croupier.core.coins import Coins
from croupier.learn.batch import home, total, train_together
from croupier.learn.data import Dataset, TensorRecords, Windows
from croupier.learn.fit import Adam, Fit, Sgd
from croupier.learn.flat import FlatNet, layout_of
from croupier.learn.models import Lstm, MnistCnn, Network
from croupier.learn.train import ClientTrainer

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.cuda))


def pictures(count: int) -> TensorRecords:
    drawn = torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(count))
    return TensorRecords(drawn, torch.arange(count) % 10)


def series(count: int) -> Windows:
    drawn = torch.rand(count + 6, generator=torch.Generator().manual_seed(count))
    return Windows(drawn, torch.arange(count), 6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("network", "fit"),
    [
        (MnistCnn(stacked=True, standardise=True), Sgd(lr=0.05, epochs=2, batch=4)),
        (Lstm(hidden=3, stacked=True), Adam(lr=0.01, epochs=2, batch=4, epsilon=1e-3)),
    ],
)
def test_models_are_those_of_clients_alone(network: Network, fit: Fit, apart: bool, device: str) -> None:
    """From one model, and from models of their own."""
    seen = isinstance(network, MnistCnn)
    shards = [(pictures if seen else series)(count) for count in (9, 5, 2)]
    goal, classes = ("classify", 10) if seen else ("forecast", 0)
    dataset = Dataset("own", "classify" if seen else "forecast", classes, shards[0], shards[0], "none", "made up")
    with Coins.from_seed(1).ambient():
        module = network.build(dataset)
    first = layout_of(module).flatten(module.state_dict())
    starts = [first * (1 + 0.01 * number) if apart else first for number in range(3)]
    coins = [Coins.from_seed(number) for number in range(3)]
    alone = ClientTrainer(module, goal, fit)(list(zip(starts, shards, coins, strict=True)))
    clients = [(start, held.to(device), one.fast()) for start, held, one in zip(starts, shards, coins, strict=True)]
    got = train_together(FlatNet(module, device), goal, fit, clients, whole=True)
    for one, other, start in zip(alone, got, starts, strict=True):
        assert other.device.type == "cpu"
        assert float((one - start).abs().max()) > 1e-3
        assert float((one - other).abs().max()) < 1e-5


def test_models_that_were_handed_out_stay_as_they_are() -> None:
    shards = [series(9), series(5)]
    dataset = Dataset("own", "forecast", 0, shards[0], shards[0], "none", "made up")
    with Coins.from_seed(1).ambient():
        module = Lstm(hidden=3, stacked=True).build(dataset)
    first = layout_of(module).flatten(module.state_dict())
    kept = first.clone()
    for some in (shards[:1], shards):
        for whole in (False, True):
            clients = [(first, held, Coins.from_seed(2).fast()) for held in some]
            got = train_together(FlatNet(module), "forecast", Sgd(lr=0.1, epochs=2, batch=4), clients, whole)
            assert torch.equal(first, kept)
            assert all(float((one - first).abs().max()) > 1e-3 for one in got)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_count_as_in_their_total(targets: int, dtype: torch.dtype) -> None:
    """The gradient of the total, each record's mean loss times its share, bit by bit."""
    share = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.1, 0.9, 0.0]])
    drawn = torch.rand(6, targets, dtype=dtype, generator=torch.Generator().manual_seed(1))
    losses = (drawn if targets > 1 else drawn[:, 0]).requires_grad_()
    plain = (losses.reshape(*share.shape, -1).mean(-1) * share).sum()
    (wanted,) = torch.autograd.grad(plain, losses)
    (found,) = torch.autograd.grad(total(losses, share), losses)
    assert torch.equal(found, wanted)
    assert torch.allclose(total(losses, share), plain.to(dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_come_home(device: str) -> None:
    rows = torch.arange(12.0).view(3, 4)
    found = home(rows.to(device))
    assert found.device.type == "cpu"
    assert torch.equal(found, rows)
    assert found.is_pinned() == (device == "cuda")
