"""What commands pay before they do anything: help, a tiny job, the digits preset, a protected sum, and a first run.

`croupier bench start` runs it. Each is a process of its own, and `python -c "import torch"`, which all of them but help
need, stands beside them in the same turns. After these turns come first runs, each from a fresh copy of the packages as
a checkout has them: no bytecode and no compiled loops lie beside its files. On a machine that others use, go by the
processor seconds (`_cpu_s`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field

import croupier
import croupier_lab
from croupier.errors import CroupierError
from croupier_lab.bench.size import BenchSize, Watch, ignore

TINY = ("--set", "federation.rounds=2", "--set", "task.fit.epochs=1")
RUN = ("-m", "croupier", "run", "--seed", "1", "--out")
# A Flower client is a fresh process for every message. In its place one small sum is played, by all parties in one
# process: more than a client's own part, but without training and network.
CLIENT = "from croupier_lab.bench.speed.start_up import protected; protected()"
EVERY: Mapping[str, tuple[str, ...]] = {
    "import_torch": ("-c", "import torch"),
    "help": ("-m", "croupier", "--help"),
    "tiny_job": (*RUN, "tiny", "digits", *TINY),
    "digits": (*RUN, "digits", "digits"),
    "client": ("-c", CLIENT),
}
PARAMS, CLIENTS = 5_000, 2
FIRST = (*RUN, "first", "rns-servers")
SECOND = (*RUN, "second", "rns-servers")


class StartSize(BenchSize):
    """How often each command is started."""

    repeats: int = Field(5, ge=1, description="Starts of each command, in turn; the median counts.")
    first: int = Field(2, ge=1, description="First runs of fresh copies of the packages.")


@dataclass(frozen=True)
class Spent:
    """What one process took: seconds by the clock, and processor seconds of its own."""

    wall: float
    cpu: float


def measure(size: StartSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Start all but first runs by turns, so that a slow moment of the machine falls on all alike; then first runs.

    One turn more than `repeats` is played, and the first is not counted.
    """
    taken: dict[str, list[Spent]] = {name: [] for name in (*EVERY, "first_run", "second_run")}
    for turn in range(size.repeats + 1):
        watch(f"turn {turn} of {size.repeats}")
        for name, words in EVERY.items():
            # Nothing of turn 0 is kept: it fetches files from the disk.
            taken[name] += [started(words)][: min(turn, 1)]
    for _ in range(size.first):
        watch("a first run")
        with tempfile.TemporaryDirectory() as folder:
            fresh = _copied(Path(folder))
            taken["first_run"].append(started(FIRST, fresh))
            taken["second_run"].append(started(SECOND, fresh))
    found: dict[str, Any] = {"repeats": size.repeats, "first": size.first}
    for name, every in taken.items():
        found |= {f"{name}_s": median(one.wall for one in every), f"{name}_cpu_s": median(one.cpu for one in every)}
    for name in ("help", "tiny_job", "digits", "client"):
        found[f"{name}_ratio"] = found[f"{name}_cpu_s"] / found["import_torch_cpu_s"]
    return found


def protected() -> None:
    """One sum of small updates behind sum servers, of the parties' own flows in this process."""
    from croupier.core.coins import Coins
    from croupier.spec import load
    from croupier_lab.bench.speed.secure_sum import drawn, one_sum

    coins = Coins.from_os()
    pipeline = load("rns-servers").protocol
    result, total = one_sum(pipeline, drawn(PARAMS, CLIENTS, coins), coins, coins.child("links"))
    if total is None:
        raise next(one.error for one in result.outcomes.values() if one.error)


def started(words: Sequence[str], packages: Path | None = None) -> Spent:
    """Run Python with these arguments, in a folder that is gone after it. Raises: CroupierError when it fails."""
    here = packages or Path(croupier.__file__).parents[1]
    own = {**os.environ, "PYTHONPATH": str(here)}
    if packages is not None:
        own.pop("NUMBA_CACHE_DIR", None)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, *words], cwd=folder, env=own, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise CroupierError(f"{' '.join(words)} ended with {process.returncode}: {said.read().decode()[-300:]}")
    return Spent(wall, usage.ru_utime + usage.ru_stime)


def _copied(folder: Path) -> Path:
    """Both packages as they are unpacked: sources, and nothing that running them left."""
    for file in (croupier.__file__, croupier_lab.__file__):
        source = Path(str(file)).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    names = {
        "import_torch": 'python -c "import torch"', "help": "croupier --help", "tiny_job": "a tiny job",
        "digits": "croupier run digits", "client": "a small sum, all parties",
        "first_run": "the first run of rns-servers", "second_run": "its second run",
    }  # fmt: skip
    print(f"medians of {found['repeats']} starts each; of the first run, of {found['first']}")
    for key, name in names.items():
        times = f", {found[f'{key}_ratio']:.2f} times torch's processor time" if f"{key}_ratio" in found else ""
        print(f"{name:<29}{found[f'{key}_s']:7.2f} s{found[f'{key}_cpu_s']:7.2f} s of a processor{times}")
