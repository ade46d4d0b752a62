"""Tazza's figures on integrity, on small data, and what their scales are."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from tests.pictures import pictures

from croupier.audit.setting import Setting
from croupier.engine.federation import Federation
from croupier.errors import SpecError
from croupier.learn.datasets import Cifar10, Digits, Mnist
from croupier.learn.dp_fit import DpAdam
from croupier.learn.fit import Adam
from croupier.learn.models import Mlp
from croupier.learn.root import Root
from croupier.learn.split import Iid
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.shared.figure import SCALES, Figure, Means
from croupier_lab.papers.shared.reproduce import reproduce
from croupier_lab.papers.tazza import cluster_sweep, combined_defences, integrity_settings, inversion, tradeoff_findings
from croupier_lab.papers.tazza import integrity as tazza_integrity
from croupier_lab.papers.tazza.confidentiality_defences import LPIPS, MATCHED, MIDDLE, NOISE, PRUNING, SHIELDS, UNKNOWN
from croupier_lab.papers.tazza.integrity_settings import FLIP, MNIST, RULES, TAZZA, TRIGGER
from croupier_lab.papers.tazza.inversion import CASES, InversionCase

TINY = Setting(
    Digits(), Iid(clients=10), Mlp(hidden=(8,)), Adam(lr=0.01, epochs=1, batch=256), Federation(rounds=1),
    root=Root(records=20), together=1,
)  # fmt: skip


def found(name: str) -> dict[str, Any]:
    trial = FIGURES[name]
    return reproduce(trial, "smoke", Means(), seeds=2, watch=lambda _: None)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (combined_defences, cluster_sweep):
        monkeypatch.setattr(module, "setting", lambda *_: TINY)
    monkeypatch.setattr(tazza_integrity, "twenty", lambda *_: TINY)
    made = {"cifar10": pictures("cifar10", 3, 32), "mnist": pictures("mnist", 1, 28)}
    monkeypatch.setattr(Cifar10, "load", lambda *_: made["cifar10"])
    monkeypatch.setattr(Mnist, "load", lambda *_: made["mnist"])
    few = {"smoke": (InversionCase("MNIST / MLP", Mnist(), Mlp(hidden=(32,)), None, 2),)}
    monkeypatch.setattr(inversion, "CASES", few)
    monkeypatch.setattr(inversion, "TRAINED", {"smoke": (200, 0)})


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
        assert tradeoff_findings.draw12(rows).count(f">{tradeoff_findings.UPWARD}</text>") == 3
    if name.endswith("figure10"):
        assert all(row["purity"] == "-" for row in rows if row["attack"] == "no attack" or row["rule"] != "Tazza")
        assert sum(row["purity"] != "-" for row in rows) == 2
        check_figure10(got)
    if name.endswith("figure13"):
        (noise, samples) = [
            row for row in rows if row["attack"] == TRIGGER and row["probes"] in ("noise", "clients' samples")
        ]
        # Labels that tell the two runs apart: everybody's is 7 by noise, and 8 by samples.
        noise["_map"], samples["_map"] = ([dict.fromkeys(noise["_map"][0], label)] for label in (7, 8))
        drawn = tazza_integrity.draw13(rows)
        assert drawn.startswith("<svg")
        assert "probes: clients' samples" in html.unescape(drawn)
        assert (drawn.count("-cluster-7"), drawn.count("-cluster-8")) == (0, 10)


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
    drawn = tradeoff_findings.draw10(got["rows"])
    count = {mark: drawn.count(f'id="{mark}-0-') for mark in ("triangle", "circle", "square", "diamond", "ring")}
    assert count["triangle"] + count["square"] + count["diamond"] > count["circle"] + count["ring"]
    assert all(count.values())
    assert all(f">{word}</text>" in drawn for word in ("pruning 90%", "DP-SGD M", "rule matched", "Multi-Krum"))


def test_defences_are_mounted_where_they_are_affordable() -> None:
    assert combined_defences.mounted(MNIST, "small") == MIDDLE
    assert combined_defences.mounted(MNIST, "paper") == (*PRUNING, *NOISE)
    assert combined_defences.mounted(integrity_settings.ECG, "paper") == MIDDLE
    assert set(combined_defences.guarded("small")) == set(RULES) - {TAZZA}
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
        assert {combined_defences.CALLED[case] for case in integrity_settings.SIZES[scale].cases} <= known[scale]
    assert {label for label, _ in LPIPS} <= known["paper"]
    assert {name for _, name in LPIPS} <= {shield.label for shield in SHIELDS}
    assert set(combined_defences.PERMUTED) == {UNKNOWN, MATCHED}


def test_one_case_can_be_asked_for() -> None:
    assert combined_defences.chosen("paper", Means(only="Mixer")) == [integrity_settings.MIXER]
    trial, other = FIGURES["tazza/figure10"], FIGURES["tazza/clusters"]
    with pytest.raises(SpecError, match="--only = 'Mixer': no case of tazza/figure10 holds that"):
        reproduce(trial, "smoke", Means(only="Mixer"), watch=lambda _: None)
    with pytest.raises(SpecError, match="tazza/clusters has no cases"):
        reproduce(other, "smoke", Means(only="Mixer"), watch=lambda _: None)


def test_the_figures_can_be_cut_short_and_the_others_refuse() -> None:
    assert integrity_settings.setting(integrity_settings.MIXER, "paper", Means(rounds=20)).plan.rounds == 20
    assert integrity_settings.setting(integrity_settings.MIXER, "paper", Means()).plan.rounds == 50
    other = FIGURES["tazza/clusters"]
    with pytest.raises(SpecError, match="--rounds = 2: tazza/clusters has a length of its own"):
        reproduce(other, "smoke", Means(rounds=2), watch=lambda _: None)


def test_a_scale_tells_its_own_substitutions_alone() -> None:
    trial = Figure(
        "x", "x", "x", "x", lambda *_: [], {"smoke": 1, "small": 1, "paper": 1}, ("smoke: a", "small: b", "paper is c")
    )
    told = {scale: reproduce(trial, scale, Means(), watch=lambda _: None)["substitutions"] for scale in SCALES}
    assert told == {"smoke": ["smoke: a", "paper is c"], "small": ["small: b", "paper is c"], "paper": ["paper is c"]}


def test_the_paper_scale_is_the_papers() -> None:
    size = integrity_settings.SIZES["paper"]
    assert (size.clients, size.cohort, size.epochs, size.train) == (100, 10, 5, None)
    for case in size.cases:
        made = integrity_settings.setting(case, "paper", Means())
        assert (made.share, made.split.alpha, made.fit.lr, made.fit.batch) == (0.25, 0.5, 1e-3, 64)  # type: ignore[attr-defined]
    for scale in SCALES:
        known = integrity_settings.twenty(scale, Means())
        assert known.share == 0.5
        assert known.plan.cohort is None
        for one in integrity_settings.SIZES[scale].cases:
            integrity_settings.setting(one, scale, Means())
    assert all(count >= 3 for count in integrity_settings.SEEDS.values())


def test_every_choice_is_another_one() -> None:
    choices = cluster_sweep.CHOICES
    assert len({(one.rule, one.probes) for one in choices}) == len({one.name for one in choices}) == len(choices)
    assert set(cluster_sweep.FEWER) <= {one.name for one in choices}
