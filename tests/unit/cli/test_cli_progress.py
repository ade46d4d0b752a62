"""How far work is: a bar with the time left on a terminal, few plain lines anywhere else."""

from __future__ import annotations

import io
import sys
from itertools import pairwise

import pytest

from croupier.cli import progress
from croupier.cli.progress import Lines, Pace, span, watching


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of eighty columns in place of standard error."""
    here = Terminal()
    monkeypatch.setattr(sys, "stderr", here)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    return here


def test_the_time_left_counts_what_was_done_here_alone() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.at(30, 40)
    assert not pace.left
    clock.now += 20
    pace.at(32, 40)
    assert pace.passed == 20.0
    assert pace.left == pytest.approx(80.0)
    clock.now += 5
    assert pace.left == 75.0
    clock.now += 500
    assert pace.left == 0.0


def test_off_a_terminal_lines_are_few_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    told = Lines("mine", clock)
    said: list[tuple[float, str]] = []
    for step in range(1001):
        told.at(step, 1000, "seeds")
        told.say(f"seed {step}")
        said += [(clock.now, line) for line in capsys.readouterr().err.splitlines()]
        clock.now += 2
    assert 5 <= len(said) <= 11
    assert all(later - sooner >= 30 for (sooner, _), (later, _) in pairwise(said))
    assert said[0][1] == "mine: 30 of 1000 seeds, seed 29, 1:00 passed, about 32:20 left"
    assert all(line.isprintable() for _, line in said)


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    told = Lines("mine", clock)
    for step in range(11):
        told.at(step, 10, "seeds")
        clock.now += 2.9
    assert capsys.readouterr().err == ""


def test_work_of_unknown_length_says_what_it_does_ever_more_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    told = Lines("rns/figure1", clock)
    for number in range(3600):
        told.say(f"seed {number}")
        clock.now += 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "rns/figure1: seed 60, 1:00 passed"
    assert len(lines) == 8


def test_a_terminal_has_one_bar_with_the_time_left_in_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown = Clock(), terminal(monkeypatch)
    with progress.progress("a-description-with-a-long-name", clock) as told:
        told.at(0, 40, "seeds")
        clock.now += 90
        told.at(2, 40, "seeds")
        told.say("seed 2: parameter shuffle, and more words than a line of eighty columns could ever hold")
        told.bar.refresh()  # type: ignore[attr-defined]
    drawn = [part for part in shown.getvalue().replace("\r", "\n").split("\n") if "left" in part]
    assert drawn
    from rich.text import Text

    plain = Text.from_ansi(drawn[-1]).plain
    assert "2/40 seeds" in plain
    assert "1:30, 28:30 left" in plain
    assert len(plain.rstrip()) <= 80


def test_a_run_tells_rounds_clients_and_its_score(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    with watching("digits") as watch:
        watch("started", {"rounds": 3, "cohort": 10, "done": 1})
        watch("round", {"accuracy": 0.5})
        watch("trained", {"clients": 4})
    assert "2/3 rounds" in shown.getvalue()
    assert "accuracy 50.0%" in shown.getvalue()


def test_what_a_client_and_a_record_have_spent_is_told_apart_and_rounded_up() -> None:
    line = {"accuracy": 0.5, "spent": {"1": {"epsilon": 1.00004}, "2": {"epsilon": 2.00004}}}
    of_record = {"record": {"epsilon": 3.00004}}
    assert progress.how_well(line) == "accuracy 50.0%, spent up to 2.001 of a client"
    assert (
        progress.how_well({**line, **of_record}) == "accuracy 50.0%, spent up to 2.001 of a client, 3.001 of a record"
    )
    assert progress.how_well({"accuracy": 0.5, **of_record}) == "accuracy 50.0%, spent up to 3.001 of a record"
    assert progress.how_well({"accuracy": 0.5}) == "accuracy 50.0%"


def test_seconds_for_people() -> None:
    assert [span(seconds) for seconds in (0, 9.6, 61, 3599.9, 7325)] == ["0:00", "0:10", "1:01", "1:00:00", "2:02:05"]
