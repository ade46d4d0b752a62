"""Kills runs without warning, resumes them, and prints what became of each: `python kill_driver.py FOLDER`.

It is a program of its own because it forks: a fork of a test process would inherit whatever threads other tests
started. Forks of this one start warm, so that each kill costs a fraction of a second.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from croupier.engine.job import run as job
from croupier.engine.store import RunDir

ROUNDS = 6
SETS = (f"federation.rounds={ROUNDS}", "federation.cohort=7", "task.fit.epochs=1", "run.workers=1")
SEED = 5
RANDOM_KILLS = 20
# Never undone: it is the forked child alone that is changed, and it dies of it.
PATCH = pytest.MonkeyPatch()


def start(path: Path) -> None:
    job.run("digits-shuffled", sets=SETS, out=path, seed=SEED)


def go_on(path: Path) -> None:
    """Resume; a run that was killed before it had a description is simply started again, as the error says."""
    if (path / "spec.toml").exists():
        job.resume(path)
    else:
        start(path)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fork(work: Callable[[], None], delay: float | None = None) -> bool:
    """Run in a child and kill it after so many seconds of its own work; whether that was before it came to its end."""
    return _ended(work, delay)[0]


def timed(work: Callable[[], None]) -> float:
    """How long a child works."""
    return _ended(work)[1]


def _ended(work: Callable[[], None], delay: float | None = None) -> tuple[bool, float]:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if delay is not None:
                # Nobody handles SIGPROF, so that it ends the child as SIGKILL does; but by the time that the child
                # has worked, and not by a clock that runs on while a busy machine does something else.
                signal.setitimer(signal.ITIMER_PROF, delay)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"a child failed with status {status}")
    return os.WIFSIGNALED(status), used.ru_utime + used.ru_stime


def half_written(name: str) -> None:
    """Die while this file is being written: half of its bytes are on disk."""
    real = os.fsync

    def fsync(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().name.startswith(name):
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
            real(handle)
            die()
        real(handle)

    PATCH.setattr(os, "fsync", fsync)


def renamed(name: str, before: bool) -> None:
    """Die right before or right after this file is put in place."""
    real = Path.replace

    def replace(self: Path, target: str | os.PathLike[str]) -> Path:
        if Path(target).name == name and before:
            die()
        done = real(self, target)
        if Path(target).name == name:
            die()
        return done

    PATCH.setattr(Path, "replace", replace)


def half_appended(name: str, number: int, share: float) -> None:
    """Die while a line is added to a log."""
    real = RunDir.append

    def append(self: RunDir, log: str, value: Mapping[str, Any]) -> None:
        if log == name and value["round"] == number:
            line = (json.dumps(value, sort_keys=True) + "\n").encode()
            with (self.path / log).open("ab") as file:
                file.write(line[: int(len(line) * share)])
                file.flush()
                os.fsync(file.fileno())
            die()
        real(self, log, value)

    PATCH.setattr(RunDir, "append", append)


PLANTED: dict[str, Callable[[], None]] = {
    "half a manifest": lambda: half_written("manifest.json"),
    "half a description": lambda: half_written("spec.toml"),
    "between manifest and description": lambda: renamed("spec.toml", before=True),
    "after the description": lambda: renamed("spec.toml", before=False),
    "half of the first checkpoint": lambda: half_written("000001.state"),
    "half of a later checkpoint": lambda: half_written("000004.state"),
    "half of the last checkpoint": lambda: half_written(f"{ROUNDS:06d}.state"),
    "before a checkpoint is in place": lambda: renamed("000003.state", before=True),
    "after a checkpoint is in place": lambda: renamed("000003.state", before=False),
    "half of the first line": lambda: half_appended("metrics.jsonl", 1, 0.5),
    "half of a line": lambda: half_appended("metrics.jsonl", 4, 0.5),
    "a line but its end": lambda: half_appended("metrics.jsonl", 4, 0.9999),
    "a line without its timing": lambda: half_appended("timing.jsonl", 3, 0.0),
    "half a timing": lambda: half_appended("timing.jsonl", ROUNDS, 0.5),
    "half a model": lambda: half_written("model.safetensors"),
    "before the model": lambda: renamed("model.safetensors", before=True),
    "after the model": lambda: renamed("model.safetensors", before=False),
    "half a summary": lambda: half_written("summary.json"),
    "before the summary": lambda: renamed("summary.json", before=True),
}


def planted(path: Path, plant: Callable[[], None]) -> Callable[[], None]:
    def work() -> None:
        plant()
        start(path)

    return work


def state(path: Path) -> dict[str, Any]:
    """What a kill left behind."""
    checkpoints = sorted(file.name for file in path.glob("checkpoints/*.state"))
    whole = (path / "summary.json").exists()
    said = json.loads((path / "summary.json").read_text())["final"]["round"] if whole else None
    model = (path / "model.safetensors").exists()
    return {"path": str(path), "whole": whole, "said": said, "model": model, "checkpoints": checkpoints}


def main(folder: Path) -> None:
    start(folder / "warm")
    length = min(timed(partial(start, folder / name)) for name in ("alone", "again", "once-more"))
    chance, report = random.Random(20), list[dict[str, Any]]()
    for number in range(RANDOM_KILLS):
        path = folder / f"random-{number}"
        killed = fork(partial(start, path), length * (number + chance.random()) / RANDOM_KILLS)
        left = {"what": path.name, "killed": killed, **state(path)}
        # Every third one is killed a second time, on its way from where it was.
        if number % 3 == 0:
            fork(partial(go_on, path), length * chance.random() / 2)
        fork(partial(go_on, path))
        report.append(left)
    for what, plant in PLANTED.items():
        path = folder / what.replace(" ", "-")
        killed = fork(planted(path, plant))
        report.append({"what": what, "killed": killed, **state(path)})
        fork(partial(go_on, path))
    print(json.dumps({"alone": str(folder / "alone"), "kills": report}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
