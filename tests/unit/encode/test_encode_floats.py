"""Updates as plain floats: bit for bit, with the weight beside them or inside the row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tape import Tape
from tests.tiers import examples

from croupier.core.update import Layout, Slice, Update
from croupier.encode.encoder import Payload, Released
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError

LAYOUT = Layout((Slice("w", (3,)),))


def encoded(encoder: Floats, values: list[float], weight: float) -> Payload:
    luggage = {"weight": torch.tensor([weight], dtype=torch.float64)}
    return encoder.encode(Update(torch.tensor(values), LAYOUT, luggage), {}, Tape())


@examples()
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_uniform_floats_travel_bit_for_bit_and_alone(values: list[float]) -> None:
    payload = encoded(Floats(), values, 9)
    assert payload.vector.numpy().tobytes() == torch.tensor(values).numpy().tobytes()
    assert dict(payload.luggage) == {}
    assert dict(payload.noted) == {}
    got = Floats().decode(Released(("a",), rows=payload.vector[None]), {})
    assert got.rows is not None
    assert got.rows.tolist() == [payload.vector.tolist()]
    assert got.weights is not None
    assert got.weights.tolist() == [1.0]


def test_open_weights_ride_beside() -> None:
    encoder = Floats(weights="open")
    payload = encoded(encoder, [1.0, 2.0, 3.0], 41)
    assert payload.luggage["weight"].tolist() == [41.0]
    assert encoder.slots(LAYOUT) == 3
    released = Released(
        ("a", "b"), rows=torch.zeros(2, 3), luggage={"weight": torch.tensor([[4.0], [5.0]]).double()}, ids=("a", "b")
    )
    got = encoder.decode(released, {})
    assert got.weights is not None
    assert got.weights.tolist() == [4.0, 5.0]
    assert got.ids == ("a", "b")
    assert not got.scaled


def test_slot_weights_scale_the_row_and_close_it() -> None:
    encoder = Floats(weights="slot", cap=8)
    payload = encoded(encoder, [1.0, -2.0, 4.0], 2)
    assert payload.vector.tolist() == [0.25, -0.5, 1.0, 0.25]
    assert payload.vector.dtype == torch.float32
    assert payload.noted == {"capped_weights": 0}
    assert dict(payload.luggage) == {}
    assert encoder.slots(LAYOUT) == 4
    past = encoded(encoder, [1.0, -2.0, 4.0], 9)
    assert past.vector.tolist() == [1.0, -2.0, 4.0, 1.0]
    assert past.noted == {"capped_weights": 1}
    assert encoded(encoder, [1.0, -2.0, 4.0], 8).noted == {"capped_weights": 0}
    got = encoder.decode(Released(("a", "b"), rows=torch.stack([payload.vector, past.vector])), {})
    assert got.rows is not None
    assert got.weights is not None
    assert got.rows.tolist() == [[0.25, -0.5, 1.0], [1.0, -2.0, 4.0]]
    assert got.weights.tolist() == [0.25, 1.0]
    assert got.scaled


def test_sums_of_floats_are_refused() -> None:
    with pytest.raises(ProtocolError, match="never as sums"):
        Floats().decode(Released(("a",), sums=torch.zeros(3)), {})


@pytest.mark.parametrize("table", [{"weights": "slot"}, {"cap": 3}, {"weights": "open", "cap": 3}])
def test_a_cap_belongs_to_slots(table: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=r"encode\.cap = "):
        Floats.parse(table)
    with pytest.raises(SpecError, match=r"cap = 0"):
        Floats.parse({"weights": "slot", "cap": 0})


def test_coordinates_are_plain_floats() -> None:
    assert not Floats().agrees
    assert Floats().modulus is None
    assert Floats().dtype == "<f4"


def test_what_it_says_tells_where_the_weight_goes() -> None:
    assert "not sent" in Floats().says()[0]
    assert "in the clear" in Floats(weights="open").says()[0]
    assert "up to 5" in Floats(weights="slot", cap=5).says()[0]
