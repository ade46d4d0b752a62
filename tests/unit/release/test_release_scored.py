"""Distances and weights of scored sums: by hand, at every edge, and whatever the order of the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.seated import random_rows, signs
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.errors import CroupierError, ProtocolError
from croupier.release.printed import DEN
from croupier.release.scored import NORMAL, ScoredSum

PRINTED: dict[str, Any] = {"gate": False, "floor": False, "among": 1}


def judged(rule: ScoredSum, distances: list[int], size: int) -> list[int]:
    """The weights."""
    weights: list[int] = rule.judge(np.array(distances, np.int64), size).weights.tolist()
    return weights


def against(rule: ScoredSum, rows: torch.Tensor, reference: torch.Tensor, seed: int = 1) -> dict[str, Any]:
    """What leaves."""
    return dict(rule.against(list(rows), reference, Coins.from_seed(seed)))


def test_distances_and_sums_by_hand() -> None:
    rows, reference = signs(["1111", "1110", "1100", "0000"]), signs(["1111"])[0]
    found = against(ScoredSum(gate=False, among=1), rows, reference)
    assert sorted(found["distances"].tolist()) == [0, 1, 2, 4]
    # Median 1.5, deviations 1.5, 0.5, 0.5, 2.5: MAD 1, threshold 1.5 + 1.4826 * 2.2 = 4.76: all four.
    assert found["total"].tolist() == [4]
    assert found["sums"].tolist() == [2, 2, 0, -2]
    assert found["distances"].dtype == torch.int32
    assert found["sums"].dtype == torch.int64


@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 1 << 20))
@examples(40)
def test_a_distance_is_half_of_what_signs_fall_short(count: int, size: int, seed: int) -> None:
    rows, reference = random_rows(count, size, seed), random_rows(1, size, seed + 1)[0]
    found = against(ScoredSum(gate=False, among=1), rows, reference)
    inner = (2 * rows.long() - 1) @ (2 * reference.long() - 1)
    assert sorted(found["distances"].tolist()) == sorted(((size - inner) // 2).tolist())


def test_median_deviation_and_threshold() -> None:
    distances = [10, 12, 13, 17, 40]  # median 13, deviations 3 1 0 4 27: MAD 3
    verdict = ScoredSum(spread=1, **PRINTED).judge(np.array(distances), 1000)
    assert verdict.threshold == pytest.approx(13 + 1.4826 * 3)
    assert verdict.weights.tolist() == [1, 1, 1, 1, 0]
    assert verdict.lower is None
    wide = ScoredSum(spread=6.1, **PRINTED).judge(np.array(distances), 1000)
    assert wide.threshold == pytest.approx(13 + 1.4826 * 6.1 * 3)
    assert wide.total == 5


def test_the_gate_turns_away_what_chance_could_have_made() -> None:
    rule = ScoredSum(among=1)
    size = 400  # half less 1.5 * 20: 170
    assert rule.judge(np.array([150, 169, 170, 171, 200]), size).threshold == 170
    assert judged(rule, [150, 169, 170, 171, 200], size) == [1, 1, 0, 0, 0], "a row at the gate is outside"
    assert judged(rule, [200] * 9, size) == [0] * 9
    assert judged(ScoredSum(gate=False, among=1), [200] * 9, size) == [1] * 9
    assert judged(rule, [0, 1], 9) == [0, 0], "under 10 coordinates the gate lets nobody in"
    assert judged(rule, [0, 1], 10) == [1, 0], "5 - 1.5 sqrt(10) = 0.26"


def test_rows_at_one_distance_as_printed_and_with_a_least_deviation() -> None:
    same = [30] * 5
    assert judged(ScoredSum(**PRINTED), same, 100) == [0] * 5, "the printed rule accepts none of them"
    floored = ScoredSum(gate=False, among=1)
    verdict = floored.judge(np.array(same), 100)
    assert verdict.threshold == pytest.approx(30 + 2.2 * math.sqrt(100 * 0.3 * 0.7))
    assert verdict.weights.tolist() == [1] * 5
    # The floor is a deviation of chance: a larger MAD is left alone, a smaller one is not.
    assert floored.judge(np.array([20, 30, 40]), 100).threshold == pytest.approx(30 + 2.2 * NORMAL * 10)
    assert floored.judge(np.array([29, 30, 31]), 100).threshold == pytest.approx(30 + 2.2 * math.sqrt(21))


@pytest.mark.parametrize("at", [0, 100])
def test_identical_rows_at_either_end(at: int) -> None:
    # There the deviation of chance is 0 too, and nothing lies below the threshold.
    verdict = ScoredSum(gate=False, among=1).judge(np.array([at] * 4), 100)
    assert verdict.threshold == at
    assert verdict.total == 0
    assert not verdict.withheld


def test_ties_at_the_threshold_are_outside() -> None:
    rule = ScoredSum(expected=0.1, gate=False, among=1)  # 10 + 3 * 3 = 19, exactly
    assert rule.judge(np.array([18, 19, 20]), 100).threshold == pytest.approx(19)
    assert judged(rule, [18, 20, 30], 100) == [1, 0, 0]
    half = ScoredSum(spread=1 / NORMAL, **PRINTED)  # the threshold is median + MAD: 6 + 2
    assert half.judge(np.array([4, 4, 6, 8, 10]), 100).threshold == pytest.approx(8)
    gated = ScoredSum(among=1, spread=50)
    assert judged(gated, [10, 34, 35, 36], 100) == [1, 1, 0, 0], "50 - 15 = 35, exactly"


def test_two_sides_and_an_expected_distance() -> None:
    two = ScoredSum(side="two", spread=1, **PRINTED)
    verdict = two.judge(np.array([1, 10, 12, 14, 30]), 100)  # MAD 2: from 9.03 to 14.97
    assert verdict.lower == pytest.approx(12 - 1.4826 * 2)
    assert verdict.weights.tolist() == [0, 1, 1, 1, 0]
    known = ScoredSum(side="two", expected=0.2, gate=False, among=1)
    assert known.judge(np.array([0, 0, 0]), 100).lower == pytest.approx(20 - 3 * 4)
    assert judged(known, [0, 8, 9, 20, 31, 32, 90], 100) == [0, 0, 1, 1, 1, 0, 0], "whatever the sample says"


def test_too_few_are_withheld() -> None:
    rule = ScoredSum(gate=False, expected=0.2, among=2, colluders=1)
    few = rule.judge(np.array([20, 21, 90, 90]), 100)
    assert (few.total, few.withheld) == (0, True)
    none = rule.judge(np.array([90, 90, 90]), 100)
    assert (none.total, none.withheld) == (0, False)
    assert rule.judge(np.array([20, 21, 22, 90]), 100).weights.tolist() == [1, 1, 1, 0]
    found = against(rule, signs(["0" * 90 + "1" * 10, "1" * 100, "1" * 100]), signs(["0" * 100])[0])
    assert found["total"].tolist() == [0]
    assert not found["sums"].any()


def test_weights_by_nearness_are_in_sixteenths() -> None:
    rule = ScoredSum(weights="relu", expected=0.1, gate=False, among=1)  # threshold 19
    assert judged(rule, [0, 10, 18, 19, 50], 100) == [304, 144, 16, 0, 0]
    assert judged(ScoredSum(weights="relu", spread=1, **PRINTED), [10, 12, 13, 17, 40], 1000) == [
        math.floor(16 * (13 + NORMAL * 3 - d)) if d < 40 else 0 for d in [10, 12, 13, 17, 40]
    ]


def levelled(distances: list[int], **more: Any) -> list[int]:
    """Seven steps between 19 and the nearest."""
    options = {"weights": "levels", "expected": 0.1, "gate": False, "among": 2} | more
    return judged(ScoredSum(**options), distances, 100)


@pytest.mark.parametrize("fields", [{"spread": 40.0}, {"spread": 40.0, "scores": "secret", "opens": "signs"}])
def test_no_threshold_is_beyond_what_is_reckoned_with(fields: dict[str, Any]) -> None:
    """A wide spread puts it far above the number of coordinates."""
    rule, distances = ScoredSum(weights="relu", gate=False, among=1, **fields), np.array([0, 0, 10, 20, 20])
    found = rule.judge(distances, 20).weights.sum()
    if rule.scores == "secret":
        found = rule.printed(20).weights(distances).sum() * 16 / (4 * DEN)
    assert 16 * 20 * 5 < found <= rule.most(5, 20)


def test_levels_are_merged_downwards_until_each_is_a_crowd() -> None:
    # From 5 to 19 in steps of 2: 5 6 | 7 8 | 9 10 | 11 12 | 13 14 | 15 16 | 17 18.
    assert levelled([5, 6, 9, 10, 17, 18]) == [7, 7, 5, 5, 1, 1]
    assert levelled([5, 9, 10, 17, 18]) == [5, 5, 5, 1, 1], "one alone joins the level below, at its weight"
    assert levelled([5, 6, 9, 10, 17]) == [7, 7, 1, 1, 1], "the farthest alone brings the level above down to it"
    assert levelled([5, 6, 17]) == [1, 1, 1]
    assert levelled([5, 6, 9, 17, 18, 18], among=1, colluders=2) == [5, 5, 5, 1, 1, 1]
    assert levelled([5, 6, 9, 10, 17, 18], among=1, colluders=2) == [1] * 6, "two are too few, and join four"
    assert levelled([5, 6, 9, 10, 17, 18], among=4) == [1] * 6
    assert levelled([5, 6, 9, 10, 17, 18], among=7) == [0] * 6
    assert levelled([5, 5, 5, 50]) == [7, 7, 7, 0]
    assert levelled([6, 7, 18, 18, 18], levels=2) == [2, 2, 1, 1, 1]


RULES = st.builds(
    lambda weights, side, gate, floor, expected, among, colluders, levels: ScoredSum(
        weights=weights, side="one" if weights == "relu" else side, gate=gate, floor=floor, expected=expected,
        among=among, colluders=colluders, levels=levels,
    ),
    st.sampled_from(["equal", "levels", "relu"]), st.sampled_from(["one", "two"]), st.booleans(), st.booleans(),
    st.none() | st.floats(0.05, 0.45), st.integers(1, 5), st.integers(0, 3), st.integers(2, 9),
)  # fmt: skip


@given(RULES, st.lists(st.integers(0, 60), min_size=1, max_size=25), st.randoms(use_true_random=False))
@examples(200)
def test_weights_depend_on_distances_as_a_set(rule: ScoredSum, distances: list[int], chance: Any) -> None:
    size = 60
    order = list(range(len(distances)))
    chance.shuffle(order)
    weights = judged(rule, distances, size)
    assert judged(rule, [distances[i] for i in order], size) == [weights[i] for i in order]
    by_distance: dict[int, set[int]] = {}
    for distance, weight in zip(distances, weights, strict=True):
        by_distance.setdefault(distance, set()).add(weight)
    assert all(len(found) == 1 for found in by_distance.values()), "equal distances weigh alike"
    assert all(weight >= 0 for weight in weights)
    assert sum(weights) <= rule.most(len(weights), size)
    if rule.weights != "relu" and any(weights):
        for level in set(weights) - {0}:
            assert weights.count(level) >= rule.among + rule.colluders, "a level is a crowd"
        assert max(weights) <= rule.heaviest
    near = sorted(d for d, w in zip(distances, weights, strict=True) if w)
    assert rule.side == "two" or not near or all(w for d, w in zip(distances, weights, strict=True) if d <= near[0]), (
        "nearer rows weigh too"
    )


@given(RULES, st.integers(2, 9), st.integers(1, 40), st.integers(0, 1 << 20))
@examples(60)
def test_sums_are_those_of_the_weights(rule: ScoredSum, count: int, size: int, seed: int) -> None:
    rows, reference = random_rows(count, size, seed), random_rows(1, size, seed + 1)[0]
    found = against(rule, rows, reference, seed)
    weights = rule.judge((rows != reference).sum(1).numpy(), size).weights
    assert found["total"].tolist() == [weights.sum()]
    assert found["sums"].tolist() == (weights @ (2 * rows.numpy().astype(np.int64) - 1)).tolist()


def test_the_order_of_distances_is_drawn() -> None:
    rows, reference = signs(["0000", "0001", "0011"]), signs(["0000"])[0]
    orders = [tuple(against(ScoredSum(**PRINTED), rows, reference, seed)["distances"].tolist()) for seed in range(60)]
    assert len(set(orders)) == 6


def test_it_says_what_it_shows_and_needs() -> None:
    with pytest.raises(ProtocolError, match="measures distances to a reference: use `against`"):
        ScoredSum()([], Layout((Slice("w", (1,)),)), 2, Coins.from_seed(1))
    assert ScoredSum().least == 3
    assert ScoredSum(among=1).least == 2
    assert ScoredSum(among=4, colluders=2).least == 6
    assert ScoredSum(weights="levels").least == 50
    assert "most rows can be computed" in ScoredSum(weights="relu").reveals()
    assert "each of 5 rows or more" in ScoredSum(weights="levels", colluders=2).reveals()
    assert {ScoredSum().heaviest, ScoredSum(weights="levels", levels=4).heaviest} == {1, 4}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"side": "two", "weights": "relu"}, "protocol.release.side = 'two' with weights = 'relu': use weights"),
        ({"expected": 0.5}, "expected"), ({"expected": 0.0}, "expected"), ({"spread": 0.0}, "spread"),
        ({"levels": 1}, "levels"), ({"among": 0}, "among"), ({"colluders": -1}, "colluders"),
    ],
)  # fmt: skip
def test_bad_fields_are_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(CroupierError, match=said):
        ScoredSum.parse({"use": "scored", **fields})
