"""`croupier plan dp`, as people type it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from croupier.cli import main


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["croupier", "plan", "dp", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_noise_for_a_wish(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--epsilon", "8", "--rounds", "5", "--clients", "200", "--cohort", "20", "--total", "50")
    code, out, _ = said(capsys, monkeypatch, *words)
    flat = " ".join(out.split())
    assert code == 0
    for part in (
        "unit: client; adjacency: its update of a round is replaced by any other", "sensitivity 2C = 2",
        "5 participations: (8, 1e-05)", "classical formula, never used", "participations, expected: 5",
        "most that can be: 50", "sampling gives no local amplification", "no amplification claimed",
        "as printed, not the form of its authors' program",
    ):  # fmt: skip
        assert part in flat


def test_the_known_answer_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--epsilon", "4", "--rounds", "1", "--delta", "1e-6", "--cohort", "100000")
    code, out, _ = said(capsys, monkeypatch, *words)
    flat = " ".join(out.split())
    assert code == 0
    assert "would get 0.1698 by the clone bound of 2021, evaluated numerically" in flat
    assert "0.53463" in flat
    code, out, _ = said(capsys, monkeypatch, *words, "--json")
    found: dict[str, Any] = json.loads(out)
    assert found["amplification"]["pure_epsilon"] == pytest.approx(0.16977, abs=1e-4)
    assert found["amplification"]["closed_form"] == pytest.approx(0.53463, abs=1e-5)
    assert "as printed" in found["amplification"]["closed_form_used"]


def test_participations_and_epsilon(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(said(capsys, monkeypatch, "--epsilon", "10", "--sigma", "4", "--json")[1])
    assert (found["unit"], found["participations"]) == ("client", 16)
    assert 0 < found["epsilon"] <= 10
    found = json.loads(said(capsys, monkeypatch, "--rounds", "16", "--sigma", "4", "--json")[1])
    assert found["epsilon"] == pytest.approx(9.997, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--epsilon", "1"), "give two of --epsilon, --sigma and --rounds"),
        (("--epsilon", "1", "--sigma", "4"), "one participation alone costs 1.994"),
        (("--epsilon", "1", "--rounds", "2", "--total", "9"), "give both"),
        (("--epsilon", "1", "--rounds", "2", "--clients", "5", "--cohort", "6", "--total", "9"), "cohort = 6"),
        (("--epsilon", "1", "--rounds", "2", "--cohort", "0"), "honest = 0"),
    ],
)  # fmt: skip
def test_bad_plans_end_with_a_line(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = said(capsys, monkeypatch, *words)
    assert (code, out) == (2, "")
    assert why in err
    assert err.startswith("croupier: error: ")


def planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str, str]:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["croupier", "plan", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


SMALL = ("-s", "federation.rounds=2", "-s", "task.model.hidden=[4]", "-s", "task.fit.epochs=1", "--seed", "1")


def test_a_run_is_planned_in_bytes_seconds_memory_and_epsilon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = planned(capsys, monkeypatch, "intra", *SMALL)
    assert (code, err) == (0, "")
    for said in (
        "intra: 2 rounds, 20 of 20 clients a round, 310 parameters", "each client", "all together", "time: about",
        "memory: about", "(estimate)", "0.5 for one participation", "unit: client; its update of a round is replaced",
    ):  # fmt: skip
        assert said in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 80
    # Options before the description, and the long form.
    for words in (("--json", "intra", *SMALL), ("run", "intra", "--json", *SMALL)):
        found = json.loads(planned(capsys, monkeypatch, *words)[1])
        assert (found["name"], found["rounds"], found["exact"], found["seed"]) == ("intra", 2, True, 1)


def test_what_is_no_command_is_a_description(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = planned(capsys, monkeypatch, "digit")
    assert (code, out) == (2, "")
    assert err == "croupier: error: 'digit' is neither a file nor a preset; did you mean 'digits'?\n"
    code, out, _ = planned(capsys, monkeypatch, "rns", "--print-config")
    assert (code, 'name = "rns"' in out) == (0, True)
    code, out, _ = planned(capsys, monkeypatch, "--help")
    assert (code, "croupier plan digits" in out) == (0, True)
