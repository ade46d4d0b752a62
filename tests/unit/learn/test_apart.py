"""DP-SGD is refused, before a run, for networks that it does not hold for: by trying them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn.apart import check_apart
from croupier.learn.data import TensorRecords
from croupier.learn.dp_fit import DpAdam, DpSgd
from croupier.learn.flat import FlatNet
from croupier.learn.models import ConvNet, Forecaster, Perceptron
from croupier.learn.models.layers import Dropout
from croupier.learn.private import clipping
from croupier.learn.train import Learner

COINS = Coins.from_seed(6)
ENGINES = ("vmap", "opacus")


def rows(count: int = 40, shape: tuple[int, ...] = (6,)) -> TensorRecords:
    draw = COINS.child("rows").fast()
    return TensorRecords(torch.randn(count, *shape, generator=draw), torch.randint(3, (count,), generator=draw))


class Layer(nn.Module):
    """A layer without weights that somebody may bring along."""

    def __init__(self, by: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        """As it is told."""
        return self.by(x)


class Running(nn.Module):
    """A layer that keeps the mean of what it sees."""

    seen: Tensor

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(5))
        self.after, self.calls = after, 0

    def forward(self, x: Tensor) -> Tensor:
        """What came in."""
        self.calls += 1
        if self.training and self.calls > self.after:
            self.seen = self.seen + x.detach().mean(0)
        return x


class Grows(nn.Module):
    """A layer that changes its own weight while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        """A linear layer, after the change."""
        with torch.no_grad():
            self.fc.weight += 1e-3
        out: Tensor = self.fc(x)
        return out


def around(layer: nn.Module) -> nn.Module:
    with COINS.child("net").ambient():
        return nn.Sequential(nn.Linear(6, 5), nn.Sequential(layer, nn.ReLU()), nn.Linear(5, 3))


def check(module: nn.Module, engine: str, records: TensorRecords | None = None, batch: int = 8) -> None:
    fit = DpSgd.parse({"use": "dp-sgd", "engine": engine, "batch": batch})
    check_apart(module, "classify", fit, records or rows())


def big(x: Tensor) -> Tensor:
    return x - x.mean(0) if len(x) > 32 else x


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "centred": lambda x: x - x.mean(0),
    "a little": lambda x: x + 1e-4 * x.roll(1, 0),
    "the largest": lambda x: x / (1 + x.abs().max()),
    "how many": lambda x: x / len(x),
    "large batches": big,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MIXING)
def test_a_layer_that_looks_across_its_batch_is_refused_by_name(engine: str, name: str) -> None:
    with pytest.raises(SpecError) as caught:
        check(around(Layer(MIXING[name])), engine, batch=48)
    for said in ("task.fit = 'dp-sgd'", "the model's 1.0 (Layer)", "clip = 1", "nn.LayerNorm"):
        assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_refused_would_have_moved_the_sum_beyond_the_clip() -> None:
    net, fit = FlatNet(around(Layer(MIXING["centred"]))), DpSgd(engine="opacus")
    net.load(torch.randn(net.layout.size, generator=COINS.child("weights").fast()))
    x, y = rows().batch(torch.arange(40))
    with clipping(net, "classify", fit) as sums:
        moved = sums(x, y) - sums(torch.cat([x[:-1], 1e3 * x[-1:]]), y)
    assert float(moved.norm()) > 5 * 2 * fit.clip, "one record replaced moves it by 2 at most"


def test_mixing_in_the_networks_own_forward_is_said_so() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(x)
            return out - out.mean(0)

    with pytest.raises(SpecError, match=r"the model itself \(Own\) says of a record depends on the other records"):
        check(Own(), "opacus")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("layer", "said"),
    [(Running(), r"buffer '1\.0\.seen' changes while it trains"), (Grows(), r"changes its weight '1\.0\.fc\.weight'")],
    ids=["buffer", "weight"],
)
def test_state_that_would_leave_without_noise_is_refused(engine: str, layer: nn.Module, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        check(around(layer), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_does_not_start_with_either(engine: str) -> None:
    for layer in (Layer(MIXING["centred"]), Running()):
        for fit in (
            DpSgd.parse({"use": "dp-sgd", "engine": engine}),
            DpAdam.parse({"use": "dp-adam", "engine": engine}),
        ):
            with pytest.raises(SpecError, match=f"task.fit = '{fit.use}'"):
                Learner(around(layer), "classify", fit, {"a": rows()})


def test_a_buffer_that_changes_later_never_leaves() -> None:
    module = around(Running(after=40))
    fit = DpSgd(engine="opacus", batch=8, epochs=20)
    learner = Learner(module, "classify", fit, {"a": rows()})
    with pytest.raises(SpecError, match=r"buffer '1\.0\.seen' changes while it trains, and would leave without noise"):
        learner([(FlatNet(module).vector(), "a", COINS)])


def test_random_numbers_that_cannot_be_tried_are_refused_where_records_meet() -> None:
    noisy = around(Layer(lambda x: x * torch.rand(x.shape)))
    check(noisy, "vmap")
    with pytest.raises(SpecError, match=r"random numbers by other means than dropout.*nn\.Dropout.*engine = 'vmap'"):
        check(noisy, "opacus")


def test_a_network_that_an_engine_cannot_take_apart_is_refused_with_the_other() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.fc = nn.GRU(1, 4, 2, batch_first=True, dropout=0.5), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(self.gru(x)[0][:, -1])
            return out

    with pytest.raises(SpecError, match=r"task\.fit\.engine = 'vmap' gives no gradient .*try task\.fit\.engine"):
        check(Gated(), "vmap", rows(10, (5, 1)))


class Single(nn.Module):
    """A network that takes 32-bit numbers only, whatever it is given."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.fc, self.layer = nn.Linear(6, 3), layer

    def forward(self, x: Tensor) -> Tensor:
        """In single precision."""
        out: Tensor = self.layer(torch.addmm(self.fc.bias, x, self.fc.weight.T.float()).float())
        return out


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "module",
    [
        around(nn.LayerNorm(5)), around(nn.GroupNorm(1, 5)), around(nn.Dropout(0.5)), around(Dropout(0.5)),
        around(nn.Identity()), Perceptron((6, 5, 3), 0.2), Perceptron((6, 3)),
    ],
    ids=["layer norm", "group norm", "torch's dropout", "our dropout", "plain", "mlp with dropout", "linear"],
)  # fmt: skip
def test_what_holds_is_accepted(engine: str, module: nn.Module) -> None:
    before = [value.clone() for value in module.state_dict().values()]
    check(module, engine)
    assert all(torch.equal(one, two) for one, two in zip(before, module.state_dict().values(), strict=True))
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_sequences_and_single_records_are_accepted(engine: str) -> None:
    check(ConvNet(1, 16, 3), engine, rows(4, (1, 16, 16)))
    check(Perceptron((6, 5, 3)), engine, rows(1))
    fit = DpSgd.parse({"use": "dp-sgd", "engine": engine})
    series = rows(9, (5, 1))
    check_apart(Forecaster(4, 1), "forecast", fit, TensorRecords(series.x, series.x.mean(1)))


def test_numbers_of_32_bits_are_tried_as_they_are() -> None:
    check(Single(nn.Identity()), "vmap")
    with pytest.raises(SpecError, match=r"layer \(Layer\)"):
        check(Single(Layer(MIXING["centred"])), "vmap")


def test_words_and_constants_are_accepted() -> None:
    class Words(nn.Module):
        place: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.fc = nn.Embedding(9, 4), nn.Linear(4, 3)
            self.register_buffer("place", torch.linspace(0, 1, 4))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc((self.embed(x) + self.place).mean(1))
            return out

    draw = COINS.child("words").fast()
    words = TensorRecords(torch.randint(9, (20, 5), generator=draw), torch.randint(3, (20,), generator=draw))
    for engine in ENGINES:
        check(Words(), engine, words)


@pytest.mark.parametrize("engine", ENGINES)
def test_frozen_parts_stay_at_home_and_the_rest_is_tried(engine: str) -> None:
    fit = DpSgd.parse({"use": "dp-sgd", "engine": engine, "batch": 8})
    for module in (around(nn.LayerNorm(5)), Perceptron((6, 5, 3))):
        next(module.parameters()).requires_grad_(False)
        flat = FlatNet(module)
        start = torch.randn(flat.layout.size, generator=COINS.child("start").fast())
        learner = Learner(module, "classify", fit, {"a": rows()})
        (done,) = learner([(start, "a", COINS)])
        assert isinstance(done, Update)
        assert done.vector.shape == start.shape
        assert not torch.equal(done.vector, start)
    mixing = around(Layer(MIXING["centred"]))
    next(mixing.parameters()).requires_grad_(False)
    with pytest.raises(SpecError, match=r"1\.0 \(Layer\)"):
        check(mixing, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_small_networks_with_dropout_are_accepted_whatever_their_weights(engine: str) -> None:
    """Masks that happen to change nothing must not be taken for a network without chance."""
    for seed in range(12):
        with Coins.from_seed(seed).ambient():
            check(Perceptron((6, 5, 3), 0.2), engine)


class Closed(nn.Module):
    """A layer that mixes nothing while its weights are 0, as they are at first: gradients through it are 0, too."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, hidden), nn.Linear(hidden, 5)
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, x: Tensor) -> Tensor:
        """What came in, and what the gate lets through of the others."""
        out: Tensor = x + self.b(torch.relu(self.a(x + x.mean(0))))
        return out


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("hidden", [8, 1])
def test_a_path_that_training_would_open_is_refused(engine: str, hidden: int) -> None:
    with pytest.raises(
        SpecError, match=r"the model's 1\.0\.a \(Linear\) says of a record depends on the other records"
    ):
        check(around(Closed(hidden)), engine)
