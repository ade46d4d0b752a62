"""Scores: the scoring itself is tested, with guesses that must come out at 1/n."""

from __future__ import annotations

import pytest
import torch

from croupier.audit.score import over_runs
from croupier.audit.source import pick
from croupier.core.coins import Coins
from croupier.errors import RangeError


def test_over_runs_known_values() -> None:
    got = over_runs([0.1, 0.2, 0.3])
    assert (got.rate, got.low, got.high) == pytest.approx((0.2, -0.0484, 0.4484), abs=1e-3)
    with pytest.raises(RangeError, match="more seeds"):
        over_runs([0.5])


@pytest.mark.parametrize("guess", ["constant", "coin"])
def test_guesses_that_know_nothing_score_at_one_in_n(guess: str) -> None:
    rates = []
    for run in range(12):
        truth = torch.arange(10).repeat_interleave(100)
        scores = torch.zeros(10, 1000)
        if guess == "constant":
            scores[3] = 1.0
        guesses = pick(scores, Coins.from_seed(run))
        rates.append(float((guesses == truth).double().mean()))
    got = over_runs(rates)
    assert got.low <= 0.1 <= got.high
    assert got.high - got.low < 0.03
