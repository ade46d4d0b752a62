"""IntraShuffler's tables and figures of attacks on a tiny audit: whole rows, computed sentences, pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from croupier.audit import profile
from croupier.audit.profile import LOUD, NOISES
from croupier.audit.setting import Setting
from croupier.audit.sights import VIEWS
from croupier.federation import Federation
from croupier.learn.datasets import Digits
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp
from croupier.learn.split import Dirichlet
from croupier.privacy.tiers import Tiers
from croupier.runtime.local import Local
from croupier_lab.papers import ENTRIES, intra_figures, intra_profile, intra_said, intra_scenes, plots
from croupier_lab.papers.entry import SCALES, Means, Trial, tried
from croupier_lab.papers.intra_board import ABSENT
from croupier_lab.papers.intra_scenes import ROW, Audited, Scene, arms, audited, joined

TABLES = ("table1", "table2", "table5", "table10", "table11")
FIGURES = tuple(f"figure{number}" for number in range(2, 8))
WATCH: Any = lambda _: None  # noqa: E731


def tiny(_: Any) -> profile.Tiered:
    setting = Setting(
        Digits(), Dirichlet(clients=24, alpha=0.1, least=5), Mlp(hidden=(8,)), Sgd(lr=0.1, batch=16),
        Federation(rounds=2, cohort=10),
    )  # fmt: skip
    return profile.Tiered(setting, Tiers(clip=1.0), smallest=4, every=2)


SCENE = Scene("digits", "MLP", tiny)


@pytest.fixture(scope="module")
def found() -> Audited:
    seeds = profile.run(tiny("smoke"), [0, 1], Local(), views=VIEWS)
    return Audited(SCENE, ("digits", "MLP"), 1.0, tuple(seeds), tuple(arms(seeds)))


@pytest.fixture
def told(found: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(scene: Scene, scale: Any, *_: Any) -> Audited:
        return replace(found, scene=replace(SCENE, views=scene.views), named=scene.named(scale))

    monkeypatch.setattr(intra_profile, "audited", told)
    monkeypatch.setattr(intra_figures, "audited", told)


def trial(name: str) -> Trial:
    entry = ENTRIES[f"intra/{name}"]
    assert isinstance(entry, Trial)
    return entry


@pytest.mark.parametrize("name", [*TABLES, *FIGURES])
def test_every_entry_is_whole(told: None, name: str) -> None:
    entry = trial(name)
    made = tried(entry, "smoke", Means(), seeds=2, watch=WATCH)
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
    rows = tried(trial("table2"), "smoke", Means(), seeds=2, watch=WATCH)["rows"]
    by = {(row["noise"], row["view"]): row["paper"] for row in rows}
    assert by[LOUD, intra_said.INTRA].startswith("0.15 / 0.05 / 0.33 / 0.06 (Table 2")
    assert by["tiers", intra_said.ROWS].startswith("0.42 / 0.21 / 0.78 / 0.41 (Table 2")
    assert by[LOUD, "bucket sums"] == "-"
    rows = tried(trial("table11"), "smoke", Means(), seeds=2, watch=WATCH)["rows"]
    assert {row["data"] for row in rows} == {"digits (for CIFAR-10), IID", "digits (for CIFAR-10), non-IID"}


def test_marks_in_words() -> None:
    mark = {"rate": 0.5, "low": 0.4, "high": 0.6, "prior": 0.25, "control": False, "above": {"low": 0.1}}
    assert intra_said.marked(mark) == "0.500 ± 0.100* (0.250)"
    assert intra_said.marked(None) == intra_said.marked({"rate": None}) == "-"
    assert intra_said.alike(-0.0001) == "0.000"
    assert not intra_said.above(mark)
    assert intra_said.above(mark | {"control": True})
    words = intra_said.nothing(
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
    monkeypatch.setattr(intra_scenes, "_KEPT", {})

    def heard(*given: Any) -> Audited:
        calls.append(given)
        return found

    monkeypatch.setattr(intra_scenes, "_audited", heard)
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
    clip = profile.public_clip(tiny("smoke"), 0)
    assert clip == profile.public_clip(tiny("smoke"), 0)
    assert 0.05 < clip < 5


def test_sketches_agree_with_their_marks(found: Audited) -> None:
    for one in found.seeds[0].found:
        asked = sum(count for count, _, _ in one.sketch.linked.values())
        name = next((key for key in one.marks if key == ROW), "linked to its owner's bucket (centred)")
        if asked and name in one.marks:
            assert sum(hit for _, hit, _ in one.sketch.linked.values()) / asked == pytest.approx(one.marks[name])
        assert all(-1 <= value <= 1.000001 for value in one.sketch.clients.values())
        if one.view != "sums":
            assert len(one.sketch.spots["dominant"]) == 20


def test_scenes_are_whole_at_every_scale() -> None:
    for scene in (intra_scenes.HOUSEHOLDS, intra_scenes.ACTIVITY, intra_scenes.EVEN, intra_scenes.SKEWED):
        for scale in SCALES:
            tiered = scene.tiered(scale)
            assert (tiered.setting.plan.cohort or 0) >= 2 * tiered.smallest
            assert tiered.privacy.tiers == (0.5, 1, 2, 4, 8)
    paper = intra_scenes.HOUSEHOLDS.tiered("paper").setting
    assert (paper.plan.rounds, paper.plan.cohort, paper.data.households) == (50, 20, 269)  # type: ignore[attr-defined]


def test_pictures_escape_and_clamp() -> None:
    drawn = plots.lines(
        {"a < b": {"x": [("1", {"rate": 1.7, "prior": -0.2, "low": 0.1, "high": 0.3})]}}, "t & u", "round"
    )
    assert "a &lt; b" in drawn
    assert "t &amp; u" in drawn
    ElementTree.fromstring(drawn)
    ElementTree.fromstring(plots.spots({"empty": ([], ["a"]), "one": ([[0.0, 1.0, 0]], ["a"])}, "t"))
