"""Signs: which way each coordinate goes, what they are packed as, and what they cannot be of."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.encode.encoder import Released
from croupier.encode.signs import NONCE, Signs, commitment, reference_fields
from croupier.errors import CroupierError, ProtocolError, RangeError

LAYOUT = Layout((Slice("w", (5,)), Slice("steps", (), "counter")))
COINS = Coins.from_seed(1)


def test_zeros_are_tossed_for_and_noted_at_home() -> None:
    update = Update(torch.tensor([0.5, -0.1, 0.0, -0.0, -1e-30]), LAYOUT, form="delta")
    seen = {tuple(Signs().encode(update, {}, COINS.child(toss)).vector.tolist()) for toss in range(64)}
    assert seen == {(1, 0, one, two, 0) for one in (0, 1) for two in (0, 1)}
    payload = Signs(zeros="up").encode(update, {}, COINS)
    assert payload.vector.tolist() == [1, 0, 1, 1, 0]
    assert payload.vector.dtype == torch.uint8
    assert payload.noted == {"zeros": 2}
    assert not payload.luggage


def test_a_coordinate_takes_one_bit() -> None:
    field = Signs().field(Layout((Slice("w", (1000,)),)))
    assert (field.shape, field.top, field.widths) == ((1000,), 1, (1,))
    assert Signs().modulus == 2
    assert any("1 bit" in line for line in Signs().says())


def test_running_statistics_have_no_sign() -> None:
    layout = Layout((Slice("w", (1,)), Slice("norm.running_mean", (1,), "statistic")))
    with pytest.raises(RangeError, match=r"norm.running_mean is a running statistic.* without batch normalisation"):
        Signs().encode(Update(torch.zeros(2), layout, form="delta"), {}, COINS)


def test_what_comes_back() -> None:
    rows = torch.tensor([[1, 0], [1, 1]], dtype=torch.uint8)
    got = Signs().decode(Released(("a", "b"), rows=rows), {})
    assert got.rows is not None
    assert got.weights is not None
    assert got.rows.tolist() == [[1.0, -1.0], [1.0, 1.0]]
    assert got.weights.tolist() == [1.0, 1.0]
    sums = Signs().decode(Released(("a",), sums=torch.tensor([3, -5]), luggage={"total": torch.tensor([5])}), {})
    assert sums.sums is not None
    assert sums.weights is not None
    assert (sums.sums.tolist(), sums.weights.tolist(), sums.form) == ([3, -5], [5.0], "delta")
    with pytest.raises(ProtocolError, match="nothing was released"):
        Signs().decode(Released(("a",)), {})


def test_a_commitment_binds_reference_and_nonce() -> None:
    bits, nonce = torch.tensor([1, 0, 1], dtype=torch.uint8), torch.zeros(NONCE, dtype=torch.uint8)
    said = commitment(bits, nonce)
    assert (said.dtype, len(said)) == (torch.uint8, 32)
    assert torch.equal(said, commitment(bits.clone(), nonce.clone()))
    assert not torch.equal(said, commitment(1 - bits, nonce))
    assert not torch.equal(said, commitment(bits, nonce + 1))
    assert [field.name for field in reference_fields(3)] == ["reference", "nonce"]


@pytest.mark.parametrize("fields", [{"form": "weights"}, {"weights": "open"}, {"weights": "slot", "cap": 3}])
def test_signs_are_of_differences_and_weigh_alike(fields: dict[str, Any]) -> None:
    with pytest.raises(CroupierError) as caught:
        Signs.parse({"use": "signs", **fields})
    for said in ("protocol.encode.form", repr(fields.get("form", "delta")), repr(fields.get("weights", "uniform"))):
        assert said in str(caught.value)
    assert "use form = 'delta' and weights = 'uniform'" in str(caught.value)
