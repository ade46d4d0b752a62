"""IntraShuffler's tables and figures of attacks on a tiny audit: whole rows, computed sentences, pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from croupier.audit.setting import Setting
from croupier.audit.traits.tiers import TieredSetting
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.privacy.tiers import Tiers
from croupier_lab.attacks.tiers.experiment import LOUD, NOISES, VIEWS, public_clip, run
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.intra import attack_figures, attack_findings, attack_settings, attack_tables
from croupier_lab.papers.intra.attack_settings import ROW, AttackSetting, Audited, arms, audited, joined
from croupier_lab.papers.intra.utility_table import ABSENT
from croupier_lab.papers.shared.figure import SCALES, Figure, Means
from croupier_lab.papers.shared.reproduce import reproduce

TABLES = ("table1", "table2", "table5", "table10", "table11")
PICTURES = tuple(f"figure{number}" for number in range(2, 8))
WATCH: Any = lambda _: None  # noqa: E731


def tiny(_: Any) -> TieredSetting:
    setting = Setting(
        Digits(), Dirichlet(clients=24, alpha=0.1, least=5), Mlp(hidden=(8,)), Sgd(lr=0.1, batch=16),
        Federation(rounds=2, cohort=10),
    )  # fmt: skip
    return TieredSetting(setting, Tiers(clip=1.0), smallest=4, every=2)


SCENE = AttackSetting("digits", "MLP", tiny)


@pytest.fixture(scope="module")
def found() -> Audited:
    seeds = run(tiny("smoke"), [0, 1], Local(), views=VIEWS)
    return Audited(SCENE, ("digits", "MLP"), 1.0, tuple(seeds), tuple(arms(seeds)))


@pytest.fixture
def told(found: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(scene: AttackSetting, scale: Any, *_: Any) -> Audited:
        return replace(found, scene=replace(SCENE, views=scene.views), named=scene.named(scale))

    monkeypatch.setattr(attack_tables, "audited", told)
    monkeypatch.setattr(attack_figures, "audited", told)


def trial(name: str) -> Figure:
    return FIGURES[f"intra/{name}"]


@pytest.mark.parametrize("name", [*TABLES, *PICTURES])
def test_every_entry_is_whole(told: None, name: str) -> None:
    entry = trial(name)
    made = reproduce(entry, "smoke", Means(), seeds=2, watch=WATCH)
    assert json.loads(json.dumps(made)) == made
    rows = made["rows"]
    assert all(list(row) == list(rows[0]) for row in rows)
    ran = [row for row in rows if row["_marks"]]
    assert {row["noise"] for row in ran} >= {LOUD, "tiers"}
    assert {row["model"] for row in rows if not row["_marks"]} <= {ABSENT}
    assert all("±" in text for row in ran for text in [row[next(iter(row["_marks"]))]] if text != "-")
    assert any("Table" in str(row["paper"]) or "Figure" in str(row["paper"]) or "drawn" in row["paper"] for row in rows)
    assert any("true epsilons" in said for said in made["says"])
    assert made["substitutions"]
    assert min(entry.seeds.values()) >= 3
    if entry.draw is not None:
        assert ElementTree.fromstring(entry.draw(rows)).tag.endswith("svg")
    assert (entry.draw is not None) == name.startswith("figure")


def test_the_papers_numbers_stand_beside_their_arms(told: None) -> None:
    rows = reproduce(trial("table2"), "smoke", Means(), seeds=2, watch=WATCH)["rows"]
    by = {(row["noise"], row["view"]): row["paper"] for row in rows}
    assert by[LOUD, attack_findings.INTRA].startswith("0.15 / 0.05 / 0.33 / 0.06 (Table 2")
    assert by["tiers", attack_findings.ROWS].startswith("0.42 / 0.21 / 0.78 / 0.41 (Table 2")
    assert by[LOUD, "bucket sums"] == "-"
    rows = reproduce(trial("table11"), "smoke", Means(), seeds=2, watch=WATCH)["rows"]
    assert {row["data"] for row in rows} == {"digits (for CIFAR-10), IID", "digits (for CIFAR-10), non-IID"}


def test_marks_in_words() -> None:
    mark = {"rate": 0.5, "low": 0.4, "high": 0.6, "prior": 0.25, "control": False, "above": {"low": 0.1}}
    assert attack_findings.marked(mark) == "0.500 ± 0.100* (0.250)"
    assert attack_findings.marked(None) == attack_findings.marked({"rate": None}) == "-"
    assert attack_findings.alike(-0.0001) == "0.000"
    assert not attack_findings.above(mark)
    assert attack_findings.above(mark | {"control": True})
    words = attack_findings.nothing(
        [
            {
                "noise": "tiers",
                "data": "x",
                "_marks": {"a": mark | {"control": True, "above": {"low": 0.1, "rate": 0.25}}},
            }
        ],
        "cells",
    )
    assert "1 of 1 cells" in words[0]
    assert "0.250 (a)" in words[0]


def test_one_audit_serves_all_and_noises_of_a_seed_join(found: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(attack_settings, "_KEPT", {})

    def heard(*given: Any) -> Audited:
        calls.append(given)
        return found

    monkeypatch.setattr(attack_settings, "_audited", heard)
    for _ in range(2):
        assert audited(SCENE, "smoke", Means(), [0, 1], WATCH) is found
    assert len(calls) == 1
    whole = found.seeds[0]
    parts = [
        replace(
            whole,
            found=tuple(one for one in whole.found if one.noise == noise),
            epsilons={noise: whole.epsilons[noise]},
        )
        for noise in NOISES
    ]
    assert joined(parts) == whole


def test_the_clip_is_public(found: Audited) -> None:
    clip = public_clip(tiny("smoke"), 0)
    assert clip == public_clip(tiny("smoke"), 0)
    assert 0.05 < clip < 5


def test_sketches_agree_with_their_marks(found: Audited) -> None:
    for one in found.seeds[0].found:
        asked = sum(count for count, _, _ in one.sketch.linked.values())
        name = next((key for key in one.measures if key == ROW), "linked to its owner's bucket (centred)")
        if asked and name in one.measures:
            assert sum(hit for _, hit, _ in one.sketch.linked.values()) / asked == pytest.approx(one.measures[name])
        assert all(-1 <= value <= 1.000001 for value in one.sketch.clients.values())
        if one.view != "sums":
            assert len(one.sketch.spots["dominant"]) == 20


def test_scenes_are_whole_at_every_scale() -> None:
    for scene in (attack_settings.HOUSEHOLDS, attack_settings.ACTIVITY, attack_settings.EVEN, attack_settings.SKEWED):
        for scale in SCALES:
            tiered = scene.tiered(scale)
            assert (tiered.setting.plan.cohort or 0) >= 2 * tiered.smallest
            assert tiered.privacy.tiers == (0.5, 1, 2, 4, 8)
    paper = attack_settings.HOUSEHOLDS.tiered("paper").setting
    assert (paper.plan.rounds, paper.plan.cohort, paper.data.households) == (50, 20, 269)  # type: ignore[attr-defined]
