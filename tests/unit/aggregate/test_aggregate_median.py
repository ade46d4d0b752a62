"""The coordinate-wise median: what it is, what it does not see, and how many liars it withstands."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.toy import play
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.aggregate.mean import Mean
from croupier.aggregate.median import Median
from croupier.core.coins import Coins
from croupier.core.update import Form, Gathered, Layout, Model, Slice
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.release.shuffle import Grain, Shuffle
from croupier.statement import explain

START = torch.tensor([0.5, -1.0, 2.0])


def median(rows: Tensor, rule: Aggregator | None = None, form: Form = "weights") -> Tensor:
    layout = Layout((Slice("w", (rows.shape[1],)),))
    start = START if rows.shape[1] == 3 else torch.zeros(rows.shape[1])
    gathered = Gathered(
        tuple(f"c{i}" for i in range(len(rows))), rows, weights=torch.ones(len(rows)), form=form, frame=b"epoch 3"
    )
    (model,), memory = (rule or Median())(gathered, Desk((Model(start),), layout, Coins.from_seed(0)), {"kept": 1})
    assert (memory, model.frame, model.vector.dtype) == ({"kept": 1}, b"epoch 3", torch.float32)
    return model.vector


values = st.floats(-(2.0**100), 2.0**100, width=32)
tables = st.integers(1, 7).flatmap(
    lambda count: st.lists(st.lists(values, min_size=3, max_size=3), min_size=count, max_size=count)
)


@examples()
@given(tables)
def test_each_coordinate_is_the_median_of_its_column(table: list[list[float]]) -> None:
    want = [statistics.median(column) for column in zip(*table, strict=True)]
    assert torch.equal(median(torch.tensor(table)), torch.tensor(want, dtype=torch.float64).float())


def test_an_even_count_takes_the_mean_of_the_two_middle_ones() -> None:
    rows = torch.tensor([[4.0, 0.0, -1.0], [1.0, 0.0, 5.0], [2.0, 1.0, 7.0], [100.0, 0.0, 6.0]])
    assert median(rows).tolist() == [3.0, 0.0, 5.5]
    assert median(rows[:3]).tolist() == [2.0, 0.0, 5.0]
    assert median(rows[:1]).tolist() == rows[0].tolist()
    # Two floats whose sum is none.
    assert median(torch.tensor([[3e38] * 3, [3e38] * 3])).tolist() == torch.tensor([3e38] * 3).tolist()


@pytest.mark.parametrize("count", [10, 11])
def test_the_order_of_the_rows_does_not_show(count: int) -> None:
    """Not even by the sign of a zero, and not when every coordinate is shuffled by itself."""
    draw = torch.Generator().manual_seed(5)
    rows = torch.randn(count, 70_000, generator=draw) * torch.randint(-1, 2, (count, 70_000), generator=draw)
    rows[:, 0] = torch.tensor([0.0, -0.0] * 6)[:count]
    mixed = rows.gather(0, torch.rand(count, 70_000, generator=draw).argsort(0))
    one, other = median(rows), median(mixed)
    assert torch.equal(one.view(torch.int32), other.view(torch.int32))
    assert not bool(one[one == 0].signbit().any())
    # The test can fail: the first row shows the order.
    assert not torch.equal(rows[0], mixed[0])


@pytest.mark.parametrize("honest", [2, 3, 5, 8])
@pytest.mark.parametrize("lie", [3e38, -3e38])
def test_fewer_than_half_cannot_leave_what_the_honest_sent(honest: int, lie: float) -> None:
    """And a half can, and a mean gives way to a single one: the bound is sharp, and the test can fail."""
    rows = torch.randn(honest, 50, generator=torch.Generator().manual_seed(honest))
    least, most = rows.min(0).values, rows.max(0).values
    few = median(torch.cat([rows, torch.full((honest - 1, 50), lie)]))
    assert bool(((few >= least) & (few <= most)).all())
    half = median(torch.cat([rows, torch.full((honest, 50), lie)]))
    assert bool(((half < least) | (half > most)).all())
    assert float(median(torch.cat([rows, torch.full((1, 50), lie)]), Mean()).abs().min()) > 1e36


def test_a_delta_moves_the_last_model() -> None:
    rows = torch.tensor([[1.0, 0.0, 9.0], [2.0, 0.5, -2.0], [9.0, 0.25, 0.0]])
    assert median(rows, form="delta").tolist() == [2.5, -0.75, 2.0]
    assert START.tolist() == [0.5, -1.0, 2.0]


@pytest.mark.parametrize(
    ("gathered", "said"),
    [
        (Gathered(("a", "b"), sums=torch.ones(3), weights=torch.tensor(2.0)), "needs rows: .* use release = 'rows'"),
        (Gathered(()), "needs rows"),
        (Gathered((), torch.ones(0, 3), weights=torch.ones(0)), "needs rows"),
        (Gathered(("a", "b"), torch.ones(2, 3), weights=torch.tensor([1.0, 2.0])), "use encode.weights = 'uniform'"),
        (Gathered(("a", "b"), torch.ones(2, 3), weights=torch.ones(2), scaled=True), "counts every client alike"),
        (Gathered(("a", "b"), torch.ones(2, 3), weights=torch.ones(3)), "counts every client alike"),
        (Gathered(("a", "b"), torch.ones(2, 3)), "counts every client alike"),
    ],
)
def test_what_has_no_such_median_is_refused(gathered: Gathered, said: str) -> None:
    desk = Desk((Model(START),), Layout((Slice("w", (3,)),)), Coins.from_seed(0))
    with pytest.raises(ProtocolError, match=said):
        Median()(gathered, desk, {})


def test_rows_multiplied_by_their_weight_are_refused_when_built() -> None:
    with pytest.raises(SpecError, match=r"'median' is no mean, and encode\.weights = 'slot'"):
        Pipeline(encode=Floats(weights="slot", cap=9), aggregate=Median())


@pytest.mark.parametrize(
    "table",
    [
        {"encode": {"use": "floats", "weights": "open"}, "aggregate": "median"},
        {"encode": {"use": "fixed", "clients": 3}, "release": "sum", "place": "relay", "aggregate": "median"},
    ],
)
def test_what_leaves_no_equal_rows_is_refused_when_built(table: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"aggregate = 'median' (counts every|needs every)"):
        Pipeline.parse(table)


@pytest.mark.parametrize("form", ["weights", "delta"])
@pytest.mark.parametrize("grain", ["model", "layer", "parameter"])
def test_behind_a_shuffle_it_is_the_median_of_what_was_sent(grain: Grain, form: Form) -> None:
    encode = Floats(form=form)
    open_rows = play(Pipeline(encode=encode, aggregate=Median()))
    shuffled = play(Pipeline(encode=encode, release=Shuffle(grain=grain), aggregate=Median(), place=Relay()))
    averaged = play(Pipeline(encode=encode, release=Shuffle(grain=grain), place=Relay()))
    for one, other, third in zip(open_rows, shuffled, averaged, strict=True):
        assert torch.equal(one.state.model.vector, other.state.model.vector)
        assert not torch.equal(one.state.model.vector, third.state.model.vector)


def test_integers_have_a_median_too() -> None:
    fixed = Pipeline(encode=FixedPoint(clients=4, digits=4), release=Shuffle(), aggregate=Median(), place=Relay())
    near, exact = play(fixed, count=1)[0], play(Pipeline(aggregate=Median()), count=1)[0]
    assert float((near.state.model.vector - exact.state.model.vector).abs().max()) <= 0.5001e-4


def test_the_statement_claims_no_more_than_a_median_gives() -> None:
    said = explain(Pipeline(aggregate=Median())).robustness
    assert said == Median().tolerates()
    assert "fewer than half" in said
    assert "nothing is claimed" in said
