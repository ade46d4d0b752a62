"""Tazza's figures on integrity, on small data, and what their scales are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from croupier.audit.integrity import Setting
from croupier.federate import Federation
from croupier.learn.datasets import Digits
from croupier.learn.fit import Adam
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Iid
from croupier.papers import ENTRIES, tazza_arms, tazza_clusters, tazza_integrity
from croupier.papers.entry import SCALES, Means, Trial, tried

TINY = Setting(
    Digits(), Iid(clients=10), Mlp(hidden=(8,)), Adam(lr=0.01, epochs=1, batch=32), Federation(rounds=1),
    root=Root(records=20),
)  # fmt: skip


def found(name: str) -> dict[str, Any]:
    trial = ENTRIES[name]
    assert isinstance(trial, Trial)
    return tried(trial, "smoke", Means(), seeds=2, watch=lambda _: None)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tazza_integrity, tazza_clusters):
        monkeypatch.setattr(module, "setting", lambda *_: TINY)
    monkeypatch.setattr(tazza_integrity, "twenty", lambda *_: TINY)


@pytest.mark.parametrize("name", ["tazza/figure10", "tazza/figure12", "tazza/figure13", "tazza/clusters"])
def test_a_trial_gives_plain_rows_that_read_alike(name: str) -> None:
    got = found(name)
    rows = got["rows"]
    assert json.loads(json.dumps(got)) == got
    assert all(list(row) == list(rows[0]) for row in rows)
    assert all("paper" in row and "_marks" in row for row in rows)
    assert got["says"]
    if name.endswith("figure12"):
        assert all((row["backdoor_success"] == "-") == (row["attack"] == "noise injection") for row in rows)
    if name.endswith("figure10"):
        assert all(row["purity"] == "-" for row in rows if row["attack"] == "no attack" or row["rule"] != "Tazza")
        assert sum(row["purity"] != "-" for row in rows) == 1
    if name.endswith("figure13"):
        drawn = tazza_integrity.draw13(rows)
        assert drawn.startswith("<svg")
        assert drawn.count("<rect") == 10


def test_the_paper_scale_is_the_papers() -> None:
    size = tazza_arms.SIZES["paper"]
    assert (size.clients, size.cohort, size.epochs, size.train) == (100, 10, 5, None)
    for case in size.cases:
        made = tazza_arms.setting(case, "paper", Means())
        assert (made.share, made.split.alpha, made.fit.lr, made.fit.batch) == (0.25, 0.5, 1e-3, 64)  # type: ignore[attr-defined]
    for scale in SCALES:
        known = tazza_arms.twenty(scale, Means())
        assert known.share == 0.5
        assert known.plan.cohort is None
        for one in tazza_arms.SIZES[scale].cases:
            tazza_arms.setting(one, scale, Means())
    assert all(count >= 3 for count in tazza_arms.SEEDS.values())


def test_every_choice_is_another_one() -> None:
    choices = tazza_clusters.CHOICES
    assert len({(one.rule, one.probes) for one in choices}) == len({one.name for one in choices}) == len(choices)
    assert set(tazza_clusters.FEWER) <= {one.name for one in choices}
