"""The sum of all rows: exact modulo its modulus in any order, across blocks, and without any coin."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tape import Tape
from tests.tiers import examples

from croupier.core.coins import BLOCK
from croupier.core.update import Layout, Slice
from croupier.errors import ProtocolError
from croupier.release.sums import Sum

LAYOUT = Layout((Slice("w", (3,)),))


@examples()
@given(st.data(), st.sampled_from([1 << 10, 1 << 31, 1 << 40, 1 << 62]), st.integers(1, 9))
def test_sums_are_taken_modulo_in_any_order(data: st.DataObject, modulus: int, count: int) -> None:
    dtype = torch.int32 if modulus <= 1 << 31 else torch.int64
    values = st.lists(st.integers(0, modulus - 1), min_size=3, max_size=3)
    table = data.draw(st.lists(values, min_size=count, max_size=count))
    rows = [torch.tensor(row, dtype=dtype) for row in table]
    before = [row.clone() for row in rows]
    out = Sum()(rows, LAYOUT, modulus, Tape())
    assert list(out) == ["sums"]
    assert out["sums"].dtype == dtype
    assert out["sums"].tolist() == [sum(column) % modulus for column in zip(*table, strict=True)]
    order = data.draw(st.permutations(rows))
    assert torch.equal(Sum()(order, LAYOUT, modulus, Tape())["sums"], out["sums"])
    assert all(torch.equal(row, old) for row, old in zip(rows, before, strict=True))


def test_sums_across_blocks() -> None:
    size = 2 * BLOCK + 3
    rows = [torch.arange(size) % 1_000 + i for i in range(3)]
    out = Sum()(rows, Layout((Slice("w", (size,)),)), 1 << 12, Tape())["sums"]
    assert torch.equal(out, torch.stack(rows).sum(0) % (1 << 12))


def test_a_sum_draws_nothing() -> None:
    tape = Tape()
    Sum()([torch.tensor([1, 2, 3])] * 2, LAYOUT, 8, tape)
    assert tape.taken == []


def test_floats_are_not_summed() -> None:
    for rows, modulus in (([torch.zeros(3)], 8), ([torch.zeros(3, dtype=torch.int64)], None)):
        with pytest.raises(ProtocolError, match="only integers are summed"):
            Sum()(rows, LAYOUT, modulus, Tape())


def test_what_leaves_and_how_many_it_takes() -> None:
    (field,) = Sum().fields("<i4", 64, 9)
    assert (field.name, field.dtype, field.shape, field.top) == ("sums", "<i4", (9,), 63)
    assert (Sum.least, Sum.shape, Sum.hides) == (2, "sums", frozenset({"ids", "rows"}))
    assert "sum" in Sum().reveals()
