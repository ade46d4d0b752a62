"""Disaggregation: found where it must be, and nothing found where sums tell nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.scenes import Here
from torch import Tensor

from croupier.audit.attacks.separation import ObservedSum, observed_sums, own_update, recover
from croupier.audit.client_view import handed
from croupier.audit.setting import Setting
from croupier.core.coins import Coins
from croupier.core.view import facts
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import SpecError
from croupier.learn.assemble import assemble
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.pipeline import Pipeline
from croupier.systems import naive, rns, total
from croupier_lab.bench.leakage import disaggregation as disaggregate
from croupier_lab.bench.leakage.disaggregation import disaggregation

CLIENTS = ("a", "b", "c", "d")
PAIRS = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d"), ("b", "d")]
SIZE = 200
SETTING = Setting(
    Digits(), Dirichlet(clients=4, alpha=0.3, least=20), Mlp(hidden=(8,)), Sgd(lr=0.1, epochs=1),
    Federation(rounds=4), records=10, workers=1,
)  # fmt: skip


def draw(*labels: str | int) -> torch.Generator:
    return Coins.from_seed(12).child(*labels).fast()


def models() -> Tensor:
    """Four clients that share something and differ in something."""
    common = torch.randn(SIZE, generator=draw("common"), dtype=torch.float64)
    return common + 0.5 * torch.randn(4, SIZE, generator=draw("own"), dtype=torch.float64)


def seen(cohorts: Sequence[tuple[str, ...]], stays: str, noise: float = 0.0) -> list[ObservedSum]:
    """Sums of clients whose models, or whose updates, never change, while the joint model moves."""
    found, start = [], torch.zeros(SIZE, dtype=torch.float64)
    for number, cohort in enumerate(cohorts):
        rows = models()[[CLIENTS.index(who) for who in cohort]]
        rows = rows + noise * torch.randn(rows.shape, generator=draw("noise", number), dtype=torch.float64)
        updates = rows - start if stays == "models" else rows
        found.append(ObservedSum(cohort, start, updates.sum(0), float(len(cohort)), number))
        start = start + updates.mean(0)
    return found


def cosines(one: Tensor, two: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(one, two, 1)


@pytest.mark.parametrize("stays", ["updates", "models"])
def test_constant_clients_in_changing_cohorts_are_found(stays: str) -> None:
    sums = seen(PAIRS, stays)
    got = recover(sums, CLIENTS)
    assert got["stays"] == stays
    assert got["rank"] == 4
    assert got["alone"] == CLIENTS
    assert got["exact"] == ()
    assert got["when"] == (4, 5, 3, 5)
    starts = torch.stack([sums[number].start for number in got["when"]])
    whole = got["updates"] if stays == "updates" else starts + got["updates"]
    assert float(cosines(whole, models()).min()) > 0.9999


def test_clients_that_move_are_found_less_well_but_better_than_by_the_mean() -> None:
    noisy = seen(PAIRS * 3, "updates", 0.3)
    found = recover(noisy, CLIENTS)["updates"]
    mean = torch.stack([next(one.total / 2 for one in noisy[::-1] if who in one.present) for who in CLIENTS])
    near, base = cosines(found, models()), cosines(mean, models())
    assert bool((near > base).all())
    assert float(near.mean()) > 0.95
    assert float(near.min()) < 0.9999


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_fixed_cohort_gives_only_the_mean(noise: float) -> None:
    fixed = seen([CLIENTS] * 6, "updates", noise)
    got = recover(fixed, CLIENTS)
    assert got["rank"] == 1
    assert got["alone"] == ()
    assert torch.allclose(got["updates"], got["updates"][:1].expand(4, -1))
    mean = (fixed[-1].total / 4).expand(4, -1)
    near, base = cosines(got["updates"], models()), cosines(mean, models())
    assert float((near - base).max()) < (0.01 if noise == 0 else 0.05)


def test_who_always_comes_with_another_is_not_told_from_it() -> None:
    got = recover(seen([("a", "b"), ("a", "b", "c"), ("c", "d"), ("a", "b", "d")], "updates"), CLIENTS)
    assert got["rank"] == 3
    assert got["alone"] == ("c", "d")
    assert torch.allclose(got["updates"][0], got["updates"][1])


def test_all_colluding_but_one_leaves_that_one_exactly() -> None:
    one = seen([CLIENTS], "updates")
    got = recover(one, ("c",), {0: {who: models()[row] for row, who in enumerate(CLIENTS) if who != "c"}})
    assert got["exact"] == ("c",)
    assert torch.allclose(got["updates"][0], models()[2])


def test_colluders_make_the_others_fewer() -> None:
    known = {number: {"a": models()[0]} for number, cohort in enumerate(PAIRS) if "a" in cohort}
    got = recover(seen(PAIRS, "updates"), ("b", "c", "d"), known)
    assert got["exact"] == ("b", "c", "d")
    assert got["when"] == (0, 2, 4)
    assert torch.allclose(got["updates"], models()[1:])


def test_who_was_never_there_cannot_be_found() -> None:
    with pytest.raises(SpecError, match="no round"):
        recover(seen([("a", "b")], "updates"), CLIENTS)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks in this process."""
    monkeypatch.setattr(disaggregate, "Panel", Here)


def trained(pipeline: Pipeline, cohort: int, count: int) -> tuple[list[Any], list[dict[str, Tensor]], Any]:
    """Rounds as a server has them, and every client's own update."""
    one = SETTING
    task = assemble(one.data, one.split, one.model, one.fit, Coins.from_seed(3), folder=None).task
    plan, views, own = Federation(rounds=count, cohort=cohort), [], []
    for done in rounds(pipeline, task, plan, Coins.from_seed(3), Local(), keep={"*": "keep"}):
        sent = {who: facts(done.views[who]) for who in done.present}
        start = handed(sent[done.present[0]])
        views.append({"round": done.number, "views": {"server": (facts(done.views["server"]),)}, "start": start})
        own.append({who: own_update(view) for who, view in sent.items()})
    return views, own, task


@pytest.mark.parametrize("pipeline", [total(4), rns(4), rns(4, release="bits"), naive("parameter")])
def test_observed_sums_are_those_of_what_clients_sent(pipeline: Pipeline) -> None:
    views, own, task = trained(pipeline, 3, 3)
    found = observed_sums(views, pipeline.plain(), task.layout)
    for one, sent in zip(found, own, strict=True):
        assert set(one.present) == set(sent)
        assert torch.allclose(one.total, sum(sent.values(), torch.zeros(())), atol=2e-3)


def test_colluders_of_a_real_round_leave_the_last_client_up_to_rounding() -> None:
    views, own, task = trained(total(4), 4, 1)
    victim = task.enrolled[2]
    known = {0: {who: update for who, update in own[0].items() if who != victim}}
    got = recover(observed_sums(views, total(4).plain(), task.layout), (victim,), known)
    assert torch.allclose(got["updates"][0], own[0][victim], atol=3e-4)


def check(found: dict[str, Any], cohort: int) -> dict[str, Any]:
    (row,) = [row for row in found["rows"] if row["cohort"] == cohort]
    return dict(row)


def test_the_experiment_finds_nothing_in_a_fixed_cohort(here: None) -> None:
    found = disaggregation(SETTING, (2, 4), (0, 1))
    fixed, moving = check(found, 4), check(found, 2)
    assert fixed["rank"] == [1]
    assert fixed["gained"]["high"] < 0.01
    assert fixed["success"]["named+prior"]["rate"] == pytest.approx(fixed["prior"]["rate"])
    assert max(moving["rank"]) > 1
    assert moving["cosine"]["rate"] > fixed["cosine"]["rate"]
    assert found["rounds"] == 4


def test_the_experiment_finds_whom_colluders_leave(here: None) -> None:
    found = disaggregation(replace(SETTING, plan=Federation(rounds=8)), (3,), (0, 1), colluders=2)
    row = check(found, 3)
    assert row["clients"] == [2]
    assert row["exact"] == [2]
    assert row["cosine"]["rate"] > 0.999
    for name in ("named", "named+prior"):
        assert row["success"][name]["rate"] == pytest.approx(row["control"][name]["rate"], abs=0.03)
    with pytest.raises(SpecError, match="source inference needs two"):
        disaggregation(SETTING, (4,), (0, 1), colluders=3)
