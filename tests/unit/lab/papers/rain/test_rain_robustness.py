"""RAIN's figures with tiny settings: whole rows, sentences that are computed, and a picture that holds every line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.shell import Shell

from croupier.audit.poison import LabelFlip
from croupier.errors import SpecError
from croupier.learn.data import Data
from croupier.learn.datasets import Digits
from croupier_lab.attacks.poisoning import Copy, Dpfl
from croupier_lab.papers.catalogue import FIGURES
from croupier_lab.papers.rain import malicious_shares, robustness
from croupier_lab.papers.rain.baseline_rules import KRUM
from croupier_lab.papers.rain.clear_rounds import TrainingTerms
from croupier_lab.papers.rain.repeated_runs import AttackedRun, RunPlace, RunsOverSeeds
from croupier_lab.papers.rain.robustness import RobustnessSize, local_epsilon, noised
from croupier_lab.papers.rain.rules import EQUAL, HIDDEN, PRINTED, ROOT_ONLY
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.shared.reproduce import reproduce

NAMES = ["rain/figure3", "rain/figure4", "rain/figure5", "rain/figure6", "rain/figure6-skewed"]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> TrainingTerms:
    """Digits, ten clients, a few rounds."""

    def digits(name: str, scale: Scale) -> Data:
        return Digits()

    terms = TrainingTerms(rounds=4, batch=8, every=1)
    monkeypatch.setattr(robustness, "datum", digits)
    monkeypatch.setitem(robustness.SIZES, "smoke", RobustnessSize(10, (8,), None, None, terms, (0.5, 0.9), "tiny"))
    return terms


def trial(name: str) -> Figure:
    return FIGURES[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_runs_and_is_whole(tiny: TrainingTerms, name: str) -> None:
    heard: list[str] = []
    found = reproduce(trial(name), "smoke", Means(), seeds=2, watch=heard.append)
    assert json.loads(json.dumps(found)) == found
    rows = found["rows"]
    assert rows
    assert all(list(row) == list(rows[0]) for row in rows)
    assert any(row.get("paper", row.get("paper_after")) != "-" for row in rows)
    assert found["says"]
    assert heard
    assert any("read from its text" in said for said in found["substitutions"])


def test_a_figure_is_reproduced_from_its_seeds(tiny: TrainingTerms) -> None:
    first, again, other = (
        reproduce(trial("rain/figure3"), "smoke", Means(), seeds=2, seed=seed, watch=lambda _: None)["rows"]
        for seed in (0, 0, 5)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", NAMES)
def test_paper_scale_is_the_papers(name: str) -> None:
    size = robustness.SIZES["paper"]
    assert (size.clients, size.terms.rounds, size.terms.batch) == (100, 500, 64)
    assert size.shares == tuple(tenth / 10 for tenth in range(1, 10))
    assert trial(name).seeds["paper"] >= 2


def test_bouts_that_come_out_alike_are_fought_once(tiny: TrainingTerms) -> None:
    heard: list[str] = []
    trained = robustness.place("digits", "smoke", Means(), [0, 1], heard.append)
    loud, pairs = noised(tiny), [(EQUAL, HIDDEN), (ROOT_ONLY, ROOT_ONLY), (PRINTED, PRINTED)]
    for (one, other), attacks in zip(pairs, [(LabelFlip(),) * 2, (Copy(), None), (Copy(), LabelFlip())], strict=True):
        share = 0.0 if one is PRINTED else 0.5
        first, second = (AttackedRun(r, tiny, a, share) for r, a in zip((one, other), attacks, strict=True))
        assert trained(first) is trained(second)
    assert len(heard) == 3
    assert trained(AttackedRun(EQUAL, tiny, Copy(), 0.5)) is not trained(AttackedRun(HIDDEN, tiny, Copy(), 0.5))
    assert trained(AttackedRun(PRINTED, tiny, Dpfl(), 0.5)) is not trained(AttackedRun(PRINTED, loud, Dpfl(), 0.5))
    assert len(heard) == 7
    assert heard[0] == "digits, label-flip 50%: RAIN, 0/1"


def test_bouts_in_several_processes_end_alike(tiny: TrainingTerms) -> None:
    """Two processes or none: the same results, and nothing is left to be trained."""
    planned = [AttackedRun(rule, tiny, attack, 0.5) for rule in (HIDDEN, KRUM) for attack in (Copy(), Dpfl())]
    heard: list[str] = []
    alone, pair = (
        RunsOverSeeds(RunPlace(Digits(), 10, (8,), Means(processes=n), (0, 1)), heard.append) for n in (1, 2)
    )
    pair.ahead(planned)
    assert [pair(attacked) for attacked in planned] == [alone(attacked) for attacked in planned]
    assert len(heard) == 4


def test_the_local_epsilon_is_the_exact_one() -> None:
    """Clip 1, delta 1e-5: 10.0 at sigma 1 and 91.8 at 0.2; four rounds are like half of sigma."""
    assert local_epsilon(1.0, 1) == pytest.approx(10.0, abs=0.05)
    assert local_epsilon(0.2, 1) == pytest.approx(91.8, abs=0.05)
    assert local_epsilon(1.0, 4) == pytest.approx(local_epsilon(0.5, 1))
    assert noised(TrainingTerms()).sigma == 0.4


def row(attack: str, rule: str, *rates: float) -> dict[str, Any]:
    shares = (0.0, 0.5, 0.9)
    cells = [
        {"share": share, "accuracy": rate, "low": rate - 0.01, "high": rate + 0.01}
        for share, rate in zip(shares, rates, strict=True)
    ]
    return {"attack": attack, "rule": rule, "_cells": cells}


ROWS: Sequence[Mapping[str, Any]] = (
    row("label flip", "RAIN as printed", 0.9, 0.8, 0.11),
    row("Krum attack", "RAIN as printed", 0.9, 0.85, 0.79),
    row("label flip", "Krum", 0.9, 0.6, 0.1),
    row("Krum attack", "Krum", 0.9, 0.1, 0.3),
    row(malicious_shares.ADAPTIVE, "RAIN as printed", 0.9, 0.3, 0.2),
    row("-", "root only", 0.7, 0.7, 0.7),
)


def test_what_is_said_of_figure_6_is_counted() -> None:
    said = malicious_shares.says(ROWS)
    assert said == [
        "RAIN as printed keeps around 80 % with 90 % malicious, label flip: no, 11.0 %.",
        "RAIN as printed keeps around 80 % with 90 % malicious, Krum attack: yes, 79.0 %.",
        "RAIN as printed keeps around 80 % with 90 % malicious, copy of the reference (not in the paper): no, 20.0 %.",
        "Beyond 50 % malicious, 1 of 2 cells of the paper's baselines are below 20 %.",
        "RAIN as printed ends below the root-only model (70.0 %) in 3 of 6 cells.",
        "Krum ends below the root-only model (70.0 %) in 4 of 4 cells.",
    ]


def test_the_picture_has_a_panel_for_each_attack_and_a_line_for_each_rule() -> None:
    draw = trial("rain/figure6").draw
    assert draw is not None
    picture = ElementTree.fromstring(draw(ROWS))
    texts = [node.text for node in picture.iter() if node.tag.endswith("text")]
    for wanted in ("label flip", "Krum attack", malicious_shares.ADAPTIVE, "RAIN as printed", "Krum", "root only"):
        assert wanted in texts
    assert len([node for node in picture.iter() if node.get("id", "").startswith("line-")]) == 5


def test_a_figure_without_a_picture_is_not_drawn(shell: Shell) -> None:
    said = shell.refused("reproduce", "rain/figure3", "--plot", "picture.svg")
    assert "--plot = 'picture.svg': rain/figure3 has no picture" in said


def test_figure_6_is_drawn_into_a_file(shell: Shell, tiny: TrainingTerms, tmp_path: Path) -> None:
    out, plot = tmp_path / "found.json", tmp_path / "figure.svg"
    code, said, _ = shell("reproduce", "rain/figure6", "--out", out, "--plot", plot)
    assert code == 0
    assert plot.read_text("utf-8").startswith("<svg")
    assert "ends below the root-only model" in said
    assert json.loads(out.read_text("utf-8"))["says"]


def test_the_errors_name_the_remedy(tiny: TrainingTerms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(robustness.SIZES, "smoke", RobustnessSize(5, (8,), None, None, tiny, (0.5,), "tiny"))
    with pytest.raises(SpecError, match="use at least 10"):
        reproduce(trial("rain/figure6-skewed"), "smoke", Means(), seeds=2, watch=lambda _: None)
