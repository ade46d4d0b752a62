"""The server's rate is tuned on its root records alone, clean and attacked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from croupier.learn.data import Data, TensorRecords
from croupier.learn.datasets import Digits
from croupier.learn.split import Iid
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.rain import server_rate
from croupier_lab.papers.rain.clear_rounds import ClearTask, TrainingTerms, play
from croupier_lab.papers.rain.rules import EQUAL
from croupier_lab.papers.rain.server_rate import FOLDS, RATES, SHARES, Practice, ServerRateSize, best, practice
from croupier_lab.papers.shared.figure import Means, Scale
from croupier_lab.papers.shared.reproduce import reproduce


@pytest.fixture(scope="module")
def ground() -> ClearTask:
    return ClearTask.of(Digits().load(None), Iid(clients=6), (8,), seed=3, root=100)


def rows_of(records: TensorRecords) -> set[bytes]:
    return {row.numpy().tobytes() for row in records.x.flatten(1)}


def test_a_practice_federation_is_made_of_root_records_alone(ground: ClearTask) -> None:
    root = TensorRecords(ground.train.x[ground.root], ground.train.y[ground.root])
    held = []
    for fold in range(FOLDS):
        made = practice(ground, fold)
        assert len(made.shards) == 6
        assert rows_of(made.train) | rows_of(made.test) <= rows_of(root)
        assert not rows_of(made.train) & rows_of(made.test), "what scores has not trained"
        owned = torch.cat([made.root, *made.shards])
        assert len(set(owned.tolist())) == len(owned), "a record has one owner, who may change it"
        assert len(made.root) + len(made.test) == 100
        held.append(made.test.x)
    assert rows_of(TensorRecords(torch.cat(held), torch.zeros(100))) == rows_of(root)


def test_no_other_record_has_a_part_in_the_choice(ground: ClearTask) -> None:
    blind = replace(ground, test=TensorRecords(torch.zeros_like(ground.test.x), torch.zeros_like(ground.test.y)))
    others = torch.ones(len(ground.train), dtype=torch.bool)
    others[ground.root] = False
    x = ground.train.x.clone()
    x[others] = 0
    blind = replace(blind, train=TensorRecords(x, ground.train.y))
    terms = TrainingTerms(rounds=3, batch=8, every=3)
    one, two = (play(practice(where, 1), EQUAL, terms).curve for where in (ground, blind))
    assert one == two


def test_the_rate_whose_worst_scene_does_best() -> None:
    assert best({0.1: [0.9, 0.2], 0.2: [0.7, 0.6], 0.3: [0.65, 0.6]}) == 0.2
    assert best({0.1: [0.5, 0.5], 0.2: [0.5, 0.5]}) == 0.1


def test_the_trial_runs_and_says_what_it_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    def digits(name: str, scale: Scale) -> Data:
        return Digits()

    monkeypatch.setattr(server_rate, "datum", digits)
    monkeypatch.setitem(
        server_rate.SIZES, "smoke", ServerRateSize(6, (8,), TrainingTerms(rounds=3, batch=8, every=3), "tiny")
    )
    entry = FIGURES["rain/rate"]
    found = reproduce(entry, "smoke", Means(), seeds=2, watch=lambda said: None)
    assert json.loads(json.dumps(found)) == found
    assert [row["rate"] for row in found["rows"]] == list(RATES)
    (chosen,) = (row for row in found["rows"] if row["chosen"])
    assert chosen["rate"] == best({row["rate"]: row["_root"] for row in found["rows"]})
    assert all(len(row["_root"]) == len(row["_test"]) == len(SHARES) for row in found["rows"])
    assert sum(row["seeds_that_would"] for row in found["rows"]) == 2
    assert f"{chosen['rate']:g}" in found["says"][0]


def test_every_part_of_every_seed_is_practised() -> None:
    place = Practice(Digits(), 6, (8,), Means(), tuple(range(2 * FOLDS)))
    assert len(place.grounds) == 2 * FOLDS
    assert len({ground.test.x.numpy().tobytes() for ground in place.grounds}) == 2 * FOLDS
