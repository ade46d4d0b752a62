"""Weights by published noise and budget, and projected averaging."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.mean import Mean, Scaled
from croupier.aggregate.projected import Projected, projected, relaxed
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Model, Slice
from croupier.encode.floats import Floats
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.place.relay import Relay
from croupier.privacy.gaussian import Gaussian
from croupier.release.shuffle import Shuffle

SIZE = 6
LAYOUT = Layout((Slice("w", (SIZE - 1,)), Slice("s", (1,), "statistic")))
START = torch.arange(SIZE).float()
DESK = Desk((Model(START),), LAYOUT, Coins.from_seed(0))
NOISE = (4.0, 1.0, 0.25, 1.0)
EPSILONS = (0.5, 2.0, 8.0, 2.0)


def gathered(rows: Tensor, weights: Tensor | None = None, scaled: bool = False) -> Gathered:
    count = len(rows)
    return Gathered(
        tuple(f"c{i}" for i in range(count)),
        rows,
        weights=torch.ones(count).double() if weights is None else weights,
        scaled=scaled,
        form="delta",
        noise=torch.tensor(NOISE[:count]).double(),
        epsilons=torch.tensor(EPSILONS[:count]).double(),
    )


def moved(rule: Mean | Projected, got: Gathered) -> Tensor:
    (model,), memory = rule(got, DESK, {"kept": 1})
    assert memory == {"kept": 1}
    return model.vector - START


@pytest.mark.parametrize("part", [Mean, Scaled])
def test_rows_count_by_inverse_variance_or_budget(part: type[Mean]) -> None:
    rows, sizes = torch.randn(4, SIZE), torch.tensor([3.0, 1.0, 2.0, 5.0]).double()
    for rule, share in (
        (part(by="variance"), [3 / 4.0, 1 / 1.0, 2 / 0.25, 5 / 1.0]),
        (part(by="variance", signal=2.0), [3 / 6.0, 1 / 3.0, 2 / 2.25, 5 / 3.0]),
        (part(by="epsilon"), [3 * 0.5, 1 * 2.0, 2 * 8.0, 5 * 2.0]),
        (part(by="records"), [3.0, 1.0, 2.0, 5.0]),
    ):
        want = np.average(rows.double().numpy(), axis=0, weights=share)
        np.testing.assert_allclose(moved(rule, gathered(rows, sizes)), want, atol=1e-6)
        # Rows that were multiplied by their weight at the client count the same.
        times = (rows.double() * sizes[:, None]).float()
        np.testing.assert_allclose(moved(rule, gathered(times, sizes, scaled=True)), want, atol=2e-6)


@pytest.mark.parametrize("by", ["variance", "epsilon"])
def test_a_mean_of_several_counts_as_its_members(by: str) -> None:
    """Four clients in two buckets of one label each: row by row, or as the mean of each bucket."""
    rule = Mean.parse({"by": by})
    rows = torch.randn(4, SIZE).double()
    labels = torch.tensor([1.0, 1.0, 3.0, 1.0])
    each = replace(gathered(rows.float()), noise=labels, epsilons=labels)
    means = torch.stack([rows[[0, 1, 3]].mean(0), rows[2]]).float()
    two = replace(gathered(means, torch.tensor([3.0, 1.0])), noise=labels[[0, 2]], epsilons=labels[[0, 2]])
    assert torch.allclose(moved(rule, each), moved(rule, two), atol=1e-6)


@pytest.mark.parametrize("by", ["variance", "epsilon"])
def test_a_shuffle_inside_a_bucket_leaves_the_weighted_mean_as_it_was(by: str) -> None:
    rule = Mean.parse({"by": by, "step": "yogi"})
    rows = torch.randn(8, SIZE) * 10.0 ** torch.randint(-5, 5, (8, SIZE))
    labels = torch.tensor([0.3] * 5 + [1.7] * 3).double()
    mixed = torch.cat([part.gather(0, torch.rand(part.shape).argsort(0)) for part in (rows[:5], rows[5:])])
    one, other = (
        rule(Gathered(("a",) * 8, got, weights=torch.ones(8), form="delta", noise=labels, epsilons=labels), DESK, {})
        for got in (rows, mixed)
    )
    assert not torch.equal(rows, mixed)
    assert torch.equal(one[0][0].vector, other[0][0].vector)


@pytest.mark.parametrize("by", ["variance", "epsilon"])
def test_equal_labels_count_exactly_alike(by: str) -> None:
    same = torch.full((4,), 0.1).double()
    got = replace(gathered(torch.randn(4, SIZE)), noise=same, epsilons=same)
    assert torch.equal(moved(Mean.parse({"by": by}), got), moved(Mean(), got))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"noise": None, "epsilons": None}, r"published (noise|budget) of every row, .* tells none; use privacy ="),
        ({"noise": torch.ones(3), "epsilons": torch.ones(3)}, "3 published labels for 4 rows"),
        ({"noise": torch.tensor([1.0, -1, 1, 1]), "epsilons": torch.tensor([1.0, 0, 1, 1])}, "not a finite number"),
        ({"noise": torch.full((4,), torch.inf), "epsilons": torch.full((4,), torch.nan)}, "not a finite number"),
        ({"rows": None, "sums": torch.ones(SIZE)}, "one sum of all clients was released; release rows or buckets"),
    ],
)
@pytest.mark.parametrize("by", ["variance", "epsilon"])
def test_missing_labels_are_refused(by: str, change: dict[str, Tensor | None], said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        moved(Mean.parse({"by": by}), replace(gathered(torch.randn(4, SIZE)), **change))  # type: ignore[arg-type]


def test_a_row_without_noise_needs_a_signal() -> None:
    got = replace(gathered(torch.randn(4, SIZE)), noise=torch.tensor([0.0, 1, 1, 1]))
    with pytest.raises(ProtocolError, match=r"set protocol.aggregate.signal"):
        moved(Mean(by="variance"), got)
    moved(Mean(by="variance", signal=0.5), got)


def test_a_signal_that_nothing_reads_is_refused() -> None:
    with pytest.raises(SpecError, match=r"signal = 0.5: only by = 'variance' reads it"):
        Mean(signal=0.5)
    assert Mean(by="epsilon").asks == {"labels"}
    assert Mean().asks == frozenset()


def oracle(rows: np.ndarray, guiding: list[int], rank: int) -> np.ndarray:
    """By the singular vectors themselves."""
    others = [i for i in range(len(rows)) if i not in guiding]
    _, _, right = np.linalg.svd(rows[guiding], full_matrices=False)
    span = right[:rank].T
    across = span @ (span.T @ rows[others].mean(0)) if others else 0.0
    found: np.ndarray = (len(guiding) * rows[guiding].mean(0) + len(others) * across) / len(rows)
    return found


@pytest.mark.parametrize(
    ("guiding", "rank"), [([0], 1), ([1, 4, 5], 1), ([1, 4, 5], 2), ([0, 2, 6], 3), ([*range(7)], 2)]
)
def test_the_others_are_projected_onto_what_the_guides_span(guiding: list[int], rank: int) -> None:
    rows = torch.randn(7, 40, dtype=torch.float64)
    mask = torch.tensor([i in guiding for i in range(7)])
    np.testing.assert_allclose(projected(rows, mask, rank), oracle(rows.numpy(), guiding, rank), atol=1e-10)


def test_guides_without_a_direction_leave_the_others_out() -> None:
    rows = torch.cat([torch.zeros(2, 9), torch.randn(3, 9)])
    mask = torch.tensor([True, True, False, False, False])
    assert not projected(rows, mask, 2).any()
    twice = torch.cat([torch.ones(2, 9), torch.randn(3, 9)])
    np.testing.assert_allclose(projected(twice, mask, 2), oracle(twice.double().numpy(), [0, 1], 1), atol=1e-6)


def test_equal_budgets_are_never_split() -> None:
    epsilons = torch.tensor([1.0, 8, 2, 8, 8, 0.5, 2, 1, 1, 1])
    assert relaxed(epsilons, 0.1).nonzero()[:, 0].tolist() == [1, 3, 4]
    assert relaxed(epsilons, 0.3).nonzero()[:, 0].tolist() == [1, 3, 4]
    assert relaxed(epsilons, 0.4).nonzero()[:, 0].tolist() == [1, 2, 3, 4, 6]
    assert bool(relaxed(epsilons, 1.0).all())


def test_the_rule_moves_the_model_and_averages_statistics() -> None:
    rows = torch.randn(4, SIZE)
    got = moved(Projected(guides=0.25), gathered(rows))
    np.testing.assert_allclose(got[:-1], oracle(rows[:, :-1].double().numpy(), [2], 1), atol=1e-6)
    assert float(got[-1]) == pytest.approx(float(rows[:, -1].mean()), abs=1e-6)


def test_the_rule_says_what_it_cannot_do() -> None:
    with pytest.raises(SpecError, match=r"rank = 2: of 4 updates 1 are guides"):
        moved(Projected(rank=2), gathered(torch.randn(4, SIZE)))
    with pytest.raises(ProtocolError, match=r"'projected' needs the published budget of every row"):
        moved(Projected(), replace(gathered(torch.randn(4, SIZE)), epsilons=None))
    noised = Gaussian(clip=1, sigma=1)
    with pytest.raises(SpecError, match="mixes the pieces of several"):
        Pipeline(
            privacy=noised, encode=Floats(form="delta"), release=Shuffle(), aggregate=Projected(), place=Relay()
        )  # fmt: skip
    with pytest.raises(SpecError, match="publishes no noise"):
        Pipeline(encode=Floats(form="delta"), aggregate=Projected())
    with pytest.raises(SpecError, match=r"not on encode.form = 'weights'"):
        Pipeline(privacy=noised, aggregate=Projected())
    assert "parameters" in Projected().tolerates()
