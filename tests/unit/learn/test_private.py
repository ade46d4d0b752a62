"""DP-SGD: gradients of single records, clipped; noise from secure coins; and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import SpecError
from croupier.learn import private
from croupier.learn.assemble import Hardware, TaskOptions, assemble
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.dp_fit import BOUND, DpSgd, truncated
from croupier.learn.fit import Sgd
from croupier.learn.flat import FlatNet, loss_of
from croupier.learn.models import ConvNet, Forecaster, Mlp, Perceptron, ResidualNet
from croupier.learn.split import Iid
from croupier.learn.train import Learner

COINS = Coins.from_seed(5)
HUGE = 1e9


def rows(count: int = 40, shape: tuple[int, ...] = (6,)) -> TensorRecords:
    draw = COINS.child("rows").fast()
    return TensorRecords(torch.randn(count, *shape, generator=draw), torch.randint(3, (count,), generator=draw))


def net(*widths: int, dropout: float = 0.0) -> Perceptron:
    with COINS.child("net").ambient():
        return Perceptron(widths or (6, 5, 3), dropout)


def trained(
    fit: Sgd, records: TensorRecords, module: nn.Module | None = None, coins: Coins = COINS, group: int = 1
) -> Tensor:
    module = module or net()
    (done,) = Learner(module, "classify", fit, {"a": records}, group=group)([(FlatNet(module).vector(), "a", coins)])
    assert isinstance(done, Update)
    return done.vector


@pytest.mark.parametrize(
    ("module", "goal", "shape"),
    [(net(), "classify", (6,)), (ConvNet(1, 16, 3), "classify", (1, 16, 16)), (Forecaster(4, 1), "forecast", (5, 1))],
    ids=["mlp", "cnn", "lstm"],
)
def test_gradients_of_records_are_those_of_batches_of_one(module: nn.Module, goal: str, shape: tuple[int, ...]) -> None:
    x, y = rows(7, shape).batch(torch.arange(7))
    y = y if goal == "classify" else x.mean(1)
    found = private.each(module, goal, x, y)
    for row, one, target in zip(found, x, y, strict=True):
        loss = loss_of(goal, module(one.unsqueeze(0)), target.unsqueeze(0))
        alone = torch.autograd.grad(loss, list(module.parameters()))
        assert torch.allclose(row, torch.cat([part.flatten() for part in alone]), atol=1e-6)


def test_every_record_is_clipped_alone() -> None:
    x, y = rows().batch(torch.arange(40))
    each = private.each(net(), "classify", 100 * x, y)
    norms = each.norm(dim=1)
    clip = float(norms.median())
    assert float(norms.max()) > 2 * clip
    for row, norm in zip(each, norms.tolist(), strict=True):
        kept = private.clipped(row.unsqueeze(0), clip)
        assert float(kept.norm()) <= clip * (1 + 1e-6)
        assert torch.allclose(kept, row if norm <= clip else row * clip / norm)
    wanted = sum(private.clipped(row.unsqueeze(0), clip) for row in each)
    assert isinstance(wanted, Tensor)
    assert torch.allclose(private.clipped(each, clip), wanted, rtol=1e-4, atol=1e-4)
    assert not private.clipped(torch.zeros(2, 3), clip).any()


def test_a_record_moves_the_sum_by_no_more_than_the_clip() -> None:
    x, y = rows().batch(torch.arange(40))
    each = private.each(net(), "classify", 100 * x, y)
    for left_out in range(40):
        others = torch.cat([each[:left_out], each[left_out + 1 :]])
        assert float((private.clipped(each, 0.5) - private.clipped(others, 0.5)).norm()) <= 0.5 * (1 + 1e-4)


def test_a_gradient_that_is_not_finite_counts_for_nothing() -> None:
    each = torch.tensor([[3.0, 4.0], [math.nan, 0.0], [math.inf, 1.0]])
    assert torch.allclose(private.clipped(each, 1.0), torch.tensor([0.6, 0.8]))


def test_sums_of_products_are_those_of_gradients_laid_out() -> None:
    module = net(6, 7, 5, 3)
    x, y = rows().batch(torch.arange(40))
    x[3] = math.nan
    laid = private.each(module, "classify", 3 * x, y)
    clip = float(laid.norm(dim=1).nanmedian())
    found = private.of_products(module, 3 * x, y, clip)
    assert torch.allclose(found, private.clipped(laid, clip), atol=1e-5)
    assert not torch.allclose(found, private.clipped(laid, HUGE), atol=1e-2)
    with private.clipping(FlatNet(module), "classify", DpSgd(clip=clip)) as sums:
        assert sums(x, y).shape == found.shape


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_noise_and_clipping_it_is_plain_sgd_on_the_same_batches(momentum: float) -> None:
    fit = DpSgd(lr=0.1, momentum=momentum, epochs=3, batch=8, noise=0, clip=HUGE, weight_decay=0.01)
    records, module = rows(), net()
    flat, plain = FlatNet(module), Sgd(lr=0.1, momentum=momentum, weight_decay=0.01)
    state = plain.start(flat.weights)
    for number, index in enumerate(fit.samples(40, COINS.child("sample").secure()), 1):
        x, y = records.batch(index)
        flat.grads.zero_()
        # Divided by the size that a batch is expected to have.
        (functional.cross_entropy(flat.module(x), y, reduction="sum") / 8).backward()  # type: ignore[no-untyped-call]
        plain.step(flat.weights, flat.grads, state, number)
    found = trained(fit, records, module)
    assert float((found - flat.vector()).abs().max()) < 1e-5
    assert float((found - FlatNet(module).vector()).abs().max()) > 0.05


def test_slices_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = DpSgd(lr=0.1, epochs=2, batch=16, clip=0.3)
    whole = trained(fit, rows())
    monkeypatch.setattr(private, "ROOM", 3 * len(whole))
    assert float((trained(fit, rows()) - whole).abs().max()) < 1e-5


def test_every_record_is_sampled_at_the_rate_and_on_its_own() -> None:
    fit = DpSgd(batch=10, epochs=800)
    drawn = torch.zeros(8000, 100)
    for step, index in enumerate(fit.samples(100, COINS.child("rate").secure())):
        drawn[step, index] = 1
    sizes = drawn.sum(1)
    assert step == 7999
    assert abs(float(drawn.mean()) - 0.1) < 5 * math.sqrt(0.09 / drawn.numel())
    assert float((drawn.mean(0) - 0.1).abs().max()) < 5 * math.sqrt(0.09 / 8000)
    # A batch of a fixed size would have no spread.
    assert abs(float(sizes.var()) - 9) < 1
    assert [len(index) for index in DpSgd(batch=64).samples(5, COINS.secure())] == [5]
    assert DpSgd(batch=64).rate(5) == 1


def test_an_empty_batch_is_noised_all_the_same() -> None:
    fit = DpSgd(lr=1.0, momentum=0, noise=1.0, clip=1e-6, batch=1, epochs=1)
    empty = next(
        coins
        for number in range(100)
        if not len(next(fit.samples(3, (coins := COINS.child(number)).child("sample").secure())))
    )
    one = first_move(fit, 3, empty)
    assert bool((one != 0).all())


def first_move(fit: DpSgd, count: int, coins: Coins) -> Tensor:
    """What the first step moves."""
    index = next(fit.samples(count, coins.child("sample").secure()))
    x, y = rows(count).batch(index)
    flat = FlatNet(net())
    before = flat.vector()
    total = private.clipped(private.each(flat.module, "classify", x, y), fit.clip) if len(index) else before * 0
    fit.noised(flat.weights, total, fit.rate(count) * count, fit.start(flat.weights), 1, coins.child("noise").secure())
    return flat.vector() - before


@pytest.mark.parametrize("tail", ["plain", "clamped"])
def test_noise_has_its_deviation_and_comes_from_the_coins(tail: str) -> None:
    # The gradients are next to nothing, and the weights far from the ends: what is left is noise.
    fit = DpSgd.parse(
        {"use": "dp-sgd", "lr": 1.0, "momentum": 0, "noise": 3.0, "clip": 1e-4, "batch": 20, "tail": tail}
    )
    weights = torch.zeros(60_000)
    fit.noised(weights, torch.zeros(60_000), 20.0, fit.start(weights), 1, COINS.child("noise").secure())
    deviation = 3.0 * 1e-4 / 20
    assert abs(float(weights.double().std()) / deviation - 1) < 0.015
    assert stats.kstest(weights.double().numpy() / deviation, "norm").pvalue > 1e-3
    wanted = -torch.from_numpy(COINS.child("noise").secure().normal(60_000)).float() * deviation
    assert torch.allclose(weights, wanted, rtol=1e-5)


def test_the_same_coins_give_the_same_update_and_others_another() -> None:
    fit, records = DpSgd(lr=0.1, epochs=2, batch=16), rows()
    first = trained(fit, records)
    assert torch.equal(first, trained(fit, records))
    assert float((first - trained(fit, records, coins=COINS.child("else"))).abs().min()) > 0
    # Torch's own generator has no say.
    with torch.random.fork_rng():
        torch.manual_seed(1)
        assert torch.equal(first, trained(fit, records))
    dropped = trained(fit, records, net(6, 5, 3, dropout=0.5))
    assert torch.equal(dropped, trained(fit, records, net(6, 5, 3, dropout=0.5)))
    assert not torch.equal(dropped, first)


def test_it_is_never_stacked() -> None:
    fit = DpSgd(lr=0.1, epochs=1, batch=16)
    assert torch.equal(trained(fit, rows(), group=8), trained(fit, rows()))
    made = {
        together: assemble(
            Digits(),
            Iid(clients=3),
            Mlp(hidden=(8,)),
            fit,
            COINS,
            options=TaskOptions(together=together),
            machine=Hardware(workers=1),
        ).task
        for together in (1, 64)
    }
    updates = {
        together: task.fit([(task.first.vector, shard, COINS.child(shard)) for shard in task.shards.values()])
        for together, task in made.items()
    }
    for one, other in zip(updates[1], updates[64], strict=True):
        assert isinstance(one, Update)
        assert isinstance(other, Update)
        assert torch.equal(one.vector, other.vector)


@pytest.mark.parametrize("tail", ["clamped", "truncated"])
def test_weights_stay_in_range(tail: str) -> None:
    loud = DpSgd.parse({"use": "dp-sgd", "lr": 1.0, "noise": 20.0, "clip": 1.0, "batch": 8, "epochs": 3, "tail": tail})
    assert float(trained(loud, rows()).abs().max()) <= BOUND
    assert float(trained(loud.model_copy(update={"tail": "plain"}), rows()).abs().max()) > 5
    silent = loud.model_copy(update={"noise": 0.0, "clip": HUGE, "lr": 50.0})
    assert float(trained(silent, rows()).abs().max()) <= BOUND


def test_truncated_noise_is_the_normal_given_that_the_weight_stays() -> None:
    many = 40_000
    for low, high in ((-1.0, 2.0), (0.5, 0.75), (-60.0, -50.0), (4.0, 90.0), (-math.pi, math.pi)):
        found = truncated(np.full(many, low), np.full(many, high), COINS.child("t").secure())
        assert bool(((found >= low) & (found <= high)).all())
        assert stats.kstest(found, stats.truncnorm(low, high).cdf).pvalue > 1e-3
    # Clamped weights pile up at the ends, those of truncated noise do not.
    loud = {"lr": 1.0, "momentum": 0.0, "noise": 1.0, "clip": 1.0, "batch": 1}
    ends = {}
    for tail in ("clamped", "truncated"):
        fit = DpSgd.model_validate({**loud, "tail": tail})
        weights = torch.linspace(-1, 1, many)
        fit.noised(weights, torch.zeros(many), 1.0, fit.start(weights), 1, COINS.child("ends").secure())
        ends[tail] = int((weights.abs() == BOUND).sum())
    assert ends["clamped"] > many / 4
    assert ends["truncated"] < many / 1000


def test_models_that_mix_records_are_refused() -> None:
    images = TensorRecords(torch.rand(5, 3, 8, 8), torch.tensor([0, 1, 0, 1, 0]))
    with pytest.raises(SpecError, match=r"'dp-sgd': the model's \S+ \(BatchNorm2d\) normalises over batches.*'mlp'"):
        Learner(ResidualNet(2), "classify", DpSgd(), {"a": images})
    kept = nn.Sequential(nn.InstanceNorm2d(3, track_running_stats=True), nn.Flatten(), nn.Linear(192, 2))
    with pytest.raises(SpecError, match=r"InstanceNorm2d.*keeps statistics"):
        Learner(kept, "classify", DpSgd(), {"a": images})
    Learner(ResidualNet(2), "classify", Sgd(), {"a": images})
    private.check_private(nn.Sequential(nn.InstanceNorm2d(3), nn.GroupNorm(1, 3)))


def test_its_fields_are_checked() -> None:
    for wrong in ({"noise": -1.0}, {"clip": 0.0}, {"tail": "cut"}):
        with pytest.raises(SpecError, match=next(iter(wrong))):
            DpSgd.parse({"use": "dp-sgd", **wrong})
