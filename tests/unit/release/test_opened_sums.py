"""What an opened weighted sum of signs tells: against enumeration of every column."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier.release import opened_sums
from croupier.release.opened_sums import posterior, row_leakage, sum_chances, unique_share
from croupier_lab.attacks.opened_sums import count_solutions, even_levels, opened_facts

ROOT = Coins.from_seed(13)


def distinct(rows: int, bits: int, seed: int) -> list[int]:
    """Distinct weights of so many bits."""
    drawn = ROOT.child(rows, bits, seed).sampler().choice((1 << bits) - 1, rows, replace=False)
    return [int(weight) + 1 for weight in drawn]


def columns(weights: list[int], ones: list[float]) -> dict[int, list[tuple[tuple[int, ...], float]]]:
    """Every column of signs with its chance, by the z that it gives."""
    found: dict[int, list[tuple[tuple[int, ...], float]]] = defaultdict(list)
    for signs in product((-1, 1), repeat=len(weights)):
        chance = math.prod(one if sign > 0 else 1 - one for sign, one in zip(signs, ones, strict=True))
        found[sum(w * s for w, s in zip(weights, signs, strict=True))].append((signs, chance))
    return found


CASES = [
    ([1, 1, 1], [0.9, 0.9, 0.9]),
    ([1, 2, 3, 3], [0.7, 0.2, 0.5, 0.9]),
    ([0, 1, 1, 2, 2], [0.6] * 5),
    ([5, 9, 11, 20, 31, 31], [0.5, 0.1, 0.8, 0.35, 0.6, 0.6]),
    ([1, 1, 1, 2, 2, 4], [0.99] * 6),
]


@pytest.mark.parametrize(("weights", "ones"), CASES)
def test_the_decoder_is_the_posterior_by_enumeration(weights: list[int], ones: list[float]) -> None:
    every = columns(weights, ones)
    for row in range(len(weights)):
        values, chances, one = posterior(weights, ones, row)
        assert [2 * value - sum(weights) for value in values.tolist()] == sorted(every)
        left = guess = 0.0
        for z, chance, share in zip(sorted(every), chances, one, strict=True):
            total = sum(p for _, p in every[z])
            held = sum(p for signs, p in every[z] if signs[row] > 0) / total
            assert chance == pytest.approx(total, abs=1e-14)
            assert share == pytest.approx(held, abs=1e-12)
            left += total * -sum(p * math.log2(p) for p in (held, 1 - held) if p > 0)
            guess += total * max(held, 1 - held)
        found = row_leakage(weights, ones, row)
        before = -sum(p * math.log2(p) for p in (ones[row], 1 - ones[row]))
        assert found.bits == pytest.approx(before - left, abs=1e-12)
        assert found.guess == pytest.approx(guess, abs=1e-12)


@pytest.mark.parametrize(("weights", "ones"), CASES)
def test_unique_columns_by_enumeration(weights: list[int], ones: list[float]) -> None:
    heavy = [weight for weight in weights if weight]
    alone = [found[0] for found in columns(heavy, [0.8] * len(heavy)).values() if len(found) == 1]
    assert unique_share(weights, 0.2) == pytest.approx(sum(chance for _, chance in alone), abs=1e-12)
    bits = np.array(list(product((0, 1), repeat=len(weights)))).T
    ways = count_solutions(weights, bits)
    by_sum = columns(heavy, [0.5] * len(heavy))
    for column, count in zip(bits.T, ways, strict=True):
        z = sum(w * (2 * b - 1) for w, b in zip(weights, column.tolist(), strict=True))
        assert count == len(by_sum[z])


@pytest.mark.parametrize("rows", [2, 5, 10, 16])
@pytest.mark.parametrize("flip", [0.1, 0.5])
def test_equal_weights_open_the_unanimous_columns_only(rows: int, flip: float) -> None:
    weights = [1] * rows + [0] * 3
    assert unique_share(weights, flip) == pytest.approx((1 - flip) ** rows + flip**rows, rel=1e-12)
    found = sum_chances(weights, [0.5] * len(weights))
    assert found.values[found.ways == 1].tolist() == [0, rows]


def test_twelve_bits_open_most_columns_of_ten_rows() -> None:
    shares = [unique_share(distinct(10, 12, seed), 0.5) for seed in range(20)]
    assert min(shares) > 0.5
    assert np.mean(shares) > 0.8


@pytest.mark.parametrize(
    ("rows", "bits", "low", "high"),
    # The share depends on the weights that are drawn: ranges that hold for the draws tried here.
    [(10, 16, 0.96, 1.0), (16, 16, 0.6, 0.9), (20, 16, 0.04, 0.13), (20, 24, 0.96, 1.0)],
)
def test_shares_of_open_columns(rows: int, bits: int, low: float, high: float) -> None:
    for seed in range(3):
        assert low <= unique_share(distinct(rows, bits, seed), 0.5) <= high


@pytest.mark.parametrize(("rows", "bits", "printed"), [(24, 32, 1.00), (30, 24, 0.02), (30, 40, 1.00)])
def test_shares_of_open_columns_of_many_rows_by_sampling(rows: int, bits: int, printed: float) -> None:
    drawn = ROOT.child("columns", rows).sampler().integers(0, 2, (rows, 150))
    share = float((count_solutions(distinct(rows, bits, 0), drawn) == 1).mean())
    assert share == pytest.approx(printed, abs=0.05)


def test_sampling_and_walking_agree() -> None:
    weights = distinct(14, 13, 1)
    drawn = ROOT.child("agree").sampler().integers(0, 2, (14, 4000))
    share = float((count_solutions(weights, drawn) == 1).mean())
    assert share == pytest.approx(unique_share(weights, 0.5), abs=5 * 0.5 / math.sqrt(4000))


def test_what_is_told_grows_with_the_levels_and_shrinks_with_the_rows() -> None:
    by_level = [opened_facts(even_levels(20, levels), 0.3)["best_row"]["bits"] for levels in (1, 2, 4, 20)]
    assert by_level == sorted(by_level)
    assert by_level[0] < by_level[-1] / 2
    by_row = [opened_facts([1] * rows, 0.3)["best_row"]["bits"] for rows in (2, 10, 50)]
    assert by_row == sorted(by_row, reverse=True)


def test_all_that_is_told_of_open_rows_is_everything() -> None:
    found = opened_facts([1, 2, 4, 8, 16], 0.3)
    assert found["unique_columns"] == pytest.approx(1)
    assert found["best_row"]["bits"] == pytest.approx(found["most_bits"])
    assert found["best_row"]["guess"] == pytest.approx(1)
    assert found["column_bits"] == pytest.approx(5 * found["most_bits"])
    assert found["levels_filled"] == {"1": 1, "2": 1, "4": 1, "8": 1, "16": 1}
    nothing = opened_facts([0, 0], 0.3)
    assert nothing["best_row"]["bits"] == 0
    assert nothing["best_row"]["guess"] == pytest.approx(nothing["guess_without"])


def test_levels_are_filled_evenly() -> None:
    assert even_levels(5, 1) == [1] * 5
    assert even_levels(6, 3) == [1, 1, 2, 2, 3, 3]
    assert sorted(set(even_levels(7, 7))) == list(range(1, 8))
    with pytest.raises(RangeError, match="levels = 8"):
        even_levels(7, 8)


def test_what_is_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_sums, "_ROOM", 100)
    with pytest.raises(RangeError, match="128 distinct sums are too many to walk"):
        unique_share([1 << i for i in range(24)], 0.5)
    with pytest.raises(RangeError, match="45 rows"):
        count_solutions([1] * 45, np.ones((45, 1), np.int64))
    with pytest.raises(RangeError, match="weight = -1"):
        unique_share([-1, 1], 0.5)
