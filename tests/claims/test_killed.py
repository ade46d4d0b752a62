"""A run killed at any moment and resumed ends with the same bytes as one left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from croupier.engine.job.run import resume, run
from tests.claims import kill_driver
from tests.claims.tools import contents


def _same(path: Path, alone: Path) -> None:
    assert contents(path) == contents(alone)
    summary, expected = (json.loads((each / "summary.json").read_text()) for each in (path, alone))
    assert summary["final"] == expected["final"]
    numbers = [json.loads(line)["round"] for line in (path / "timing.jsonl").read_text().splitlines()]
    assert numbers == list(range(1, kill_driver.ROUNDS + 1))


def _killed_and_resumed(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.claims.kill_driver", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_killed_run_ends_as_if_it_had_been_left_alone(tmp_path: Path) -> None:
    """Twenty kills at random moments and some inside each write; one test, so that the kills are made once."""
    report = _killed_and_resumed(tmp_path)
    planted = {kill["what"]: kill for kill in report["kills"] if not kill["what"].startswith("random-")}
    at_random = [kill for kill in report["kills"] if kill["what"].startswith("random-")]
    # The moments are spread over the run, and every planted one took place.
    assert len(at_random) == kill_driver.RANDOM_KILLS == 20
    assert sum(kill["killed"] for kill in at_random) >= 8, "most kills must meet a run under way"
    assert len({tuple(kill["checkpoints"]) for kill in at_random}) >= 3
    assert set(planted) == set(kill_driver.PLANTED)
    assert all(kill["killed"] for kill in planted.values())
    assert planted["half of the first checkpoint"]["checkpoints"] == []
    assert planted["half of a later checkpoint"]["checkpoints"] == ["000002.state", "000003.state"]
    for kill in report["kills"]:
        # What was killed is not passed off as whole: a summary is there only when everything else is.
        assert not (kill["whole"] and kill["what"] in planted), kill
        if kill["whole"]:
            assert (kill["said"], kill["model"]) == (kill_driver.ROUNDS, True), kill
            assert f"{kill_driver.ROUNDS:06d}.state" in kill["checkpoints"], kill
        _same(Path(kill["path"]), Path(report["alone"]))


def _await_rounds(path: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    log = path / "metrics.jsonl"
    for _ in range(6000):
        if log.exists() and log.read_bytes().count(b"\n") >= count:
            return
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    raise AssertionError("the run did not get anywhere")


# Enough for a command to be under way when it is killed.
ROUNDS = 40
SETS = (f"federation.rounds={ROUNDS}", "task.fit.epochs=2", "run.workers=1")


def _command(path: Path) -> list[str]:
    sets = [part for setting in SETS for part in ("--set", setting)]
    return [sys.executable, "-m", "croupier", "run", "digits-sum", *sets, "--seed", "5", "--out", str(path)]


def test_a_killed_command_is_resumed(tmp_path: Path) -> None:
    """The same with whole commands: one killed twice, one stopped by Ctrl-C."""
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    with subprocess.Popen(_command(killed), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _await_rounds(killed, 3, process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    again = [sys.executable, "-m", "croupier", "run", "--resume", str(killed)]
    done_before = (killed / "metrics.jsonl").read_bytes().count(b"\n")
    with subprocess.Popen(again, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _await_rounds(killed, done_before + 5, process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "summary.json").exists()
    # A shell that starts tests in the background makes them deaf to Ctrl-C, and so what they start.
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(_command(stopped), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, heard)
    with process:
        _await_rounds(stopped, 4, process)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate()
    assert process.returncode == 130
    assert out == b""
    how = f"stopped; rounds that ended are kept; go on with: croupier run --resume {stopped}"
    assert said.decode() == f"{how}\n"
    assert not (stopped / "summary.json").exists()
    run("digits-sum", sets=SETS, out=tmp_path / "alone", seed=5)
    for path in (killed, stopped):
        assert len(resume(path).metrics) == ROUNDS
        assert contents(path) == contents(tmp_path / "alone")
