"""The bench of starts: medians of processes that really ran, and first runs of packages that nobody has run yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.shell import Shell

from croupier.errors import CroupierError
from croupier_lab.bench.speed import start_up
from croupier_lab.bench.speed.start_up import Spent, protected, started


def test_medians_and_ratios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[tuple[Sequence[str], bool]] = []

    def counted(words: Sequence[str], packages: Path | None = None) -> Spent:
        if packages is not None:
            names = {path.name for path in packages.rglob("*")}
            assert {"croupier", "croupier_lab", "_shares_jit.py"} <= names
            assert "__pycache__" not in names
        calls.append((words, packages is not None))
        # Later starts take longer, and a job three times what torch takes.
        return Spent(float(len(calls)), 3.0 if "run" in words else 1.0)

    monkeypatch.setattr(start_up, "started", counted)
    shell = Shell(monkeypatch, capsys)
    words = ("--repeats", "3", "--first", "2")
    found = shell.json("bench", "start", *words)
    # One turn more than asked for is played and not counted.
    assert len(calls) == 4 * len(start_up.EVERY) + 4
    assert [fresh for _, fresh in calls].count(True) == 4
    assert found["import_torch_s"] == 1 + 2 * len(start_up.EVERY)
    assert (found["tiny_job_cpu_s"], found["tiny_job_ratio"], found["help_ratio"]) == (3.0, 3.0, 1.0)
    assert found["second_run_s"] == found["first_run_s"] + 1
    code, out, _ = shell("bench", "start", *words)
    assert code == 0
    assert "3.00 times torch's processor time" in out


def test_a_start_is_a_process_of_its_own() -> None:
    assert started(("-c", "sum(range(10**6))")).cpu > 0
    with pytest.raises(CroupierError, match="ended with 3: no such thing"):
        started(("-c", "import sys; print('no such thing'); sys.exit(3)"))


def test_the_client_s_share_is_a_whole_sum() -> None:
    protected()
