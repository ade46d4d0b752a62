"""Opacus's gradients of records are torch's, and everything else about DP-SGD stays as it is."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn import loss as losses
from croupier.learn.data import TensorRecords
from croupier.learn.dp_fit import DpSgd
from croupier.learn.flat import FlatNet, loss_of
from croupier.learn.models import ConvNet, Forecaster, Perceptron
from croupier.learn.private import each
from croupier.learn.sampled import sampling
from croupier.learn.train import Learner

COINS = Coins.from_seed(5)


class Recurrent(nn.Module):
    """A GRU with a head, as somebody may bring along."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 4, batch_first=True)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, 1) to (batch, 2)."""
        out: Tensor = self.fc(self.gru(x)[0][:, -1])
        return out


class Borrowed(nn.Module):
    """A layer whose weight is used a second time behind its back."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        """The layer, and once more by hand."""
        out: Tensor = self.fc(x) @ self.fc.weight
        return out


def made(module: nn.Module) -> FlatNet:
    net = FlatNet(module)
    net.load(torch.randn(net.layout.size, generator=COINS.child("weights").fast()) * 0.3)
    net.module.train()
    return net


def batch(goal: str, shape: tuple[int, ...], wide: int = 1) -> tuple[Tensor, Tensor]:
    draw = COINS.child("batch").fast()
    x = torch.randn(7, *shape, generator=draw)
    y = torch.randint(3, (7,), generator=draw) if goal == "classify" else torch.randn(7, wide, generator=draw)
    return x, y


def one_by_one(module: nn.Module, goal: str, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of a batch of one, by plain autograd."""
    grads = torch.autograd.grad(loss_of(goal, module(x), y), list(module.parameters()))
    return torch.cat([grad.flatten() for grad in grads])


def test_vmap_cannot_take_a_gru_apart_unless_it_is_written_out() -> None:
    net, (x, y) = made(Recurrent()), batch("forecast", (5, 1), 2)
    with pytest.raises(RuntimeError):
        each(net.module, "forecast", x, y)


@pytest.mark.parametrize(
    ("module", "goal", "shape", "wide"),
    [
        (Perceptron((6, 5, 3), 0.0), "classify", (6,), 1), (ConvNet(1, 16, 3), "classify", (1, 16, 16), 1),
        (Forecaster(4, 2), "forecast", (5, 1), 1), (Recurrent(), "forecast", (5, 1), 2),
    ],
    ids=["mlp", "cnn", "lstm", "gru"],
)  # fmt: skip
def test_gradients_are_those_of_single_records(module: nn.Module, goal: str, shape: tuple[int, ...], wide: int) -> None:
    pytest.importorskip("opacus", reason="the extra `opacus` is not installed")
    net, (x, y) = made(module), batch(goal, shape, wide)
    before, names = net.vector(), [name for name, _ in net.module.named_parameters()]
    grads = [weight.grad.data_ptr() for weight in net.module.parameters() if weight.grad is not None]
    alone = torch.stack([one_by_one(net.module, goal, x[i : i + 1], y[i : i + 1]) for i in range(7)])
    with sampling(net, goal) as found:
        rows = found(x, y)
        net.weights.mul_(0.5)
        moved = found(x, y)
        net.weights.mul_(2.0)
    scale = float(alone.abs().max())
    assert torch.allclose(rows, alone, rtol=1e-4, atol=1e-6 * max(1.0, scale))
    assert not torch.allclose(moved, rows, rtol=1e-2), "a step in the flat weights reaches the layers"
    assert torch.equal(net.vector(), before)
    assert [name for name, _ in net.module.named_parameters()] == names
    assert [weight.grad.data_ptr() for weight in net.module.parameters() if weight.grad is not None] == grads
    assert not any(hasattr(weight, "grad_sample") for weight in net.module.parameters())
    assert torch.equal(one_by_one(net.module, goal, x[:1], y[:1]), alone[0])


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own, for each target."""
    return (outputs - targets).square()


@pytest.mark.parametrize("goal", [f"{__name__}:squares", "huber", "forecast"])
def test_both_engines_give_the_same_gradients_where_a_record_has_two_targets(
    goal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opacus", reason="the extra `opacus` is not installed")
    monkeypatch.setattr(losses, "_function", lambda *_: squares)
    net, (x, y) = made(Perceptron((6, 5, 2), 0.0)), batch("forecast", (6,), 2)
    alone = each(net.module, goal, x, y)
    with sampling(net, goal) as found:
        assert torch.allclose(found(x, y), alone, rtol=1e-4, atol=1e-6)


def test_both_engines_train_alike() -> None:
    """Sampling, clipping and noise come from the same secure coins."""
    pytest.importorskip("opacus", reason="the extra `opacus` is not installed")
    draw = COINS.child("rows").fast()
    rows = TensorRecords(torch.randn(40, 6, generator=draw), torch.randint(3, (40,), generator=draw))
    with COINS.child("net").ambient():
        module = Perceptron((6, 5, 3), 0.0)
    ends = []
    for engine in ("vmap", "opacus"):
        fit = DpSgd(lr=0.1, batch=8, epochs=2, clip=0.5, noise=1.0, engine=engine)
        (done,) = Learner(module, "classify", fit, {"a": rows})([(FlatNet(module).vector(), "a", COINS)])
        assert isinstance(done, Update)
        ends.append(done.vector)
    assert not torch.equal(ends[0], FlatNet(module).vector())
    assert torch.allclose(ends[0], ends[1], atol=1e-5)


def test_weights_used_behind_a_layers_back_are_noticed() -> None:
    pytest.importorskip("opacus", reason="the extra `opacus` is not installed")
    net, (x, y) = made(Borrowed()), batch("classify", (6,))
    with (
        pytest.raises(SpecError, match=r"do not add up; use task\.fit\.engine = 'vmap'"),
        sampling(net, "classify") as found,
    ):
        found(x, y)
    assert not any(hasattr(weight, "grad_sample") for weight in net.module.parameters())


def test_without_opacus_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.grad_sample", None)
    with pytest.raises(SpecError, match=r"pip install 'croupier\[opacus\]'"), sampling(made(Borrowed()), "classify"):
        pass
