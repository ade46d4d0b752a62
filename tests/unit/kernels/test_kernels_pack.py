"""Numbers of few bits: compiled and plain are one function, and what is packed comes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.kernels import pack

SIZES = [0, 1, 7, 63, 64, 65, 1023, 1024, 1025, (1 << 17) + 65]


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("widths", [(1,), (3,), (8,), (21,), (63,), (2, 3, 3, 3, 4, 4, 5), (63, 1, 62)], ids=str)
def test_compiled_and_plain_are_one_function(rows: int, widths: tuple[int, ...]) -> None:
    columns = [Coins.from_seed(w).child(j).secure().below(1 << w, rows) for j, w in enumerate(widths)]
    values = np.stack(columns, 1)
    values[:1] = [(1 << w) - 1 for w in widths]
    data = pack.pack(values, widths)
    assert len(data) == pack.size(rows, widths) == -(-rows * sum(widths) // 8)
    assert data.tobytes() == pack.pack_plain(values, widths).tobytes()
    assert np.array_equal(pack.unpack(data, rows, widths), values)
    assert np.array_equal(pack.unpack_plain(data, rows, widths), values)


def test_the_lowest_bit_comes_first() -> None:
    assert pack.pack(np.array([[1, 0], [3, 5]]), (2, 3)).tolist() == [0b01_11_000_01 & 0xFF, 0b0000_0010]
    assert pack.pack(np.array([6, 1]), (4,)).tolist() == [0x16]


@examples()
@given(st.lists(st.integers(1, 63), min_size=1, max_size=5), st.integers(0, 30), st.data())
def test_anything_comes_back(widths: list[int], rows: int, data: st.DataObject) -> None:
    line = st.tuples(*(st.integers(0, (1 << w) - 1) for w in widths))
    values = np.array(data.draw(st.lists(line, min_size=rows, max_size=rows)), np.int64).reshape(rows, len(widths))
    packed = pack.pack(values, tuple(widths))
    assert np.array_equal(pack.unpack(packed, rows, tuple(widths)), values)
