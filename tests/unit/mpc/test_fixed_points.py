"""Multiples from tables are the library's own, with and without points that they are added to."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.errors import IntegrityError
from croupier.mpc import curve, fixed_points
from croupier.mpc.curve import ORDER

COINS = Coins.from_seed(8)
POINT = curve.base([77])


@pytest.mark.parametrize("many", [3, 120, 3001])
def test_multiples_are_those_of_the_library(many: int) -> None:
    scalars = [1, ORDER - 1, *curve.drawn(COINS.child(many), many - 2)]
    logs = curve.drawn(COINS.child("logs", many), many)
    assert np.array_equal(fixed_points.base(scalars), curve.base(scalars))
    true = curve.base([(one + 77 * scalar) % ORDER for one, scalar in zip(logs, scalars, strict=True)])
    assert np.array_equal(fixed_points.shifted(curve.base(logs), POINT, scalars), true)


def test_a_sum_at_infinity_is_refused() -> None:
    many = 150
    with pytest.raises(IntegrityError, match="at infinity"):
        fixed_points.shifted(np.repeat(POINT, many, 0), POINT, [ORDER - 1] * many)


def test_a_copy_is_found_wherever_it_lies() -> None:
    rows = np.arange(40, dtype=np.uint8).reshape(10, 4)
    fixed_points.check_distinct(rows, "mix1")
    with pytest.raises(IntegrityError, match="mix1 sent the same ciphertext twice"):
        fixed_points.check_distinct(np.concatenate([rows, rows[3:4]]), "mix1")
