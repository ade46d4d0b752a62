"""Krum, Multi-Krum and the trimmed mean: by hand, against slow renderings of the formulas, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.toy import LAYOUT, play
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.aggregate.geometry import Krum, MultiKrum, TrimmedMean, krum, krum_scores, multi_krum, trimmed_mean
from croupier.aggregate.robust import Robust, assumed
from croupier.core.coins import Coins
from croupier.core.update import Form, Gathered, Layout, Model, Slice
from croupier.encode.floats import Floats
from croupier.engine.federation import Federation, check
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle

# On a line: the neighbours of each are easy to see.
LINE = torch.tensor([[0.0], [1.0], [3.0], [10.0], [2.0]])


def slow_scores(rows: Sequence[Sequence[float]], f: int) -> list[float]:
    scores = []
    for i, one in enumerate(rows):
        apart = sorted(math.dist(one, other) ** 2 for j, other in enumerate(rows) if j != i)
        scores.append(sum(apart[: len(rows) - f - 2]))
    return scores


def aggregated(rule: Aggregator, rows: Tensor, form: Form = "delta", seed: int = 0, statistics: int = 0) -> Tensor:
    width = rows.shape[1]
    layout = Layout((Slice("w", (width - statistics,)), Slice("s", (statistics,), "statistic")))
    start = torch.linspace(-1, 1, width)
    gathered = Gathered(
        tuple(f"c{i}" for i in range(len(rows))), rows, weights=torch.ones(len(rows)), form=form, frame=b"epoch 3"
    )
    (model,), memory = rule(gathered, Desk((Model(start),), layout, Coins.from_seed(seed)), {"kept": 1})
    assert (memory, model.frame, model.vector.dtype) == ({"kept": 1}, b"epoch 3", torch.float32)
    return model.vector if form == "weights" else model.vector - start


def test_krum_by_hand() -> None:
    """With f = 1 each of five has two nearest others: 0 has 1 and 4, 1 has 1 and 1, 3 has 1 and 4, 10 has 49 and 64."""
    assert krum_scores(LINE, 1).tolist() == [5.0, 2.0, 5.0, 113.0, 2.0]
    # The rows 1 and 2 tie: the order says which.
    assert krum(LINE, 1)[0].tolist() == [1.0]
    assert krum(LINE, 1, torch.tensor([4, 3, 2, 1, 0]))[0].tolist() == [2.0]
    assert krum(LINE, 1)[1].tolist() == [0, 1, 0, 0, 0]
    # With f = 0 each has three: 14, 6, 14 + 0 ... and 2 is the one in the middle.
    assert krum_scores(LINE, 0).tolist() == [14.0, 6.0, 14.0, 194.0, 6.0]


def test_multi_krum_by_hand() -> None:
    direction, weights = multi_krum(LINE, 1, 4)
    assert direction.tolist() == [1.5]
    assert weights.tolist() == [0.25, 0.25, 0.25, 0, 0.25]
    assert multi_krum(LINE, 1, 2)[0].tolist() == [1.5]


def test_a_trimmed_mean_by_hand() -> None:
    rows = torch.tensor([[1.0, -9.0], [2.0, 4.0], [6.0, 5.0], [90.0, 6.0], [4.0, 90.0]])
    assert trimmed_mean(rows, 0).tolist() == pytest.approx([20.6, 19.2])
    assert trimmed_mean(rows, 1).tolist() == [4.0, 5.0]
    assert trimmed_mean(rows, 2).tolist() == [4.0, 5.0]
    assert trimmed_mean(rows[:4], 1).tolist() == [4.0, 4.5]


@examples(50)
@given(st.integers(3, 9), st.integers(0, 3), st.integers(0, 1000))
def test_against_slow_renderings(count: int, f: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    table = torch.from_numpy(rows)
    if count > 2 * f + 2:
        want = slow_scores(rows.tolist(), f)
        assert krum_scores(table, f).tolist() == pytest.approx(want)
        assert torch.equal(krum(table, f)[0], table[int(np.argmin(want))])
        kept = np.argsort(want)[: count - f]
        assert multi_krum(table, f, count - f)[0].tolist() == pytest.approx(rows[kept].mean(0).tolist())
    if count > 2 * f:
        want = [float(np.mean(sorted(column)[f : count - f])) for column in rows.T]
        assert trimmed_mean(table, f).tolist() == pytest.approx(want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_will_do_and_blocks_do_not_show(dtype: torch.dtype) -> None:
    rows = torch.randn(7, 70_000, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert krum_scores(rows, 2).tolist() == pytest.approx(slow_scores(rows.double().tolist(), 2))
    assert trimmed_mean(rows, 2).tolist() == rows.double().sort(0).values[2:5].mean(0).tolist()


RULES = [Krum(f=2), MultiKrum(f=2), TrimmedMean(b=2)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.use)
def test_identical_rows_give_that_row(rule: Robust) -> None:
    row = torch.tensor([0.5, -0.25, 2.0])
    assert aggregated(rule, row.repeat(9, 1), "weights").tolist() == pytest.approx(row.tolist())
    assert aggregated(rule, row.repeat(9, 1)).tolist() == pytest.approx(row.tolist())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.use)
@pytest.mark.parametrize("at", [0, 4, 8])
def test_two_huge_rows_are_ignored(rule: Robust, at: int) -> None:
    """And would not be by a mean: the result stays among the honest."""
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(2))
    honest = rows.clone()
    rows[at] = 1e37
    rows[(at + 1) % 9] = -1e37
    kept = [i for i in range(9) if i not in (at, (at + 1) % 9)]
    found = aggregated(rule, rows)
    assert bool((found <= honest[kept].max(0).values + 1e-5).all())
    assert bool((found >= honest[kept].min(0).values - 1e-5).all())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.use)
def test_the_order_of_the_rows_and_the_form_do_not_show(rule: Robust) -> None:
    rows = torch.randn(9, 300, generator=torch.Generator().manual_seed(3))
    one = aggregated(rule, rows)
    other = aggregated(rule, rows[torch.randperm(9, generator=torch.Generator().manual_seed(4))], seed=1)
    weights = aggregated(rule, rows + torch.linspace(-1, 1, 300), "weights") - torch.linspace(-1, 1, 300)
    assert torch.allclose(one, other, atol=1e-6)
    assert torch.allclose(one, weights, atol=1e-5)


def test_ties_fall_by_the_servers_own_coins() -> None:
    found = {float(aggregated(Krum(f=1), LINE, seed=seed)[0]) for seed in range(12)}
    assert found == {1.0, 2.0}


def test_statistics_are_not_measured_but_follow_the_choice() -> None:
    rows = torch.cat([LINE, torch.tensor([[1e6], [7.0], [0.0], [0.0], [7.0]])], 1)
    assert float(aggregated(Krum(f=1), rows, statistics=1)[1]) == 7.0
    assert float(aggregated(TrimmedMean(b=1), rows, statistics=1)[1]) == pytest.approx(14 / 3)
    # Measured, the statistic would have made row 0 the far one.
    assert float(krum(rows, 1)[0][0]) != 0.0
    assert krum_scores(rows, 1)[0] > 1e6


@pytest.mark.parametrize(
    ("rule", "count", "said"),
    [
        (Krum(f=2), 6, r"f = 2 of 6 updates: Krum needs more than 2f \+ 2 of them; invite 7 clients, or lower f"),
        (MultiKrum(f=0.4), 10, "f = 4 of 10 updates"),
        (MultiKrum(f=1, m=9), 9, "m = 9: of 9 updates 1 are assumed to be lies.* use at most 8"),
        (TrimmedMean(b=3), 6, "b = 3 of 6 updates: nothing is left .* invite 7 clients, or lower b"),
    ],
)
def test_too_few_are_refused_before_the_first_round_and_in_it(rule: Robust, count: int, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        check(Pipeline(aggregate=rule), count, Federation())
    with pytest.raises(SpecError, match=said):
        aggregated(rule, torch.ones(count, 3))
    check(Pipeline(aggregate=type(rule)()), 30, Federation())


@pytest.mark.parametrize("f", [-1, 0.5, 0.9, 1.5])
def test_an_assumed_number_is_a_share_or_a_count(f: float) -> None:
    with pytest.raises(SpecError, match=r"^Krum\(f=.*\): a share of the clients below 0\.5, or a whole number of them"):
        Krum(f=f)


def test_a_share_is_rounded_up() -> None:
    assert [assumed(0.2, n) for n in (5, 6, 10, 11, 100)] == [1, 2, 2, 3, 20]
    assert [assumed(f, 100) for f in (0, 0.29, 0.07, 3)] == [0, 29, 7, 3]


def test_whole_rows_are_needed_and_coordinates_suffice_for_a_trim() -> None:
    for grain in ("layer", "parameter"):
        with pytest.raises(SpecError, match=r"aggregate = 'krum' compares whole updates, .* use grain = 'model'"):
            Pipeline(release=Shuffle(grain=grain), aggregate=Krum(), place=Relay())
        Pipeline(release=Shuffle(grain=grain), aggregate=TrimmedMean(), place=Relay())


@pytest.mark.parametrize(
    ("gathered", "said"),
    [
        (Gathered(("a",), sums=torch.ones(3), weights=torch.tensor(2.0)), "needs rows: .* use release = 'rows'"),
        (Gathered(("a", "b"), torch.ones(2, 3), weights=torch.tensor([1.0, 2.0])), "use encode.weights = 'uniform'"),
    ],
)
def test_what_has_no_equal_rows_is_refused(gathered: Gathered, said: str) -> None:
    desk = Desk((Model(torch.zeros(3)),), Layout((Slice("w", (3,)),)), Coins.from_seed(0))
    with pytest.raises(ProtocolError, match=said):
        Krum()(gathered, desk, {})


@pytest.mark.parametrize("rule", [Krum(f=0), MultiKrum(f=0, m=2), TrimmedMean(b=1)], ids=lambda rule: rule.use)
@pytest.mark.parametrize("form", ["weights", "delta"])
def test_behind_a_shuffle_of_models_it_is_the_same(rule: Any, form: Form) -> None:
    encode = Floats(form=form)
    rows = play(Pipeline(encode=encode, aggregate=rule), count=1)[0].state.model.vector
    shuffled = Pipeline(encode=encode, release=Shuffle(grain="model"), aggregate=rule, place=Relay())
    assert torch.allclose(rows, play(shuffled, count=1)[0].state.model.vector, atol=1e-6)
    assert len(rows) == LAYOUT.size
