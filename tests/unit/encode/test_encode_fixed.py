"""Updates in fixed point: sums come back exactly, nothing wraps, and what is clamped is counted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.tape import Tape
from tests.tiers import examples
from torch import Tensor

from croupier.core.update import Gathered, Layout, Slice, Update
from croupier.core.wire import Field, Schema
from croupier.encode.encoder import Payload, Released
from croupier.encode.fixed import FixedPoint
from croupier.errors import IntegrityError, SpecError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "fixed.json").read_text("utf-8"))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"client{i}" for i in range(count))


def encoded(encoder: FixedPoint, values: Sequence[float], weight: float = 1.0, scale: float | None = None) -> Payload:
    layout = Layout((Slice("w", (len(values),)),))
    luggage = {"weight": torch.tensor([weight], dtype=torch.float64)}
    brief = {} if scale is None else {"scale": torch.tensor([scale], dtype=torch.float64)}
    return encoder.encode(Update(torch.tensor(values), layout, luggage), brief, Tape())


def summed(encoder: FixedPoint, vectors: Sequence[Tensor]) -> Tensor:
    """The sum modulo M, in Python integers."""
    columns = zip(*(vector.tolist() for vector in vectors), strict=True)
    return torch.tensor([sum(column) % encoder.modulus for column in columns], dtype=vectors[0].dtype)


def opened(encoder: FixedPoint, vectors: Sequence[Tensor], scale: float | None = None) -> Gathered:
    brief = {} if scale is None else {"scale": torch.tensor([scale], dtype=torch.float64)}
    return encoder.decode(Released(names(len(vectors)), sums=summed(encoder, vectors)), brief)


def test_the_modulus_is_the_least_power_of_two_that_holds_the_sum() -> None:
    for digits in range(1, 10):
        for clients in (1, 2, 3, 5, 7, 10, 64, 100, 1_000, 10_000):
            encoder = FixedPoint(digits=digits, clients=clients)
            span = 2 * clients * (10**digits - 1)
            assert encoder.modulus > span >= encoder.modulus // 2
            assert encoder.modulus & (encoder.modulus - 1) == 0
            assert encoder.top == 10**digits - 1
            assert encoder.dtype == ("<i4" if encoder.modulus - 1 <= 2**31 - 1 else "<i8")


def test_sums_of_more_than_62_bits_are_refused() -> None:
    most = 2**62 // (2 * (10**9 - 1))
    assert FixedPoint(digits=9, clients=most).modulus == 1 << 62
    with pytest.raises(SpecError, match=r"encode\.digits = 9 .*use fewer digits"):
        FixedPoint(digits=9, clients=most + 1)


@pytest.mark.parametrize("table", [{"digits": 0}, {"digits": 10}, {"clients": 0}, {"scale": 0}, {"scale": -1.0}])
def test_settings_out_of_range_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(table))):
        FixedPoint.parse({"clients": 3, **table})


@examples(150)
@given(st.data(), st.integers(1, 12), st.integers(1, 9), st.sampled_from([None, 2.0**-20, 0.5, 1.0, 3.0, 1024.0]))
def test_a_mean_is_within_half_a_unit(data: st.DataObject, count: int, digits: int, scale: float | None) -> None:
    encoder = FixedPoint(digits=digits, clients=12)
    size = scale or 1.0
    bound = encoder.top / 10**digits * size
    limit = math.nextafter(bound, 0)
    numbers = st.floats(-limit, limit, width=64).map(lambda x: float(torch.tensor(x, dtype=torch.float32)))
    rows = data.draw(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=count, max_size=count))
    assume(all(abs(x) <= bound for row in rows for x in row))
    payloads = [encoded(encoder, row, scale=scale) for row in rows]
    assert all(payload.noted == {"clamped": 0, "capped_weights": 0} for payload in payloads)
    got = opened(encoder, [payload.vector for payload in payloads], scale)
    assert got.sums is not None
    assert got.weights is not None
    assert got.weights.item() == count
    for i, value in enumerate((got.sums / got.weights).tolist()):
        true = sum(Fraction(row[i]) for row in rows) / count
        unit = Fraction(size) / 10**digits
        assert abs(Fraction(value) - true) <= unit / 2 * Fraction(1 + 1e-6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("digits", "count"), [(1, 1), (1, 7), (4, 10), (5, 100), (9, 3)])
def test_everybody_at_the_edge_does_not_wrap(digits: int, count: int, sign: int) -> None:
    encoder = FixedPoint(digits=digits, clients=count, scale=2.0)
    payload = encoded(encoder, [sign * 5.0, sign * 2.0, 0.0])
    assert payload.noted["clamped"] == 2
    got = opened(encoder, [payload.vector] * count)
    assert got.sums is not None
    edge = sign * count * encoder.top * 2.0 / 10**digits
    assert got.sums.tolist() == pytest.approx([edge, edge, 0.0], rel=1e-12, abs=0)


def test_every_sum_of_three_clients_with_one_digit_comes_back() -> None:
    encoder = FixedPoint(digits=1, clients=3)
    for total in range(-27, 28):
        got = encoder.decode(Released(names(3), sums=torch.tensor([total % 64], dtype=torch.int32)), {})
        assert got.sums is not None
        assert got.sums.item() == pytest.approx(total / 10, abs=1e-15)


def test_residues_fill_exactly_what_the_wire_allows() -> None:
    encoder = FixedPoint(digits=4, clients=10)
    payload = encoded(encoder, [-1e-4, 1.0, -1.0, 0.0, -0.0])
    assert payload.vector.tolist() == [encoder.modulus - 1, 9_999, encoder.modulus - 9_999, 0, 0]
    Schema((Field("vector", encoder.dtype, (5,), encoder.modulus - 1),)).check({"vector": payload.vector})
    wide = encoded(FixedPoint(digits=9, clients=10), [-1.0])
    assert wide.vector.dtype == torch.int64
    assert wide.vector.item() == FixedPoint(digits=9, clients=10).modulus - (10**9 - 1)


def test_rounding_is_half_to_even() -> None:
    encoder = FixedPoint(digits=1, clients=2, scale=10.0)
    assert encoded(encoder, [0.5, 1.5, 2.5, 3.5, 0.75, 0.25]).vector.tolist() == [0, 2, 2, 4, 1, 0]
    assert encoded(encoder, [-0.5, -1.5, -2.5]).vector.tolist() == [0, 64 - 2, 64 - 2]


@examples()
@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=8))
def test_clamped_values_are_counted_exactly(values: list[float]) -> None:
    encoder = FixedPoint(digits=2, clients=4)
    payload = encoded(encoder, values)
    whole = [round(Fraction(value) * 100) for value in values]
    assert payload.noted["clamped"] == sum(abs(x) > 99 for x in whole)
    assert payload.vector.tolist() == [max(-99, min(99, x)) % encoder.modulus for x in whole]


@pytest.mark.parametrize(("count", "over"), [(1, 0), (2, 1), (3, 7)])
def test_an_impossible_sum_is_proof_of_tampering(count: int, over: int) -> None:
    encoder = FixedPoint(digits=2, clients=5)
    for sign in (1, -1):
        edge = torch.tensor([(sign * 99 * count) % encoder.modulus], dtype=torch.int32)
        encoder.decode(Released(names(count), sums=edge), {})
        beyond = torch.tensor([(sign * (99 * count + 1 + over)) % encoder.modulus], dtype=torch.int32)
        with pytest.raises(IntegrityError, match=f"outside ±{99 * count}"):
            encoder.decode(Released(names(count), sums=beyond), {})


def test_an_impossible_row_is_proof_of_tampering() -> None:
    encoder = FixedPoint(digits=2, clients=5)
    rows = torch.tensor([[99, encoder.modulus - 99], [0, 100]], dtype=torch.int32)
    with pytest.raises(IntegrityError, match="outside ±99"):
        encoder.decode(Released(names(2), rows=rows), {})
    got = encoder.decode(Released(names(1), rows=rows[:1]), {})
    assert got.rows is not None
    assert got.rows.dtype == torch.float32
    assert got.rows.tolist() == [[pytest.approx(0.99), pytest.approx(-0.99)]]
    assert got.weights is not None
    assert got.weights.tolist() == [1.0]


def test_nothing_released_is_an_error() -> None:
    with pytest.raises(IntegrityError, match="nothing was released"):
        FixedPoint(clients=2).decode(Released(names(2)), {})


@examples(150)
@given(st.data(), st.integers(1, 8), st.integers(2, 6), st.sampled_from([0.25, 1.0, 8.0]))
def test_a_hidden_weight_keeps_the_mean_within_its_bound(
    data: st.DataObject, count: int, digits: int, scale: float
) -> None:
    cap, q = 1000, 10**digits
    encoder = FixedPoint(digits=digits, clients=8, weights="slot", cap=cap, scale=scale)
    unit = st.floats(-0.9, 0.9).map(lambda x: float(torch.tensor(x * scale, dtype=torch.float32)))
    values = data.draw(st.lists(unit, min_size=count, max_size=count))
    records = data.draw(st.lists(st.integers(cap // 10, cap * 9 // 10), min_size=count, max_size=count))
    payloads = [encoded(encoder, [value], number) for value, number in zip(values, records, strict=True)]
    assert {payload.vector.numel() for payload in payloads} == {2}
    got = opened(encoder, [payload.vector for payload in payloads])
    assert got.sums is not None
    assert got.weights is not None
    factors = [Fraction(number, cap) for number in records]
    whole = sum(factors, Fraction())
    true = sum((f * Fraction(value) for f, value in zip(factors, values, strict=True)), Fraction()) / whole
    mean_f = whole / count
    bound = (Fraction(1, 2) + abs(true) / Fraction(scale) / 2) / (q * mean_f - Fraction(1, 2)) * Fraction(scale)
    assert abs(Fraction((got.sums / got.weights).item()) - true) <= bound * Fraction(1 + 1e-6)
    assert float(got.weights) == pytest.approx(float(whole), abs=count * 0.5 / q + 1e-9)


def test_records_past_the_cap_count_for_the_cap_and_are_noted() -> None:
    encoder = FixedPoint(digits=3, clients=2, weights="slot", cap=10)
    at, past = encoded(encoder, [0.5], 10), encoded(encoder, [0.5], 11)
    assert torch.equal(at.vector, past.vector)
    assert (at.noted["capped_weights"], past.noted["capped_weights"]) == (0, 1)
    assert encoded(encoder, [0.5], 5).vector.tolist() == [250, 500]
    assert encoded(encoder, [0.5], 0).vector.tolist() == [0, 0]


def test_weights_beside_a_row_travel_unchanged() -> None:
    encoder = FixedPoint(digits=3, clients=2, weights="open")
    payload = encoded(encoder, [0.5], 123.0)
    assert payload.luggage["weight"].tolist() == [123.0]
    assert [field.name for field in encoder.luggage()] == ["weight"]
    rows = torch.stack([payload.vector, payload.vector])
    beside = {"weight": torch.tensor([[123.0], [7.0]], dtype=torch.float64)}
    got = encoder.decode(Released(names(2), rows=rows, luggage=beside, ids=names(2)), {})
    assert got.weights is not None
    assert got.weights.tolist() == [123.0, 7.0]
    assert got.ids == names(2)
    assert not got.scaled


def test_rows_with_a_slot_come_scaled_with_their_weight() -> None:
    encoder = FixedPoint(digits=3, clients=2, weights="slot", cap=10, form="delta")
    rows = torch.stack([encoded(encoder, [0.5, -0.5], 5).vector, encoded(encoder, [0.2, 0.1], 1).vector])
    got = encoder.decode(Released(names(2), rows=rows), {})
    assert got.rows is not None
    assert got.weights is not None
    assert got.rows.flatten().tolist() == pytest.approx([0.25, -0.25, 0.02, 0.01])
    assert got.weights.tolist() == pytest.approx([0.5, 0.1])
    assert got.scaled
    assert got.form == "delta"
    assert encoder.slots(Layout((Slice("w", (2,)),))) == 3


def test_the_scale_of_the_brief_wins() -> None:
    encoder = FixedPoint(digits=2, clients=2, scale=1.0)
    assert encoded(encoder, [1.0], scale=4.0).vector.tolist() == [25]
    assert encoded(encoder, [1.0]).noted["clamped"] == 1


def test_what_it_says_names_digits_and_weights() -> None:
    lines = FixedPoint(clients=3, digits=6, weights="slot", cap=77).says()
    assert any("77" in line for line in lines)
    assert any("6 decimal digits" in line and "clamped" in line for line in lines)


@pytest.mark.parametrize("case", VECTORS["encode"], ids=lambda case: str(case["part"]))
def test_frozen_residues(case: dict[str, Any]) -> None:
    encoder = FixedPoint.parse(case["part"])
    payload = encoded(encoder, case["values"], case["weight"])
    assert encoder.modulus == case["modulus"]
    assert payload.vector.tolist() == case["residues"]
    assert dict(payload.noted) == case["noted"]


@pytest.mark.parametrize("case", VECTORS["sums_bad_range"], ids=lambda case: str(case["part"]))
def test_sums_bad_range(case: dict[str, Any]) -> None:
    encoder = FixedPoint.parse(case["part"])
    with pytest.raises(IntegrityError):
        encoder.decode(Released(names(case["present"]), sums=torch.tensor(case["sums"])), {})


@pytest.mark.parametrize("case", VECTORS["part_bad"], ids=str)
def test_part_bad(case: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=case["says"]):
        FixedPoint.parse(case["part"])
