"""Tazza's figures on integrity, on small data, and what their scales are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pictures import pictures

from croupier.audit.setting import Setting
from croupier.errors import SpecError
from croupier.federation import Federation
from croupier.learn.datasets import Cifar10, Digits, Mnist
from croupier.learn.fit import Adam, DpAdam
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Iid
from croupier_lab.papers import (
    ENTRIES,
    tazza_arms,
    tazza_clusters,
    tazza_confidential,
    tazza_integrity,
    tazza_overall,
    tazza_tradeoff,
)
from croupier_lab.papers.cluster_map import GREY, cluster_map
from croupier_lab.papers.entry import SCALES, Means, Trial, tried
from croupier_lab.papers.tazza_arms import FLIP, MNIST, RULES, TAZZA
from croupier_lab.papers.tazza_confidential import CASES, Case
from croupier_lab.papers.tazza_shields import LPIPS, MATCHED, MIDDLE, NOISE, PRUNING, SHIELDS, UNKNOWN

TINY = Setting(
    Digits(), Iid(clients=10), Mlp(hidden=(8,)), Adam(lr=0.01, epochs=1, batch=256), Federation(rounds=1),
    root=Root(records=20), together=1,
)  # fmt: skip


def found(name: str) -> dict[str, Any]:
    trial = ENTRIES[name]
    assert isinstance(trial, Trial)
    return tried(trial, "smoke", Means(), seeds=2, watch=lambda _: None)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tazza_overall, tazza_clusters):
        monkeypatch.setattr(module, "setting", lambda *_: TINY)
    monkeypatch.setattr(tazza_integrity, "twenty", lambda *_: TINY)
    made = {"cifar10": pictures("cifar10", 3, 32), "mnist": pictures("mnist", 1, 28)}
    monkeypatch.setattr(Cifar10, "load", lambda *_: made["cifar10"])
    monkeypatch.setattr(Mnist, "load", lambda *_: made["mnist"])
    few = {"smoke": (Case("MNIST / MLP", Mnist(), Mlp(hidden=(32,)), None, 2),)}
    monkeypatch.setattr(tazza_confidential, "CASES", few)
    monkeypatch.setattr(tazza_confidential, "TRAINED", {"smoke": (200, 0)})


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
        assert sum(row["defence"] == "DP-SGD M" for row in rows) == 3 * 2
        assert "behind DP-SGD M" in got["says"][0]
        assert tazza_tradeoff.draw12(rows).count("rotate(-90)") == 3
    if name.endswith("figure10"):
        assert all(row["purity"] == "-" for row in rows if row["attack"] == "no attack" or row["rule"] != "Tazza")
        assert sum(row["purity"] != "-" for row in rows) == 2
        check_figure10(got)
    if name.endswith("figure13"):
        drawn = tazza_integrity.draw13(rows)
        assert drawn.startswith("<svg")
        assert drawn.count("<rect") == 10


def check_figure10(got: dict[str, Any]) -> None:
    """Every point of the figure, one defence with one distance, and Tazza's two with one accuracy."""
    rows = [row for row in got["rows"] if row["attack"] == FLIP]
    at = {(row["rule"], row["defence"]): row for row in rows}
    assert len(at) == len(rows) == len(RULES) + 1 + 2 * len(MIDDLE)
    for rule in ("FedAvg", "Median"):
        assert {name for one, name in at if one == rule} == {"none", "pruning 90%", "DP-SGD M"}
    for name in ("none", "pruning 90%", "DP-SGD M"):
        assert len({row["feature_distance"] for (_, defence), row in at.items() if defence == name}) == 1
    unknown, matched = at[TAZZA, "permuted, rule unknown"], at[TAZZA, "permuted, rule matched"]
    assert unknown["_marks"] == matched["_marks"]
    # A rule that is matched hides nothing, as no defence does; noise and a rule nobody looks for do.
    assert matched["_psnr"]["mean"] == pytest.approx(at["FedAvg", "none"]["_psnr"]["mean"], rel=0.2)
    assert matched["_psnr"]["mean"] > 50 > 20 > unknown["_psnr"]["mean"]
    assert at["FedAvg", "DP-SGD M"]["_distance"]["mean"] > matched["_distance"]["mean"]
    assert (unknown["paper_lpips"], matched["paper_lpips"]) == ("0.75", "-")
    assert [said for said in got["says"] if "pruning 90%" in said and "behind it" in said]
    assert [said for said in got["says"] if "once it matches weights" in said]
    drawn = tazza_tradeoff.draw10(got["rows"])
    assert drawn.count("<polygon") - drawn.count("<circle") > 0
    assert all(f">{word}</text>" in drawn for word in ("pruning 90%", "DP-SGD M", "rule matched", "Multi-Krum"))


def test_defences_are_mounted_where_they_are_affordable() -> None:
    assert tazza_overall.mounted(MNIST, "small") == MIDDLE
    assert tazza_overall.mounted(MNIST, "paper") == (*PRUNING, *NOISE)
    assert tazza_overall.mounted(tazza_arms.ECG, "paper") == MIDDLE
    assert set(tazza_overall.guarded("small")) == set(RULES) - {TAZZA}
    plain = Adam(lr=1e-3, epochs=5, batch=64)
    for shield in SHIELDS:
        fit = shield.fit(plain)
        assert (fit.lr, fit.epochs, fit.batch) == (1e-3, 5, 64)
        assert (fit.use == "dp-adam") == (shield.kind == "noise")
    pruned = [shield.fit(plain) for shield in PRUNING]
    assert [one.keep for one in pruned if isinstance(one, Adam)] == pytest.approx([0.3, 0.1, 0.01])
    noisy = [shield.fit(plain) for shield in NOISE]
    assert [(one.noise, one.clip) for one in noisy if isinstance(one, DpAdam)] == [(2, 4), (4, 4), (8, 4)]


def test_every_case_of_the_figures_has_its_inversion() -> None:
    known = {scale: {case.label for case in cases} for scale, cases in CASES.items()}
    for scale in SCALES:
        assert {tazza_overall.CALLED[case] for case in tazza_arms.SIZES[scale].cases} <= known[scale]
    assert {label for label, _ in LPIPS} <= known["paper"]
    assert {name for _, name in LPIPS} <= {shield.label for shield in SHIELDS}
    assert set(tazza_overall.PERMUTED) == {UNKNOWN, MATCHED}


def test_one_case_can_be_asked_for() -> None:
    assert tazza_overall.chosen("paper", Means(only="Mixer")) == [tazza_arms.MIXER]
    trial, other = ENTRIES["tazza/figure10"], ENTRIES["tazza/clusters"]
    assert isinstance(trial, Trial)
    assert isinstance(other, Trial)
    with pytest.raises(SpecError, match="--only = 'Mixer': no case of tazza/figure10 holds that"):
        tried(trial, "smoke", Means(only="Mixer"), watch=lambda _: None)
    with pytest.raises(SpecError, match="tazza/clusters has no cases"):
        tried(other, "smoke", Means(only="Mixer"), watch=lambda _: None)


def test_the_figures_can_be_cut_short_and_the_others_refuse() -> None:
    assert tazza_arms.setting(tazza_arms.MIXER, "paper", Means(rounds=20)).plan.rounds == 20
    assert tazza_arms.setting(tazza_arms.MIXER, "paper", Means()).plan.rounds == 50
    other = ENTRIES["tazza/clusters"]
    assert isinstance(other, Trial)
    with pytest.raises(SpecError, match="--rounds = 2: tazza/clusters has a length of its own"):
        tried(other, "smoke", Means(rounds=2), watch=lambda _: None)


def test_a_scale_tells_its_own_substitutions_alone() -> None:
    trial = Trial(
        "x", "x", "x", "x", lambda *_: [], {"smoke": 1, "small": 1, "paper": 1}, ("smoke: a", "small: b", "paper is c")
    )
    told = {scale: tried(trial, scale, Means(), watch=lambda _: None)["substitutions"] for scale in SCALES}
    assert told == {"smoke": ["smoke: a", "paper is c"], "small": ["small: b", "paper is c"], "paper": ["paper is c"]}


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


def test_the_map_has_a_square_for_everybody_present_and_grey_for_the_lonely() -> None:
    rounds = [{"a": 0, "b": 0, "x": 1}, {"a": 0, "x": 1}]
    drawn = cluster_map(rounds, ["a", "b"], ["x"], "a < b")
    assert drawn.count("<rect") == 5
    assert drawn.count(f'fill="{GREY}"') == 2
    assert "a &lt; b" in drawn
    assert "cluster 1" in drawn
