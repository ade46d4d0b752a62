"""The bench of Flower's rounds: its three apps, what processes used, and what it prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from croupier_lab.bench.flower.rounds import _in_process, show
from croupier_lab.bench.flower.superlink import APP, SuperLink, plain_copy, secagg_copy


def test_the_plain_app_has_nothing_of_ours(tmp_path: Path) -> None:
    said = "".join(path.read_text() for path in plain_copy(APP, tmp_path).rglob("*.py"))
    assert "croupier" not in said
    assert "strategy = FedAvg(" in said


def test_the_app_under_secagg_has_the_same_task(tmp_path: Path) -> None:
    copy = secagg_copy(APP, tmp_path)
    for name in ("pyproject.toml", "roundapp/task.py"):
        assert (copy / name).read_bytes() == (APP / name).read_bytes()
    assert "mods=[secaggplus_mod]" in (copy / "roundapp" / "client_app.py").read_text()
    assert "SecAggPlusWorkflow(" in (copy / "roundapp" / "server_app.py").read_text()


def test_what_processes_and_their_children_use_is_counted(tmp_path: Path) -> None:
    link = SuperLink(tmp_path, 1, {})
    assert link.processor_seconds() == 0
    work = "import time; sum(range(2_000_000)); print('done', flush=True); time.sleep(60)"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    link.start("worker", [sys.executable, "-c", nested])
    try:
        link.await_text("worker", "done")
        parent = sum(map(int, Path(f"/proc/{link.processes['worker'].pid}/stat").read_text().split()[13:17])) / 100
        assert link.processor_seconds() > parent, "the child's are among them"
    finally:
        link.kill("worker")
    assert link.processor_seconds() == 0


def test_the_first_round_is_not_counted() -> None:
    marks = [(0.0, 0.0), (9.0, 5.0), (10.0, 5.5), (12.0, 6.0), (15.0, 7.5)]
    assert _in_process("plain", marks) == {"plain_s": 2.0, "plain_cpu_s": 0.5}


def test_a_side_that_was_not_measured_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    sides = {f"{name}_{unit}": 1.5 for name in ("plain", "protected", "secaggplus") for unit in ("s", "cpu_s")}
    deployed = {f"deployed_{name}_{unit}": 2.5 for name in ("plain", "protected") for unit in ("s", "cpu_s")}
    show({
        **sides, **deployed, "clients": 2, "params": 10, "nodes": 2, "largest_error": 0.0, "load": 1.0,
        "secaggplus_largest_error": 0.0, "plain_accuracy": 0.9, "protected_accuracy": 0.9,
    })  # fmt: skip
    said = capsys.readouterr().out
    assert said.count("SecAgg+") == 2
    assert said.count("accuracy 0.9000") == 2
