"""DnC, SignGuard and FLAME: by hand, against slow renderings, and where nothing or everything stands out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.cluster import Flame, flame, majority_cluster
from croupier.aggregate.robust import Robust
from croupier.aggregate.rows import cosines
from croupier.aggregate.spectral import DnC, SignGuard, dnc, largest_cluster, outlying, sign_counts, signguard, some
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.engine.federation import Federation, check
from croupier.errors import SpecError
from croupier.pipeline import Pipeline

ALL = torch.arange(2)


def moved(rule: Robust, rows: Tensor, seed: int = 0) -> Tensor:
    width = rows.shape[1]
    start = torch.linspace(-1, 1, width)
    desk = Desk((Model(start),), Layout((Slice("w", (width,)),)), Coins.from_seed(seed))
    (model,), memory = rule(Gathered(("a",) * len(rows), rows, weights=torch.ones(len(rows)), form="delta"), desk, {})
    assert memory == {}
    return model.vector - start


def test_dnc_by_hand() -> None:
    """Mean (1, 0); centred along the first axis -1, -1, -1, 3: scores 1, 1, 1, 9, so that the last one goes."""
    rows = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [4.0, 0.0]])
    assert outlying(rows).tolist() == pytest.approx([1, 1, 1, 9])
    direction, weights = dnc(rows, 1, [ALL])
    assert direction.tolist() == [0, 0]
    assert weights.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    # Of equals those that come first in the order stay.
    assert dnc(rows, 2, [ALL], torch.tensor([2, 1, 0, 3]))[1].tolist() == [0, 0.5, 0.5, 0]


def test_what_stands_out_in_any_look_is_out_and_nothing_may_be_left() -> None:
    rows = torch.tensor([[9.0, 0.0], [0.0, 9.0], [0.0, 0.0]])
    looks = [torch.tensor([0]), torch.tensor([1])]
    assert dnc(rows, 1, looks)[1].tolist() == [0, 0, 1]
    direction, weights = dnc(9 * torch.eye(3), 1, [torch.tensor([at]) for at in range(3)])
    assert direction.tolist() == [0, 0, 0]
    assert weights.tolist() == [0, 0, 0]


@examples(40)
@given(st.integers(3, 8), st.integers(0, 500))
def test_dnc_against_a_singular_value_decomposition(count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(count, 12))
    centred = rows - rows.mean(0)
    want = (centred @ np.linalg.svd(centred)[2][0]) ** 2
    assert outlying(torch.from_numpy(rows)).tolist() == pytest.approx(want.tolist(), abs=1e-9)
    kept = np.argsort(want)[: count - 1]
    found = dnc(torch.from_numpy(rows), 1, [torch.arange(12)])[0]
    assert found.tolist() == pytest.approx(rows[kept].mean(0).tolist())


def test_the_counts_of_signs_by_hand() -> None:
    block = torch.tensor([[1.0, 2.0, 3.0, -1.0], [0.0, 1.0, 1.0, -1.0], [-1.0, -1.0, -1.0, -1.0]])
    # Shares of positive .75 .5 0, of zero 0 .25 0, of negative .25 .25 1, each over its greatest.
    want = [1, 0, 0.25, 2 / 3, 1, 0.25, 0, 0, 1]
    assert sign_counts(block).flatten().tolist() == pytest.approx(want)
    # Nobody has a zero: no share of it is nothing, not no number.
    assert sign_counts(block[[0, 2]])[:, 1].tolist() == [0, 0]


def test_signguard_by_hand() -> None:
    """Lengths 1, 1, 2, 1, 5 and 0.05, median 1: the fifth is too long, the last too short, the fourth turned round."""
    base = torch.tensor([0.6, 0.8, 0.0])
    rows = torch.stack([base, base, 2 * base, -base, 5 * base, 0.05 * base])
    direction, weights = signguard(rows, rows)
    assert weights.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 6, 0, 0, 0])
    assert direction.tolist() == pytest.approx(base.tolist())


def test_the_largest_cluster_wins_and_equal_points_are_together() -> None:
    draw = torch.Generator().manual_seed(0)
    points = torch.cat([torch.randn(12, 3, generator=draw) * 0.01, 1 + torch.randn(5, 3, generator=draw) * 0.01])
    assert largest_cluster(points).tolist() == [True] * 12 + [False] * 5
    assert largest_cluster(torch.ones(4, 3)).tolist() == [True] * 4
    assert largest_cluster(torch.ones(1, 3)).tolist() == [True]
    assert largest_cluster(torch.tensor([[0.0] * 3] * 3 + [[1.0] * 3] * 2)).tolist() == [True] * 3 + [False] * 2


def test_where_half_send_nothing_nothing_moves() -> None:
    rows = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert signguard(rows, rows)[0].tolist() == [0, 0]


def around(base: Tensor, count: int, spread: float, seed: int = 0) -> Tensor:
    return base + spread * torch.randn(count, len(base), generator=torch.Generator().manual_seed(seed))


def test_flame_averages_a_majority_that_points_one_way_at_the_median_length() -> None:
    """Seven of one direction and three of the opposite: at least six of the seven stay, and none of the three."""
    good = around(torch.tensor([3.0, 4.0, 0.0]), 7, 0.01)
    rows = torch.cat([good, -2 * good[:3]]).double()
    lengths = [float(row.norm()) for row in rows]
    median = float(np.median(lengths))
    direction, weights = flame(rows)
    kept = [place for place, weight in enumerate(weights.tolist()) if weight]
    assert len(kept) >= 6
    assert max(kept) < 7
    want = torch.stack([rows[place] * min(1, median / lengths[place]) for place in kept]).mean(0)
    assert direction.tolist() == pytest.approx(want.tolist())
    # The test can fail: some are longer than the median.
    assert not torch.allclose(direction, rows[kept].mean(0), atol=1e-9)


def test_a_cluster_is_more_than_half_and_leaves_out_who_points_elsewhere() -> None:
    angles = torch.tensor([0.0, 0.1, 0.21, 0.3, 0.42, 3.0, 2.0])
    kept = majority_cluster(1 - cosines(torch.stack([angles.cos(), angles.sin()], 1)))
    assert kept.sum() >= 4
    assert not kept[5:].any()


def test_where_there_is_no_cluster_all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.cluster

    class Noise:
        labels_ = np.full(5, -1)

        def __init__(self, **_: Any) -> None: ...

        def fit(self, _: Any) -> Noise:
            return self

    rows = around(torch.tensor([1.0, 0.0]), 5, 1.0)
    assert majority_cluster(1 - cosines(rows)).any()
    monkeypatch.setattr(sklearn.cluster, "HDBSCAN", Noise)
    assert majority_cluster(1 - cosines(rows)).all()
    assert majority_cluster(torch.zeros(2, 2)).tolist() == [True, True]


def test_flames_noise_is_in_units_of_the_median_length() -> None:
    rows = torch.full((5, 40_000), 0.01)
    plain, noised = moved(Flame(noise=0), rows), moved(Flame(noise=0.001), rows)
    assert torch.allclose(plain, rows[0], atol=1e-6)
    # The length is 2, so that the deviation is 0.002; over 40,000 draws its estimate is within 2 %.
    assert float((noised - plain).std()) == pytest.approx(0.002, rel=0.02)
    assert not torch.equal(noised, moved(Flame(noise=0.001), rows, seed=1))


def test_whole_models_are_clustered_when_asked() -> None:
    """What lies along the model itself does not turn it: four opposite updates are then no outliers."""
    rows = torch.cat([around(torch.ones(6), 6, 0.01), around(-torch.ones(6), 4, 0.01, seed=1)])
    assert flame(rows)[1][6:].tolist() == [0, 0, 0, 0]
    assert flame(rows, rows + 10)[1][6:].any()
    start = torch.linspace(-1, 1, 6)
    assert torch.allclose(moved(Flame(noise=0, whole=True), rows), flame(rows, rows + start)[0].float(), atol=1e-6)


RULES = [DnC(f=2), SignGuard(share=1.0), Flame(noise=0)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.use)
def test_identical_rows_give_that_row(rule: Robust) -> None:
    row = torch.tensor([0.5, -0.25, 2.0])
    assert moved(rule, row.repeat(9, 1)).tolist() == pytest.approx(row.tolist(), abs=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.use)
@pytest.mark.parametrize("at", [0, 4, 8])
def test_one_huge_row_is_ignored(rule: Robust, at: int) -> None:
    rows = around(torch.linspace(-1, 1, 40), 9, 0.1, seed=2)
    rows[at] = 1e37
    kept = torch.cat([rows[:at], rows[at + 1 :]])
    found = moved(rule, rows)
    # Somewhere among the honest: within their greatest distance of their mean.
    assert float((found - kept.mean(0)).norm()) <= float((kept - kept.mean(0)).norm(dim=1).max())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.use)
def test_the_order_of_the_rows_does_not_show(rule: Robust) -> None:
    rows = torch.cat([around(torch.linspace(-1, 1, 30), 7, 0.3), around(torch.linspace(1, -1, 30), 3, 0.3)])
    order = torch.randperm(10, generator=torch.Generator().manual_seed(4))
    assert torch.allclose(moved(rule, rows), moved(rule, rows[order]), atol=1e-6)


def test_signguard_counts_on_a_block_that_the_server_draws() -> None:
    """On a tenth of the weights a row that is turned round there only is out, or is not: the block decides."""
    rows = around(torch.ones(100), 9, 0.01)
    rows[8, :10] *= -1
    found = {round(float(moved(SignGuard(), rows, seed=seed)[0]), 2) for seed in range(40)}
    assert len(found) > 1


def test_dnc_refuses_to_leave_nobody() -> None:
    with pytest.raises(SpecError, match=r"f = 4 and c = 2: all of 8 updates are left out; lower one"):
        check(Pipeline(aggregate=DnC(f=4, c=2)), 8, Federation())
    check(Pipeline(aggregate=DnC(f=4, c=2)), 9, Federation())


@pytest.mark.parametrize(("size", "count"), [(10, 10), (10, 12), (10, 9), (1000, 30), (50, 25)])
def test_coordinates_are_different_and_anyones(size: int, count: int) -> None:
    drawn = [some(Coins.from_seed(seed).secure(), size, count) for seed in range(200)]
    for one in drawn:
        assert len(set(one.tolist())) == min(size, count)
        assert one.min() >= 0
        assert one.max() < size
        assert (np.diff(one) > 0).all()
    seen = np.bincount(np.concatenate(drawn), minlength=size) / 200
    share = min(1.0, count / size)
    assert abs(seen - share).max() <= 5 * (share * (1 - share) / 200) ** 0.5 + 1e-9


def test_the_rules_on_directions_take_differences_only() -> None:
    for rule in (SignGuard(), Flame()):
        with pytest.raises(SpecError, match=r"does not take updates as 'weights'; use encode\.form = 'delta'"):
            Pipeline(aggregate=rule)
