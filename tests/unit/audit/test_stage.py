"""One run's data: what is withheld is told to nobody, and what was trained once is not trained again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from croupier.audit.setting import Setting
from croupier.audit.stage import Stage
from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.engine.federation import Federation
from croupier.errors import CroupierError, RangeError
from croupier.learn.datasets import Digits
from croupier.learn.distort import CLEAN
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.remembered import Remembered
from croupier.learn.split import Dirichlet

SETTING = Setting(
    Digits(), Dirichlet(clients=8, alpha=0.5, least=20), Mlp(hidden=(16,)), Sgd(lr=0.1, epochs=1),
    Federation(rounds=1), records=20,
)  # fmt: skip


def test_remembered_is_by_start_records_and_coins() -> None:
    layout = Layout((Slice("w", (2,), "weight"),))
    calls: list[int] = []

    def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        calls.append(len(jobs))
        return [
            RangeError("diverged") if job[1] == "bad" else Update(job[0] + len(calls), layout, {}) for job in jobs
        ]  # fmt: skip

    one, two = Coins.from_seed(1), Coins.from_seed(2)
    start, other = torch.zeros(2), torch.ones(2)
    remembered = Remembered(fit)
    first = remembered([(start, "a", one), (start, "bad", one)])
    again = remembered([(start, "bad", one), (start.clone(), "a", Coins.from_seed(1))])
    assert calls == [2]
    assert again[1] is first[0]
    assert again[0] is first[1]
    # One that is new: all train again, because who trains stacked must not depend on what is remembered.
    remembered([(start, "a", one), (start, "b", one)])
    assert calls == [2, 2]
    remembered([(other, "a", one), (start, "a", two)])
    assert calls == [2, 2, 2]
    assert list(remembered([])) == []
    small = Remembered(fit, room=first[0].vector.nbytes - 1)  # type: ignore[union-attr]
    small([(start, "a", one)])
    small([(start, "a", one)])
    assert calls == [2, 2, 2, 1, 1]


def test_the_truth_of_a_round_concerns_its_clients() -> None:
    one = Stage(SETTING, Coins.from_seed(3))
    present = ("c1", "c4", "c6")
    known, truth = one.about(present, CLEAN)
    assert known.clients == present
    assert torch.equal(torch.bincount(truth.owners), torch.full((3,), SETTING.records))
    train = one.made.dataset.train
    for place, who in enumerate(present):
        own = {row.numpy().tobytes() for row in train.batch(one.held.training[who])[0]}
        assert {row.numpy().tobytes() for row in known.records[0][truth.owners == place]} <= own
        assert torch.equal(known.shadows[place][0], train.batch(one.held.shadows[who])[0])
