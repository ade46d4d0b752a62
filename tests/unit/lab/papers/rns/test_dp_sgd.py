"""Tables 11 and 12 of the source-inference paper: whole at the smallest scale, with noise that keeps each epsilon."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from croupier.core.update import Layout, Slice, Update
from croupier.engine.federation import Federation, check
from croupier.errors import CroupierError, SpecError
from croupier.learn import budget
from croupier.learn.budget import DELTA, epsilon
from croupier.learn.dp_fit import DpSgd
from croupier.learn.fit import Sgd
from croupier.learn.models import MnistCnn
from croupier.learn.train import Learner
from croupier_lab.papers.rns import dp_sgd
from croupier_lab.papers.rns.accuracy import through
from croupier_lab.papers.shared.figure import SCALES, Means

extra = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None, reason="dp-accounting is missing: pip install 'croupier[dp]'"
)
HERE = Means()


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Privacy losses rounded up more, noise found less closely: epsilons are still bounds, found much sooner."""
    monkeypatch.setattr(budget, "_GRID", 5e-3)
    monkeypatch.setattr(budget, "_NEAR", 0.1)
    for found in (budget.epsilon, budget.noise_for):
        found.cache_clear()
    yield
    for found in (budget.epsilon, budget.noise_for):
        found.cache_clear()


@extra
@pytest.mark.usefixtures("coarse")
def test_table_11_is_whole() -> None:
    said: list[str] = []
    rows = dp_sgd.table11("smoke", HERE, [0], said.append)
    assert json.loads(json.dumps(rows)) == rows
    assert [row["epsilon"] for row in rows] == [1, 2, 5]
    assert [(row["paper_low"], row["paper_high"]) for row in rows] == [(-0.438, 0.592), (-0.412, 0.573), (-0.4, 0.543)]
    weights = 64 * 16 + 16 + 16 * 10 + 10
    for row in rows:
        assert row["values"] == 3 * weights
        assert row["low"] < 0 < row["high"]
        # The range and the count of what lies outside say the same.
        assert (row["outside"] > 0) == (min(row["low"], -row["high"]) <= -1)
        assert row["outside"] <= row["clamped"]
    # Less privacy, less noise, and weights that wander less.
    assert rows[0]["high"] - rows[0]["low"] > rows[2]["high"] - rows[2]["low"]
    assert said == [f"Table 11: seed 0, epsilon = {wished}" for wished in (1, 2, 5)]


@extra
@pytest.mark.usefixtures("coarse")
def test_table_12_is_whole() -> None:
    rows = dp_sgd.table12("smoke", HERE, [0, 1])
    assert json.loads(json.dumps(rows)) == rows
    settings = ["vanilla", *(f"RNS, r = {digits}" for digits in range(1, 6))]
    assert [(row["setting"], row["epsilon"]) for row in rows] == [(s, e) for s in settings for e in (None, 1, 2, 5)]
    found = {(row["setting"], row["epsilon"]): row for row in rows}
    for row in rows:
        assert row["low"] <= row["accuracy"] <= row["high"]
        assert 0 <= row["accuracy"] <= 1
    assert found["vanilla", None]["accuracy"] > 0.15
    assert found["vanilla", 1.0]["clamped"] == 0
    for wished in (None, 1.0, 2.0, 5.0):
        fine, whole = found["RNS, r = 5", wished], found["vanilla", wished]
        # Nothing clamped: five digits are the floats but for rounding.
        assert fine["clamped"] or abs(fine["accuracy"] - whole["accuracy"]) < 0.01
    assert found["RNS, r = 2", 1.0]["paper"] == 0.70
    assert found["vanilla", None]["paper"] == 0.982
    assert found["RNS, r = 5", 5.0]["paper"] == 0.9012


@extra
def test_every_client_s_noise_keeps_all_its_steps_within_epsilon() -> None:
    stage = dp_sgd._Stage.of("smoke", HERE, 3)
    fits = stage.private(2.0)
    assert isinstance(fits, dp_sgd._Each)
    plainly = stage.made.task.fit
    assert isinstance(plainly, Learner)
    assert isinstance(plainly.fit, Sgd)
    noises = set()
    for shard, learner in fits.learners.items():
        fit, records = learner.fit, len(plainly.shards[shard])
        assert isinstance(fit, DpSgd)
        assert (fit.clip, fit.tail, fit.lr, fit.epochs) == (1.0, "plain", plainly.fit.lr, plainly.fit.epochs)
        assert 1.9 < epsilon(fit.noise, fit.rate(records), stage.size.rounds * fit.steps(records), DELTA) <= 2
        noises.add(fit.noise)
    assert len(noises) == 3


def test_what_lies_outside_is_counted() -> None:
    layout = Layout((Slice("w", (5,)),))

    def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        return [Update(torch.tensor([-1.5, -1.0, 0.0, 0.5, 1.25]), layout) for _ in jobs]

    seen = dp_sgd._Seen()
    dp_sgd._Watched(fit, seen)([(), ()])
    assert (seen.low, seen.high, seen.outside, seen.values) == (-1.5, 1.25, 6, 10)


def test_clamped_values_are_the_clients_own_notes() -> None:
    stage = dp_sgd._Stage.of("smoke", HERE, 0)
    first = stage.made.task.first

    def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        vector = first.vector.clone()
        vector[:7] = 3.0
        return [Update(vector, stage.made.task.layout) for _ in jobs]

    (done,) = stage.play(through(4, 3), fit)
    assert dp_sgd._clamped(done) == 7 * 3
    # The scale is 1 and stays there.
    assert float(done.state.model.vector[:7].max()) == pytest.approx(0.9999)


def test_the_scale_of_the_paper_is_the_paper_s() -> None:
    size = dp_sgd.SIZES["paper"]
    assert set(dp_sgd.SIZES) == set(SCALES)
    assert (size.clients, size.rounds, size.epochs, size.lr, size.substitutions) == (10, 10, 10, 0.01, ())
    assert size.model == MnistCnn(standardise=True)
    assert all(dp_sgd.SIZES[scale].substitutions for scale in ("smoke", "small"))
    for digits in dp_sgd.DIGITS:
        check(through(digits, 10), 10, Federation(rounds=1))


def test_without_the_extra_there_is_an_error_and_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> float:
        raise SpecError("pip install 'croupier[dp]'")

    monkeypatch.setattr(budget, "_library", missing)
    monkeypatch.setitem(dp_sgd.SIZES, "smoke", replace(dp_sgd.SIZES["smoke"], rounds=2))
    budget.epsilon.cache_clear()
    budget.noise_for.cache_clear()
    with pytest.raises(SpecError, match="pip install"):
        dp_sgd.table11("smoke", HERE, [0])
