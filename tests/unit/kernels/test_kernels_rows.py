"""Rows become one table, whoever fills it, and are not shared with it."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.kernels.rows import table


@pytest.mark.parametrize("width", [3, 70_000])
@pytest.mark.parametrize("kind", ["<f4", "<i8", "|u1"])
def test_rows_lie_under_one_another(width: int, kind: str) -> None:
    rows = [np.arange(start, start + width).astype(kind) for start in range(3)]
    found = table(rows)
    assert found.dtype == rows[0].dtype
    assert np.array_equal(found, np.stack(rows))
    found[0] = 0
    assert rows[0][1] == 1


def test_rows_of_another_kind_or_length_are_refused() -> None:
    wide = np.zeros(140_000, np.float32)
    with pytest.raises(TypeError):
        table([wide, wide.astype(np.float64)])
    with pytest.raises(ValueError, match="broadcast"):
        table([wide, wide[1:]])
