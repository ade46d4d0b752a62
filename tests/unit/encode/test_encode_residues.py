"""Residues in unary: the frozen layout, bounds of the decoded mean, and what must be refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tape import Tape
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Scaled
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice, Update
from croupier.core.wire import Schema
from croupier.encode.encoder import Payload, Released
from croupier.encode.fixed import FixedPoint
from croupier.encode.residues import Residues
from croupier.errors import IntegrityError, ProtocolError, RangeError, SpecError
from croupier.kernels import residues
from croupier.release.bits import Bits, Counts, Mod
from croupier.release.release import Release

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "residues.json").read_text("utf-8"))
RELEASES = pytest.mark.parametrize("release", [Mod(), Counts(), Bits()], ids=lambda release: release.use)


def about(case: dict[str, Any]) -> str:
    return str(case.get("about", case["part"]))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"client{i}" for i in range(count))


def flat(count: int) -> Layout:
    return Layout((Slice("w", (count,)),))


def encoded(
    encoder: Residues, values: Sequence[float] | Tensor, weight: float = 1.0, seed: int = 0, scale: float | None = None
) -> Payload:
    vector = torch.as_tensor(values, dtype=torch.float32)
    luggage = {"weight": torch.tensor([weight], dtype=torch.float64)}
    brief = {} if scale is None else {"scale": torch.tensor([scale], dtype=torch.float64)}
    return encoder.encode(Update(vector, flat(len(vector)), luggage), brief, Coins.from_seed(seed))


def opened(
    encoder: Residues, vectors: Sequence[Tensor], count: int, release: Release | None = None, scale: float | None = None
) -> Gathered:
    layout, brief = flat(count), {} if scale is None else {"scale": torch.tensor([scale], dtype=torch.float64)}
    out = (release or Mod())(vectors, layout, encoder.modulus, Coins.from_seed(1))
    released = Released(names(len(vectors)), out.get("rows"), out.get("sums"), layout=layout)
    return encoder.decode(released, brief)


def mean(got: Gathered) -> list[float]:
    assert got.sums is not None
    assert got.weights is not None
    found: list[float] = (got.sums / got.weights).tolist()
    return found


def numbers(encoder: Residues, payload: Payload, count: int) -> list[int]:
    """The integers that a client's bits stand for."""
    ones = residues.counts_plain([payload.vector.numpy()], count, encoder.modulus)
    found: list[int] = residues.join_plain(ones, encoder.modulus).tolist()
    return found


@pytest.mark.parametrize("case", VECTORS["encode"], ids=about)
def test_the_frozen_layout(case: dict[str, Any]) -> None:
    encoder = Residues.parse(case["part"])
    payload = encoded(encoder, case["values"])
    assert list(encoder.modulus) == case["moduli"]
    assert bytes(payload.vector.numpy()).hex() == case["bytes"]
    assert payload.noted == {"clamped": case["clamped"], "capped_weights": 0}
    count = len(case["values"])
    assert numbers(encoder, payload, count) == case["numbers"]
    ones = residues.counts_plain([payload.vector.numpy()], count, encoder.modulus)
    assert ones.tolist() == case["residues"]
    if "bits" in case:
        found = "".join(str(bit) for bit in np.unpackbits(payload.vector.numpy(), bitorder="little"))
        assert found[: count * encoder.bits] == "".join(case["bits"])
    # Long vectors take the compiled way: the same numbers again and again, until bytes are whole.
    many = encoded(encoder, case["values"] * 2048)
    assert many.noted["clamped"] == 2048 * case["clamped"]
    again = encoded(encoder, case["values"] * 8).vector.numpy().tobytes()
    assert many.vector.numpy().tobytes() == again * 256


@pytest.mark.parametrize("case", VECTORS["mean"], ids=about)
def test_the_frozen_mean(case: dict[str, Any]) -> None:
    encoder = Residues.parse(case["part"])
    rows = [torch.tensor(list(bytes.fromhex(row)), dtype=torch.uint8) for row in case["rows"]]
    layout = flat(len(case["mean"]))
    assert Counts()(rows, layout, encoder.modulus, Tape())["sums"].tolist() == case["counts"]
    assert Mod()(rows, layout, encoder.modulus, Tape())["sums"].tolist() == case["sums"]
    for release in (Mod(), Counts(), Bits()):
        assert mean(opened(encoder, rows, len(case["mean"]), release)) == pytest.approx(case["mean"], abs=1e-15)


@pytest.mark.parametrize("case", VECTORS["part_bad"], ids=about)
def test_moduli_that_cannot_work_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=case["says"]):
        Residues.parse(case["part"])


@pytest.mark.parametrize("case", VECTORS["sums_bad"], ids=about)
def test_an_impossible_sum_is_proof_of_tampering(case: dict[str, Any]) -> None:
    encoder, sums = Residues.parse(case["part"]), torch.tensor(case["sums"], dtype=torch.uint8)
    with pytest.raises(IntegrityError, match="which the clients present cannot reach"):
        encoder.decode(Released(names(case["present"]), sums=sums), {})


def test_an_impossible_weight_is_proof_of_tampering() -> None:
    encoder = Residues(clients=2, digits=1, weights="slot", cap=10)
    for number in (21, -1):
        sums = torch.tensor([[x % m for m in encoder.modulus] for x in (0, number)], dtype=torch.uint8)
        with pytest.raises(IntegrityError):
            encoder.decode(Released(names(2), sums=sums), {})


def test_nothing_released_and_bits_without_a_layout_are_errors() -> None:
    encoder = Residues(clients=2)
    with pytest.raises(IntegrityError, match="nothing was released"):
        encoder.decode(Released(names(2)), {})
    with pytest.raises(IntegrityError, match="without the model's layout"):
        encoder.decode(Released(names(2), rows=torch.zeros(2, 6, dtype=torch.uint8)), {})


@RELEASES
def test_every_sum_of_three_clients_with_one_digit_comes_back(release: Release) -> None:
    encoder = Residues(clients=3, digits=1)
    totals = list(range(-27, 28))
    # Three numbers within -9 and 9 that add up to each total.
    parts = [_split(total) for total in totals]
    rows = [encoded(encoder, [part[k] / 10 for part in parts]).vector for k in range(3)]
    got = opened(encoder, rows, len(totals), release)
    assert got.sums is not None
    assert got.sums.tolist() == pytest.approx([total / 10 for total in totals], abs=1e-15)


def _split(total: int) -> list[int]:
    out = []
    for left in (2, 1, 0):
        part = max(-9, min(9, total - max(-9 * left, min(9 * left, total))))
        out.append(part)
        total -= part
    assert total == 0
    return out


@examples(100)
@given(st.data(), st.integers(2, 9), st.integers(1, 9), st.sampled_from([None, 2.0**-20, 0.5, 3.0, 1024.0]))
def test_a_mean_is_within_half_a_unit(data: st.DataObject, count: int, digits: int, scale: float | None) -> None:
    encoder, size = Residues(digits=digits, clients=9), scale or 1.0
    bound = Fraction(encoder.top, encoder.unit) * Fraction(size)
    limit = math.nextafter(float(bound), 0)
    value = st.one_of(st.floats(-limit, limit), st.sampled_from([limit, -limit, 0.0])).map(_single)
    rows = data.draw(st.lists(st.lists(value, min_size=3, max_size=3), min_size=count, max_size=count))
    # float32 may round a value up beyond the edge: it is drawn back to the last one inside.
    rows = [[x if abs(Fraction(x)) <= bound else _single(x, inward=True) for x in row] for row in rows]
    payloads = [encoded(encoder, row, scale=scale) for row in rows]
    assert all(payload.noted == {"clamped": 0, "capped_weights": 0} for payload in payloads)
    got = mean(opened(encoder, [payload.vector for payload in payloads], 3, scale=scale))
    unit = Fraction(size) / encoder.unit
    for i, value_ in enumerate(got):
        true = sum((Fraction(row[i]) for row in rows), Fraction()) / count
        assert abs(Fraction(value_) - true) <= unit / 2 * Fraction(1 + 1e-6)


def _single(x: float, inward: bool = False) -> float:
    single = np.float32(x)
    return float(np.nextafter(single, np.float32(0))) if inward else float(single)


@examples(60)
@given(st.lists(st.floats(-0.96875, 0.96875, width=32), min_size=2, max_size=6), st.integers(2, 6), st.integers(0, 99))
def test_rounding_at_random_is_within_a_unit(values: list[float], digits: int, seed: int) -> None:
    encoder = Residues(digits=digits, clients=6, rounding="stochastic")
    rows = [encoded(encoder, [value], seed=seed + i).vector for i, value in enumerate(values)]
    true = sum(map(Fraction, values), Fraction()) / len(values)
    assert abs(Fraction(mean(opened(encoder, rows, 1))[0]) - true) < Fraction(1, encoder.unit) * Fraction(1 + 1e-9)


@pytest.mark.parametrize("value", [0.12343, -0.12343, 0.5, 0.00001])
def test_rounding_at_random_is_right_on_average_and_down_is_not(value: float) -> None:
    draws, unit = 60_000, 1000
    exact = float(np.float32(value)) * unit
    fine = exact - math.floor(exact)
    random = Residues(digits=3, clients=2, rounding="stochastic")
    got = np.array(numbers(random, encoded(random, torch.full((draws,), value)), draws))
    assert set(got.tolist()) <= {math.floor(exact), math.ceil(exact)}
    # Five standard errors: the seed is fixed, so that this holds or it does not.
    assert abs(got.mean() - exact) <= 5 * math.sqrt(fine * (1 - fine) / draws) + 1e-9
    down = Residues(digits=3, clients=2, rounding="floor")
    assert set(numbers(down, encoded(down, torch.full((2000,), value)), 2000)) == {math.floor(exact)}


def test_rounding_down_shifts_by_half_a_unit() -> None:
    values = torch.linspace(-0.9, 0.9, 100_001)
    for rounding, shift in (("floor", -0.5), ("even", 0.0)):
        encoder = Residues(digits=3, clients=2, rounding=rounding)
        got = np.array(numbers(encoder, encoded(encoder, values), len(values)))
        assert (got - values.double().numpy() * 1000).mean() == pytest.approx(shift, abs=0.01)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("digits", "count"), [(1, 2), (1, 7), (4, 10), (5, 100), (9, 3)])
@RELEASES
def test_everybody_at_the_edge_does_not_wrap(release: Release, digits: int, count: int, sign: int) -> None:
    encoder = Residues(digits=digits, clients=count, scale=2.0)
    payload = encoded(encoder, [sign * 5.0, sign * 2.0, 0.0])
    assert payload.noted["clamped"] == 2
    got = opened(encoder, [payload.vector] * count, 3, release)
    edge = sign * encoder.top * 2.0 / encoder.unit
    assert mean(got) == pytest.approx([edge, edge, 0.0], rel=1e-12, abs=0)


@pytest.mark.parametrize(("clients", "digits"), [(2, 1), (10, 4), (10, 5), (100, 3)])
def test_negative_multiples_of_every_modulus_have_one_code(clients: int, digits: int) -> None:
    """The paper's m - 0 ones would be a second code for residue 0, and mark who is negative."""
    encoder = Residues(digits=digits, clients=clients)
    multiples = [-k * m for m in encoder.modulus for k in (1, 2, 3) if k * m <= encoder.top]
    payload = encoded(encoder, [x / encoder.unit for x in multiples])
    assert numbers(encoder, payload, len(multiples)) == multiples
    ones = residues.counts_plain([payload.vector.numpy()], len(multiples), encoder.modulus)
    for row, number in zip(ones.tolist(), multiples, strict=True):
        assert row == [number % m for m in encoder.modulus]
        assert 0 in row


@examples(100)
@given(st.data(), st.integers(2, 8), st.integers(2, 6), st.sampled_from([0.25, 1.0, 8.0]))
def test_a_hidden_weight_keeps_the_mean_within_its_bound(
    data: st.DataObject, count: int, digits: int, scale: float
) -> None:
    cap, encoder = 1000, Residues(digits=digits, clients=8, weights="slot", cap=1000, scale=scale)
    value = st.floats(-0.9, 0.9).map(lambda x: _single(x * scale))
    values = data.draw(st.lists(value, min_size=count, max_size=count))
    records = data.draw(st.lists(st.integers(cap // 10, cap), min_size=count, max_size=count))
    rows = [encoded(encoder, [x], n).vector for x, n in zip(values, records, strict=True)]
    assert {len(row) for row in rows} == {-(-2 * encoder.bits // 8)}
    layout = flat(1)
    sums = Mod()(rows, layout, encoder.modulus, Tape())["sums"]
    got = encoder.decode(Released(names(count), sums=sums, layout=layout), {})
    shares = [Fraction(n, cap) for n in records]
    whole = sum(shares, Fraction())
    true = sum((f * Fraction(x) for f, x in zip(shares, values, strict=True)), Fraction()) / whole / Fraction(scale)
    bound = (Fraction(1, 2) + abs(true) / 2) / (encoder.unit * whole / count - Fraction(1, 2))
    assert abs(Fraction(mean(got)[0]) / Fraction(scale) - true) <= bound * Fraction(1 + 1e-6)


@examples()
@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=8))
def test_clamped_values_are_counted_exactly(values: list[float]) -> None:
    encoder = Residues(digits=2, clients=4)
    payload = encoded(encoder, values)
    whole = [round(Fraction(value) * 100) for value in values]
    beyond = [abs(x) > 99 or abs(value) > 1 for x, value in zip(whole, values, strict=True)]
    assert payload.noted["clamped"] == sum(beyond)
    assert numbers(encoder, payload, len(values)) == [max(-99, min(99, x)) for x in whole]


def test_eight_bits_are_127_steps() -> None:
    encoder = Residues(clients=10, steps=127)
    assert (encoder.unit, encoder.top, encoder.bits) == (127, 127, 25)
    payload = encoded(encoder, [1.0, -1.0, 0.5, 1 / 127, 0.0039])
    assert payload.noted["clamped"] == 0
    assert numbers(encoder, payload, 5) == [127, -127, 64, 1, 0]
    got = opened(encoder, [payload.vector] * 10, 5)
    assert mean(got) == pytest.approx([1.0, -1.0, 64 / 127, 1 / 127, 0.0], abs=1e-15)
    assert any("127 steps" in line for line in encoder.says())


LAYERS = Layout((Slice("a.weight", (2,)), Slice("bn.running_var", (3,), "statistic"), Slice("b.weight", (1,))))


@pytest.mark.parametrize("left", ["bn", "bn.running_var"])
def test_excluded_layers_are_not_sent_and_do_not_move(left: str) -> None:
    encoder = Residues(clients=2, digits=2, form="delta", excluded=(left,))
    assert encoder.slots(LAYERS) == 3
    vector = torch.tensor([0.1, 0.2, 90.0, 91.0, 92.0, -0.3])
    payload = encoder.encode(Update(vector, LAYERS), {}, Tape())
    assert payload.noted["clamped"] == 0
    assert numbers(encoder, payload, 3) == [10, 20, -30]
    Schema((encoder.field(LAYERS),)).check({"vector": payload.vector})
    sums = Mod()([payload.vector] * 2, LAYERS, encoder.modulus, Tape())["sums"]
    got = encoder.decode(Released(names(2), sums=sums, layout=LAYERS), {})
    assert mean(got) == pytest.approx([0.1, 0.2, 0.0, 0.0, 0.0, -0.3], abs=1e-12)
    with pytest.raises(ProtocolError, match="without the model's layout"):
        encoder.decode(Released(names(2), sums=sums), {})
    assert any(left in line for line in encoder.says())


def test_a_layer_that_is_not_there_cannot_be_excluded() -> None:
    with pytest.raises(SpecError, match=r"no 'norm'; it has a, b, bn"):
        Residues(clients=2, form="delta", excluded=("norm",)).slots(LAYERS)
    with pytest.raises(SpecError, match="form = 'delta'"):
        Residues(clients=2, excluded=("bn",))


@pytest.mark.parametrize("kind", [Residues, FixedPoint])
@pytest.mark.parametrize("excluded", [(), ("bn",)])
def test_every_tensor_has_its_own_scale(kind: type[Residues], excluded: tuple[str, ...]) -> None:
    model = Model(torch.tensor([0.3, -0.1, 90.0, 3.0, 4.0, 0.01]))
    rule = Scaled(each=True, floor=0.001)
    brief = rule.brief(Desk((model,), LAYERS, Coins.from_seed(0)), {})
    assert brief["scale"].tolist() == [0.5, 128.0, 2.0**-6]
    rule.verify(model, brief, LAYERS)
    (field,) = rule.public(LAYERS)
    assert field.shape == (3,)
    encoder = kind(clients=2, digits=3, form="delta", excluded=excluded)
    payload = encoder.encode(Update(model.vector, LAYERS), brief, Tape())
    assert payload.noted["clamped"] == 0
    if isinstance(encoder, Residues):
        sums = Mod()([payload.vector] * 2, LAYERS, encoder.modulus, Tape())["sums"]
    else:
        sums = payload.vector * 2 % encoder.modulus
    got = mean(encoder.decode(Released(names(2), sums=sums, layout=LAYERS), brief))
    units = np.repeat([0.5, 128.0, 2.0**-6], [2, 3, 1]) / 1000
    want = model.vector.double().numpy() * ([1, 1, 0, 0, 0, 1] if excluded else 1)
    assert (np.abs(np.array(got) - want) <= units / 2 + 1e-9).all()


def test_scales_that_do_not_fit_are_refused() -> None:
    encoder, update = Residues(clients=2), Update(torch.zeros(6), LAYERS)
    for scales, error in (([1.0, 1.0], ProtocolError), ([0.0], RangeError), ([2.0**31], RangeError)):
        with pytest.raises(error):
            encoder.encode(update, {"scale": torch.tensor(scales, dtype=torch.float64)}, Tape())


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 1000])
def test_the_wire_takes_whole_bytes_and_no_bit_more(count: int) -> None:
    encoder = Residues(clients=10, digits=5)
    payload = encoded(encoder, torch.linspace(-1, 1, count))
    schema = Schema((encoder.field(flat(count)),))
    data = schema.pack({"vector": payload.vector})
    assert len(data) == -(-57 * count // 8)
    assert torch.equal(schema.unpack(data)["vector"], payload.vector)
    spare = 8 * len(data) - 57 * count
    for bit in range(spare):
        bad = bytearray(data)
        bad[-1] |= 0x80 >> bit
        with pytest.raises(RangeError, match="bits set after its end"):
            schema.unpack(bytes(bad))
