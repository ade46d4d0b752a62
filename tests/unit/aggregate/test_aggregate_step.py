"""Adaptive steps of the server, against the same formulas in NumPy, one number at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.step import Average, FedAdagrad, FedAdam, FedYogi, Step
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.update import Form, Gathered, Layout, Model, Slice
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import Continuation, rounds
from croupier.engine.state import state_from
from croupier.errors import ProtocolError, SpecError
from croupier.learn.assemble import Hardware, assemble
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Iid
from croupier.pipeline import Pipeline

SIZE = 5
LAYOUT = Layout((Slice("w", (SIZE,)),))
Number = Callable[[float, float, float], float]


def desk(vector: Tensor, layout: Layout = LAYOUT) -> Desk:
    return Desk((Model(vector),), layout, Coins.from_seed(0))


def gathered(rows: Tensor, form: Form = "delta", frame: bytes = b"") -> Gathered:
    weights = torch.arange(1, len(rows) + 1).double()
    return Gathered(tuple(f"c{i}" for i in range(len(rows))), rows, weights=weights, form=form, frame=frame)


def adam(v: float, d: float, beta2: float) -> float:
    return beta2 * v + (1 - beta2) * d**2


def yogi(v: float, d: float, beta2: float) -> float:
    return v - (1 - beta2) * d**2 * math.copysign(1, v - d**2) if v != d**2 else v


def adagrad(v: float, d: float, beta2: float) -> float:
    return v + d**2


CASES: list[tuple[Step, Number, float, float, float, float]] = [
    (FedAdam(), adam, 0.01, 0.9, 0.99, 1e-3),
    (FedAdam(lr=0.3, beta1=0.5, beta2=0.25, tau=0.1), adam, 0.3, 0.5, 0.25, 0.1),
    (FedYogi(), yogi, 0.01, 0.9, 0.99, 1e-3),
    (FedYogi(lr=1.0, beta1=0.0, beta2=0.5, tau=1.0), yogi, 1.0, 0.0, 0.5, 1.0),
    (FedAdagrad(), adagrad, 0.01, 0.0, 0.0, 1e-3),
    (FedAdagrad(lr=0.1, beta1=0.9), adagrad, 0.1, 0.9, 0.0, 1e-3),
]


@pytest.mark.parametrize("form", ["delta", "weights"])
@pytest.mark.parametrize(("step", "second", "lr", "beta1", "beta2", "tau"), CASES)
def test_four_rounds_follow_algorithm_2(
    step: Step, second: Number, lr: float, beta1: float, beta2: float, tau: float, form: Form
) -> None:
    draw = np.random.default_rng(4)
    model = torch.from_numpy(draw.normal(size=SIZE).astype(np.float32))
    memory: Memory = {"kept": 1}
    m, v = [0.0] * SIZE, [tau**2] * SIZE
    for _ in range(4):
        rows = (draw.normal(size=(3, SIZE)) * 10.0 ** draw.integers(-4, 1, SIZE)).astype(np.float32)
        rows[:, 0] = 0
        sent = rows if form == "delta" else rows + model.numpy()
        mean = np.average(sent.astype(float), axis=0, weights=[1, 2, 3])
        mean = mean if form == "delta" else mean - model.double().numpy()
        want = []
        for i in range(SIZE):
            m[i] = beta1 * m[i] + (1 - beta1) * mean[i]
            v[i] = second(v[i], mean[i], beta2)
            want.append(float(model[i]) + lr * m[i] / (math.sqrt(v[i]) + tau))
        (got,), memory = Mean(step=step)(gathered(torch.from_numpy(sent), form), desk(model), memory)
        np.testing.assert_allclose(got.vector.numpy(), want, rtol=2e-7, atol=1e-9)
        assert got.vector[0] == pytest.approx(float(model[0]), abs=1e-7)
        # What is remembered survives a checkpoint, bit for bit.
        memory = canon.load(canon.dump(memory))
        assert memory["kept"] == 1
        assert memory["step"]["second"].dtype == torch.float64
        model = got.vector


def test_the_average_is_what_it_was() -> None:
    rows = torch.randn(3, SIZE)
    start = torch.randn(SIZE)
    (plain,), memory = Mean()(gathered(rows), desk(start), {"kept": 1})
    (named,), _ = Mean(step=Average())(gathered(rows), desk(start), {})
    assert torch.equal(plain.vector, named.vector)
    assert memory == {"kept": 1}


def test_a_scaled_mean_steps_too_and_takes_sums() -> None:
    rows, start = torch.randn(3, SIZE), torch.randn(SIZE)
    (one,), held = Mean(step=FedAdam())(gathered(rows), desk(start), {})
    (other,), same = Scaled(step=FedAdam())(gathered(rows), desk(start), {})
    total = (rows.double() * torch.tensor([[1.0], [2.0], [3.0]])).sum(0)
    summed = Gathered(("a", "b", "c"), sums=total, weights=torch.tensor(6.0), form="delta")
    (third,), _ = Scaled(step=FedAdam())(summed, desk(start), {})
    assert torch.equal(one.vector, other.vector)
    assert canon.digest(held) == canon.digest(same)
    assert torch.allclose(third.vector, one.vector, atol=1e-6)


def test_statistics_are_averaged_whatever_the_step() -> None:
    layout = Layout((Slice("w", (2,)), Slice("var", (3,), "statistic")))
    rows, start = torch.rand(3, SIZE), torch.rand(SIZE)
    (stepped,), held = Mean(step=FedYogi())(gathered(rows, "weights"), desk(start, layout), {})
    (mean,), _ = Mean()(gathered(rows, "weights"), desk(start, layout), {})
    assert torch.allclose(stepped.vector[2:], mean.vector[2:], atol=1e-7)
    assert not torch.allclose(stepped.vector[:2], mean.vector[:2], atol=1e-3)
    assert len(held["step"]["first"]) == 2


def test_the_order_of_the_rows_does_not_show() -> None:
    rows = torch.randn(7, SIZE) * 10.0 ** torch.randint(-6, 6, (7, SIZE))
    mixed = rows.gather(0, torch.rand(7, SIZE).argsort(0))
    alike = torch.ones(7).double()
    (one,), held = Mean(step=FedAdam())(
        Gathered(("a",) * 7, rows, weights=alike, form="delta"), desk(torch.zeros(SIZE)), {}
    )
    (other,), same = Mean(step=FedAdam())(
        Gathered(("a",) * 7, mixed, weights=alike, form="delta"), desk(torch.zeros(SIZE)), {}
    )
    assert torch.equal(one.vector, other.vector)
    assert canon.digest(held) == canon.digest(same)


def test_moments_of_another_frame_are_refused() -> None:
    rule = Mean(step=FedAdam())
    _, held = rule(gathered(torch.ones(2, SIZE), frame=b"epoch 1"), desk(torch.zeros(SIZE)), {})
    rule(gathered(torch.ones(2, SIZE), frame=b"epoch 1"), desk(torch.zeros(SIZE)), held)
    with pytest.raises(ProtocolError, match=r"step = 'adam' remembers moments .*; use step = 'average'"):
        rule(gathered(torch.ones(2, SIZE), frame=b"epoch 2"), desk(torch.zeros(SIZE)), held)


@pytest.mark.parametrize("table", [{"lr": 0}, {"beta1": 1.0}, {"beta2": -0.1}, {"tau": 0}])
def test_settings_out_of_range_are_refused(table: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=f"aggregate.step.{next(iter(table))}"):
        Mean.parse({"use": "mean", "step": {"use": "adam", **table}}, "aggregate")
    with pytest.raises(SpecError, match=r"no step has that name; did you mean 'adam'"):
        Mean.parse({"use": "mean", "step": "adm"}, "aggregate")


@pytest.mark.parametrize("step", [FedAdam(lr=0.03), FedYogi(lr=0.03), FedAdagrad(lr=0.03)])
def test_a_run_learns_and_resumes_from_its_checkpoint(step: Step) -> None:
    made = assemble(
        Digits(), Iid(clients=6), Mlp(hidden=(16,)), Sgd(lr=0.1), Coins.from_seed(2), machine=Hardware(workers=1)
    )
    pipeline = Pipeline(aggregate=Mean(step=step))
    coins, plan = Coins.from_seed(5), Federation(rounds=8)
    whole = list(rounds(pipeline, made.task, plan, coins, Local()))
    assert whole[-1].metrics["accuracy"] > 0.6 > whole[0].metrics["accuracy"]
    kept = state_from(canon.load(canon.dump(whole[3].state.plain())))
    resumed = list(rounds(pipeline, made.task, plan, coins, Local(), start=Continuation(kept)))
    assert torch.equal(resumed[-1].state.model.vector, whole[-1].state.model.vector)
