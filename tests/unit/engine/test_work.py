"""Work that parties ask for: a second attempt is answered with the same update, and a long run holds no old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import LAYOUT, task

from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.encode.permuting import MOST, Permuting
from croupier.engine.work import RoundWork
from croupier.errors import CroupierError


def work(most: int | None) -> tuple[RoundWork, list[int]]:
    """Work on the toy, and how many were trained at each call."""
    trained: list[int] = []
    made = task()

    def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        trained.append(len(jobs))
        return made.fit(jobs)

    return RoundWork(PIPELINES["rows behind a relay"], replace(made, fit=fit), most), trained


def jobs(number: int) -> list[tuple[Any, ...]]:
    """One client's training in one round."""
    made = task()
    return [(torch.full((LAYOUT.size,), float(number)), made.shards["c0"], Coins.from_seed(number))]


def test_a_second_attempt_takes_the_same_update() -> None:
    for most in (None, 1):
        mine, trained = work(most)
        (first,), (again,) = mine.fit(jobs(1)), mine.fit(jobs(1))
        assert first is again
        assert trained == [1]


def test_a_party_of_its_own_keeps_the_last_fit_alone() -> None:
    mine, trained = work(1)
    for number in range(5):
        mine.fit(jobs(number))
    assert len(mine.fits) == 1
    mine.fit(jobs(4))
    assert trained == [1] * 5


def test_rules_are_kept_for_a_while_and_no_longer() -> None:
    symmetry = task().symmetry
    assert symmetry is not None
    permuting, vector = Permuting(symmetry), torch.arange(float(LAYOUT.size))
    moved = [permuting.moved(vector, bytes(32), number, False) for number in range(3 * MOST)]
    assert len(permuting.known) == MOST
    # One that was forgotten is the same when it is asked for again.
    assert torch.equal(permuting.moved(vector, bytes(32), 0, False), moved[0])
    assert torch.equal(permuting.moved(moved[0], bytes(32), 0, True), vector)
