"""The mean: weighted as it says, in double precision, whatever the order of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean, Scaled, _total
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.kernels import weighted as kernel

LAYOUT = Layout((Slice("w", (3,)),))
START = Model(torch.tensor([0.5, -1.0, 2.0]))
DESK = Desk((START,), LAYOUT, Coins.from_seed(0))


def mean(gathered: Gathered) -> Tensor:
    (model,), memory = Mean()(gathered, DESK, {"kept": 1})
    assert memory == {"kept": 1}
    return model.vector


def names(count: int) -> tuple[str, ...]:
    return tuple(f"c{i}" for i in range(count))


tables = st.integers(1, 6).flatmap(
    lambda count: st.tuples(
        st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=count, max_size=count),
        st.lists(st.integers(1, 1000), min_size=count, max_size=count),
    )
)


@examples()
@given(tables)
def test_rows_are_averaged_by_their_weights(table: tuple[list[list[float]], list[int]]) -> None:
    values, records = table
    rows, weights = torch.tensor(values), torch.tensor(records, dtype=torch.float64)
    want = np.average(np.array(values), axis=0, weights=np.array(records, float))
    got = mean(Gathered(names(len(values)), rows, weights=weights))
    np.testing.assert_allclose(got.numpy(), want.astype(np.float32), rtol=1e-6, atol=1e-5)
    # Rows that were multiplied at the client are only added.
    scaled = Gathered(names(len(values)), rows, weights=weights, scaled=True)
    np.testing.assert_allclose(mean(scaled).numpy(), rows.double().sum(0) / weights.sum(), rtol=1e-6, atol=1e-5)
    sums = Gathered(names(len(values)), sums=(rows.double() * weights[:, None]).sum(0), weights=weights.sum())
    np.testing.assert_allclose(mean(sums).numpy(), want.astype(np.float32), rtol=1e-6, atol=1e-5)


def test_the_mean_is_taken_in_double_precision_client_after_client() -> None:
    rows = torch.tensor([[1e8, 1.0, 0.0], [1.0, 1.0, 0.0], [-1e8, 1.0, 3.0]])
    got = mean(Gathered(names(3), rows, weights=torch.ones(3, dtype=torch.float64)))
    assert got.tolist() == [pytest.approx(1 / 3, rel=1e-7), 1.0, 1.0]
    assert got.dtype == torch.float32
    total = np.zeros(3)
    weights = [0.1, 0.7, 0.3]
    for row, weight in zip(rows.double().numpy(), weights, strict=True):
        total = total + row * weight
    exact = torch.from_numpy((total / math.fsum(weights)).astype(np.float32))
    assert torch.equal(mean(Gathered(names(3), rows, weights=torch.tensor(weights, dtype=torch.float64))), exact)


def test_a_delta_moves_the_last_model() -> None:
    gathered = Gathered(
        names(2),
        torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        weights=torch.tensor([3.0, 1.0]).double(),
        form="delta",
    )
    assert mean(gathered).tolist() == [1.25, -0.75, 2.0]
    sums = Gathered(names(2), sums=torch.tensor([2.0, 0.0, -4.0]), weights=torch.tensor(2.0), form="delta")
    assert mean(sums).tolist() == [1.5, -1.0, 0.0]
    assert START.vector.tolist() == [0.5, -1.0, 2.0]


def test_a_frame_is_handed_on() -> None:
    gathered = Gathered(names(1), torch.zeros(1, 3), weights=torch.ones(1), frame=b"epoch 3")
    assert Mean()(gathered, DESK, {})[0][0].frame == b"epoch 3"


@pytest.mark.parametrize("weights", [torch.zeros(2), torch.tensor([1.0, -1.0]), torch.tensor([1.0, -2.0])])
def test_weights_must_bring_something(weights: Tensor) -> None:
    with pytest.raises(ProtocolError, match="no client brought a record"):
        mean(Gathered(names(2), torch.ones(2, 3), weights=weights))


def test_a_client_without_records_counts_for_nothing() -> None:
    got = mean(Gathered(names(2), torch.tensor([[9.0] * 3, [1.0] * 3]), weights=torch.tensor([0.0, 2.0])))
    assert got.tolist() == [1.0] * 3


def test_nothing_released_is_an_error() -> None:
    for gathered in (
        Gathered(names(2)),
        Gathered(names(2), torch.ones(2, 3)),
        Gathered(names(2), weights=torch.ones(2)),
    ):
        with pytest.raises(ProtocolError):
            mean(gathered)


def test_a_weight_for_every_row() -> None:
    with pytest.raises(ProtocolError, match="3 weights for 2 rows"):
        mean(Gathered(names(2), torch.ones(2, 3), weights=torch.ones(3)))


def test_a_mean_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(RangeError, match="model has 1 of 3"):
        mean(Gathered(names(1), sums=torch.tensor([1e300, 0.0, 0.0], dtype=torch.float64), weights=torch.ones(1)))


def scale(part: Scaled, largest: float) -> float:
    desk = Desk((Model(torch.tensor([0.0, -largest, largest / 2])),), LAYOUT, Coins.from_seed(0))
    brief = part.brief(desk, {})
    (field,) = part.public(LAYOUT)
    assert (field.name, field.dtype, field.shape) == ("scale", "<f8", (1,))
    assert brief["scale"].dtype == torch.float64
    return float(brief["scale"][0])


@examples()
@given(st.floats(0, 2.0**100, width=32), st.sampled_from([1.0, 1.25, 4.0]), st.sampled_from([2.0**-30, 0.3, 1.0, 8.0]))
def test_a_public_scale_is_the_least_power_of_two_with_room(largest: float, room: float, floor: float) -> None:
    got = scale(Scaled(room=room, floor=floor), largest)
    assert math.frexp(got)[0] == 0.5
    need = max(room * largest, floor)
    assert need <= got < 2 * need


def test_a_power_of_two_is_its_own_scale() -> None:
    assert scale(Scaled(room=1.0), 4.0) == 4.0
    assert scale(Scaled(room=1.0), 4.0000005) == 8.0
    assert scale(Scaled(), 4.0) == 8.0
    assert scale(Scaled(), 0.0) == 1.0
    assert scale(Scaled(floor=0.125), 0.0) == 0.125


@pytest.mark.parametrize("table", [{"room": 0.5}, {"floor": 0}, {"floor": -1.0}])
def test_settings_out_of_range_are_refused(table: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=next(iter(table))):
        Scaled.parse(table)


def test_a_scaled_mean_is_the_mean() -> None:
    gathered = Gathered(names(2), torch.tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]), weights=torch.tensor([1.0, 3.0]))
    assert Scaled()(gathered, DESK, {})[0][0].vector.tolist() == mean(gathered).tolist() == [2.5, 3.5, 4.5]
    assert Mean().public(LAYOUT) == ()
    assert dict(Mean().brief(DESK, {})) == {}
    assert "none" in Scaled().tolerates()


def test_the_order_of_the_rows_does_not_show() -> None:
    """What a shuffle permuted gives the same model, bit for bit, although plain sums of these rows would not."""
    draw = torch.Generator().manual_seed(5)
    layout = Layout((Slice("w", (70_000,)),))
    rows = torch.randn(11, 70_000, generator=draw) * 10.0 ** torch.randint(-6, 6, (11, 70_000), generator=draw)
    desk = Desk((Model(torch.zeros(70_000)),), layout, Coins.from_seed(0))

    def model(rows: Tensor) -> Tensor:
        (got,), _ = Mean()(Gathered(names(11), rows, weights=torch.ones(11)), desk, {})
        return got.vector

    mixed = rows.gather(0, torch.rand(11, 70_000, generator=draw).argsort(0))
    assert torch.equal(model(rows), model(mixed))
    exact = torch.tensor([math.fsum(column) / 11 for column in rows[:, :500].T.double().tolist()], dtype=torch.float64)
    assert torch.equal(model(rows)[:500], exact.float())
    # The test can fail: one addition after the other shows the order.
    naive = [torch.stack(list(part.double())).cumsum(0)[-1] for part in (rows, mixed)]
    assert not torch.equal(*naive)


def _plainly_added(rows: torch.Tensor) -> torch.Tensor:
    """The same sum with a fresh tensor for every step: the reference."""
    lost = torch.zeros_like(rows)
    while (count := len(rows)) > 1:
        half = count // 2
        one, two = rows[:half], rows[half : 2 * half]
        total = one + two
        part = total - one
        missed = (one - (total - part)) + (two - part)
        lost = torch.cat([lost[:half] + lost[half : 2 * half] + missed, lost[2 * half :]])
        rows = torch.cat([total, rows[2 * half :]])
    return rows[0] + lost[0]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 33, 1100])
def test_sums_in_buffers_have_the_same_bits(count: int) -> None:
    draw = torch.Generator().manual_seed(count)
    rows = torch.randn(count, 200, generator=draw) * torch.logspace(-6, 6, 200)
    rows[:, 5] = -0.0
    weights = torch.rand(count, generator=draw, dtype=torch.float64) * 50
    found = _total(Gathered(("c",) * count, rows, weights=weights), None)
    wanted = _plainly_added(rows.double() * weights.reshape(-1, 1))
    assert found.view(torch.int64).equal(wanted.view(torch.int64))


def test_ranges_of_coordinates_that_are_added_apart_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weights = torch.randn(5, 1000), torch.arange(1, 6).double()
    gathered = Gathered(("c",) * 5, rows, weights=weights)
    whole = _total(gathered, None)

    def apart(count: int, _step: int, work: Callable[[int, int], None], heavy: int) -> None:
        assert heavy == 5
        for start, stop in ((700, count), (0, 130), (130, 700)):
            work(start, stop)

    monkeypatch.setattr(kernel, "over", apart)
    monkeypatch.setattr(kernel, "_BLOCK", 400)
    for plainly in (True, False):
        monkeypatch.setattr(kernel, "few", lambda count, light, plainly=plainly: plainly)
        assert torch.equal(_total(gathered, None), whole)
