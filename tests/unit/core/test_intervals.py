"""Scores: the scoring itself, against other libraries, by hand, and with guesses that must come out at 1/n."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sklearn.metrics import roc_auc_score

from croupier.audit.membership import area, caught
from croupier.audit.unshuffle import pick
from croupier.core.coins import Coins
from croupier.core.intervals import Rate, gain, over_runs, share, smooth
from croupier.errors import RangeError
from croupier_lab.bench.leakage.interval_coverage import GOAL, CoverageSize, measure

RUNS = [0.1, 0.2, 0.3]
# Student's t from printed tables: degrees of freedom, doubt on both sides, quantile.
PRINTED = [(1, 0.05, 12.706), (2, 0.05, 4.303), (2, 0.04, 4.849), (2, 0.01, 9.925), (9, 0.05, 2.262), (9, 0.01, 3.250),
           (23, 0.05, 2.069), (29, 0.05, 2.045), (29, 0.01, 2.756)]  # fmt: skip


def test_over_runs_known_values() -> None:
    got = over_runs(RUNS)
    assert (got.rate, got.low, got.high) == pytest.approx((0.2, -0.0484, 0.4484), abs=1e-3)


@pytest.mark.parametrize(("free", "doubt", "quantile"), PRINTED)
def test_over_runs_at_other_doubts(free: int, doubt: float, quantile: float) -> None:
    """Runs at -1 and 1 around a mean: their standard error is known."""
    rates = [0.5 + (-1.0) ** number for number in range(free + 1)]
    mean = sum(rates) / len(rates)
    error = (sum((rate - mean) ** 2 for rate in rates) / free / (free + 1)) ** 0.5
    got = over_runs(rates, doubt)
    assert got.rate == pytest.approx(mean)
    assert (got.high - got.rate) / error == pytest.approx(quantile, abs=1e-3)
    assert (got.rate - got.low) / error == pytest.approx(quantile, abs=1e-3)


def test_less_doubt_is_a_wider_interval() -> None:
    widths = [over_runs(RUNS, doubt).high - over_runs(RUNS, doubt).low for doubt in (0.5, 0.05, 0.04, 0.01, 0.002)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


@pytest.mark.parametrize("rates", [[], [0.5]])
@pytest.mark.parametrize("interval", [over_runs, share, gain, smooth])
def test_an_interval_needs_two_runs(rates: list[float], interval: Callable[[list[float]], Rate]) -> None:
    with pytest.raises(RangeError, match="more seeds"):
        interval(rates)


def test_runs_that_agree_leave_doubt() -> None:
    """Four gains of exactly 0 were shown as 0 to 0: half of the runs might gain 20 points, and four show none."""
    got = gain([0.0] * 4)
    assert got.rate == 0
    assert got.low < -0.1
    assert got.high > 0.1
    assert gain([0.0] * 40).high < 0.03


def test_a_steady_interval_is_student_s_with_two_more_runs() -> None:
    """By hand: runs at 0.2 ± 0.3, and two more at 0.2 ± 0.45; Student's t of three degrees of freedom is 3.182."""
    got = gain([-0.1, 0.5, -0.1 + 1e-9, 0.5 - 1e-9])
    half = 3.182 * ((4 * 0.09 + 2 * 0.2025) / 5 / 4) ** 0.5
    assert (got.rate, got.low, got.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half), abs=1e-3)


@pytest.mark.parametrize("rates", [[1.0] * 3, [0.0, 1.0], [0.98, 0.99, 1.0, 0.4]])
def test_nothing_lies_outside_what_can_be(rates: list[float]) -> None:
    assert 0 <= share(rates).low <= share(rates).high <= 1
    assert 0 <= smooth(rates).low <= smooth(rates).high <= 1
    lost = [-rate for rate in rates]
    assert -1 <= gain(lost).low <= gain(lost).high <= 1


def test_a_steady_interval_is_never_narrower_than_student_s() -> None:
    for rates in ([0.1, 0.2, 0.3], [0.0, 0.0, 0.1, 0.0], [0.5, 0.52, 0.51, 0.48, 0.5]):
        assert gain(rates).low <= over_runs(rates).low
        assert gain(rates).high >= over_runs(rates).high


@pytest.mark.parametrize("runs", [2, 4, 10, 30, 40])
def test_intervals_cover(runs: int) -> None:
    """What `croupier bench coverage` measures, in small; Student's own fails the same law by far."""
    found = measure(CoverageSize(trials=400, runs=(runs,)), 5)
    # Four standard errors below the goal of 93 %: a chance in 30,000 for each law if it is just reached.
    assert found["least"]["chosen"][str(runs)] > GOAL - 4 * (GOAL * (1 - GOAL) / 400) ** 0.5
    assert found["least"]["Student's t"][str(runs)] < 0.8


@pytest.mark.parametrize("guess", ["constant", "coin"])
def test_guesses_that_know_nothing_score_at_one_in_n(guess: str) -> None:
    rates = []
    for run in range(12):
        truth = torch.arange(10).repeat_interleave(100)
        scores = torch.zeros(10, 1000)
        if guess == "constant":
            scores[3] = 1.0
        guesses = pick(scores, Coins.from_seed(run).fast())
        rates.append(float((guesses == truth).double().mean()))
    got = over_runs(rates)
    assert got.low <= 0.1 <= got.high
    assert got.high - got.low < 0.03


@pytest.mark.parametrize("levels", [2, 5, 1000], ids=["two values", "many ties", "few ties"])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_area_is_the_area_under_the_curve(levels: int, shift: int) -> None:
    draw = torch.Generator().manual_seed(levels + shift)
    members = torch.randint(levels, (70,), generator=draw) + shift
    others = torch.randint(levels, (110,), generator=draw)
    truth = torch.cat([torch.ones(70), torch.zeros(110)])
    known = roc_auc_score(truth.numpy(), torch.cat([members, others]).numpy())
    assert area(members.double(), others.double()) == pytest.approx(float(known), abs=1e-12)


def test_area_at_its_ends() -> None:
    low, high = torch.zeros(5, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    assert (area(high, low), area(low, high), area(low, low)) == (1.0, 0.0, 0.5)


def test_caught_by_hand() -> None:
    """200 others at 0 to 199: two false alarms are allowed, so the bar is 197 and only what is above it is caught."""
    others = torch.arange(200.0)[torch.randperm(200, generator=torch.Generator().manual_seed(1))]
    assert caught(torch.tensor([196.0, 197.0, 197.5, 300.0]), others) == 0.5
    assert caught(torch.tensor([189.0, 189.5, 198.0, 300.0]), others, 0.05) == 0.75
    # Fewer than a hundred others allow no false alarm at all.
    assert caught(torch.tensor([98.0, 97.5, 99.0, 0.0]), torch.arange(99.0)) == 0.25
    # Whoever says the same of all catches nobody.
    assert caught(torch.ones(4), torch.ones(200)) == 0.0


def test_caught_accuses_no_more_than_allowed() -> None:
    draw = torch.Generator().manual_seed(7)
    for count in (50, 100, 250, 999):
        others = torch.randint(40, (count,), generator=draw).double()
        # The others themselves as members: what is caught is what is falsely accused.
        assert caught(others, others) <= 0.01
        assert caught(others, others, 0.1) <= 0.1
