"""Clients trained stacked, alone, and by torch's own optimisers learn the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Data, Dataset, TensorRecords
from croupier.learn.datasets import Digits, Households
from croupier.learn.fit import Adam, Fit, Sgd
from croupier.learn.models import Lstm, Mlp, ResNet18
from croupier.learn.split import Dirichlet, Iid, Natural
from croupier.learn.train import Learner
from croupier.systems import plain

FITS: dict[str, Fit] = {
    "sgd": Sgd(lr=0.1, momentum=0.9, epochs=2, batch=32),
    "sgd without momentum": Sgd(lr=0.1, momentum=0.0, epochs=2, batch=32),
    "sgd with decay": Sgd(lr=0.05, momentum=0.5, weight_decay=0.01, epochs=2, batch=17),
    "adam": Adam(lr=0.003, epochs=2, batch=32),
    "adam with decay": Adam(lr=0.001, weight_decay=0.02, beta1=0.8, beta2=0.99, epochs=2, batch=50),
}
COINS = Coins.from_seed(4)


def _made(fit: Fit, together: int) -> Assembled:
    torch.set_num_threads(1)
    split = Dirichlet(clients=12, alpha=0.2)
    return assemble(
        Digits(),
        split,
        Mlp(hidden=(32,)),
        fit,
        COINS,
        options=TaskOptions(together=together),
        machine=Hardware(workers=1),
    )


def _updates(made: Assembled) -> dict[str, Tensor]:
    jobs = [(made.task.first.vector, shard, COINS.child("job", who)) for who, shard in made.task.shards.items()]
    done = made.task.fit(jobs)
    assert all(isinstance(update, Update) for update in done)
    return {
        who: update.vector for who, update in zip(made.task.shards, done, strict=True) if isinstance(update, Update)
    }


def _records(made: Assembled, who: str) -> TensorRecords:
    assert isinstance(made.task.fit, Learner)
    records = made.task.fit.shards[made.task.shards[who]]
    assert isinstance(records, TensorRecords)
    return records


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("together", [64, 5])
def test_stacked_clients_learn_what_they_learn_alone(name: str, together: int) -> None:
    stacked, alone = _made(FITS[name], together), _made(FITS[name], 1)
    sizes = [len(_records(alone, who)) for who in alone.task.shards]
    assert min(sizes) < 40
    assert max(sizes) > 150, "the shards must be ragged for this to say anything"
    many, single = _updates(stacked), _updates(alone)
    start = alone.task.first.vector
    for who in single:
        assert float((single[who] - start).abs().max()) > 1e-3
        assert float((many[who] - single[who]).abs().max()) <= 1e-5, who


def _optimiser(fit: Fit, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    if isinstance(fit, Sgd):
        return torch.optim.SGD(parameters, fit.lr, momentum=fit.momentum, weight_decay=fit.weight_decay)
    assert isinstance(fit, Adam)
    return torch.optim.Adam(
        parameters, fit.lr, betas=(fit.beta1, fit.beta2), eps=fit.epsilon, weight_decay=fit.weight_decay
    )


def _by_torch(made: Assembled, fit: Fit, who: str) -> Tensor:
    module = copy.deepcopy(made.module).train()
    optimiser = _optimiser(fit, module.parameters())
    records, generator = _records(made, who), COINS.child("job", who).fast()
    for _ in range(fit.epochs):
        order = torch.randperm(len(records), generator=generator)
        for start in range(0, len(records), fit.batch):
            rows = order[start : start + fit.batch]
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(records.x[rows]), records.y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("name", FITS)
def test_a_client_alone_learns_what_torchs_own_optimiser_learns(name: str) -> None:
    made = _made(FITS[name], 1)
    found = _updates(made)
    for who in ("c00", "c05", "c11"):
        assert float((found[who] - _by_torch(made, FITS[name], who)).abs().max()) <= 1e-6, who


def test_a_client_counts_for_its_records() -> None:
    made = _made(FITS["sgd"], 64)
    jobs = [(made.task.first.vector, shard, COINS.child(who)) for who, shard in made.task.shards.items()]
    for who, update in zip(made.task.shards, made.task.fit(jobs), strict=True):
        assert isinstance(update, Update)
        assert update.luggage["weight"].tolist() == [float(len(_records(made, who)))]


class Pictures(Data):
    """A few tiny RGB pictures of noise."""

    licence: ClassVar[str] = "none"

    def load(self, folder: Path | None) -> Dataset:
        generator = torch.Generator().manual_seed(0)
        x, y = torch.rand(12, 3, 8, 8, generator=generator), torch.arange(12) % 3
        rows = TensorRecords(x, y)
        return Dataset("pictures", "classify", 3, rows, rows.take(torch.arange(4)), "none", "made here", labels=y)


def test_a_resnets_statistics_travel_and_its_counters_stay() -> None:
    torch.set_num_threads(1)
    fit = Sgd(lr=0.01, epochs=1, batch=6)
    made = assemble(
        Pictures(),
        Iid(clients=2),
        ResNet18(),
        fit,
        COINS,
        options=TaskOptions(together=64),
        machine=Hardware(workers=1),
    )
    pipeline = plain()
    (done,) = rounds(pipeline, made.task, Federation(rounds=1), COINS, Local(), keep={"server": "keep"})
    inbox = next(value for value in done.views["server"].inputs if isinstance(value, tuple) and value)
    sent = [made.task.layout.split(letter.body["vector"]) for letter in inbox]
    assert len(sent) == 2
    state = made.export(done.state.model.vector).state_dict()
    names = {
        part.role: [s.name for s in made.task.layout.slices if s.role == part.role] for part in made.task.layout.slices
    }
    assert sum(state[name].numel() for name in names["statistic"]) == 9600
    for name in names["statistic"]:
        mean = (sent[0][name].double() + sent[1][name].double()) / 2
        torch.testing.assert_close(state[name].double(), mean, rtol=1e-6, atol=1e-7)
        assert not torch.equal(sent[0][name], sent[1][name]), f"{name}: two clients with other data measured the same"
    assert len(names["counter"]) == 20
    assert all(int(state[name]) == 0 for name in names["counter"])
    assert not any(name in sent[0] for name in names["counter"])


def test_a_client_starts_from_the_servers_statistics_and_fresh_counters() -> None:
    """A worker's module is used for one client after another: nothing of the last one may be left in it."""
    torch.set_num_threads(1)
    made = assemble(Pictures(), Iid(clients=2), ResNet18(), Sgd(lr=0.01, batch=6), COINS, machine=Hardware(workers=1))
    first, second = ((made.task.first.vector, shard, COINS.child(shard)) for shard in made.task.shards.values())
    together, alone = made.task.fit([first, second]), made.task.fit([second])
    assert isinstance(together[1], Update)
    assert isinstance(alone[0], Update)
    assert torch.equal(together[1].vector, alone[0].vector)


def test_an_error_in_kwh_does_not_depend_on_the_scale(tmp_path: Path) -> None:
    readings = (np.random.default_rng(0).random((2, 400)) * 1000).astype(np.uint16)
    np.savez(tmp_path / "lcl_households.npz", wh=readings, household=np.array(["a", "b"]))
    found = []
    for scale in (1.0, 1000.0):
        made = assemble(
            Households(scale=scale),
            Natural(),
            Lstm(hidden=4),
            Adam(),
            COINS,
            folder=tmp_path,
            machine=Hardware(workers=1),
        )
        nothing = replace(made.task.first, vector=torch.zeros_like(made.task.first.vector))
        found.append(made.task.evaluate(nothing)["rmse"])
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    targets = readings[:, 320:] / 1000
    assert found[0] == pytest.approx(float(np.sqrt((targets**2).mean())), rel=1e-4)
