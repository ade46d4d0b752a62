"""Many simulated clients on three sides: ours in one process, ours on Ray, and Flower on Ray.

`croupier bench scale` runs it. All sides have the same network and kind of clients: each holds a few of scikit-learn's
digits, which other clients may hold too (there are fewer records than clients), and takes one local step. Seconds are
of rounds after the first, by the clock and of processors. Memory is the sum of the peaks of a side's processes: of ours
the fresh process that plays it and all that it started; of Flower all that `flwr run` started, but not the bench, which
waits for it. Flower is measured where it is installed with its simulation engine.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.learn.assemble import Hardware, TaskOptions, assemble
from croupier.learn.data import Dataset
from croupier.learn.fit import Sgd
from croupier.spec import load
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.process import apart
from croupier_lab.bench.speed.simulation import FLOWER_HOME, run_flower

# What marks the processes of one side: they inherit it, so that their memory can be added up.
MARK = "CROUPIER_BENCH_SIDE"


class ScaleSize(BenchSize):
    """How much is simulated: numbers of clients, rounds, records of each client, and actors."""

    clients: tuple[Annotated[int, Field(ge=2, le=100_000)], ...] = Field(
        (1000, 10_000), description="Clients, all of them in every round; may be given several times."
    )
    rounds: int = Field(3, ge=2, description="Rounds; the first, in which processes start, does not count.")
    records: int = Field(8, ge=1, description="Records of each client.")
    actors: int = Field(2, ge=1, description="Actors of Ray.")
    flower: bool = Field(True, description="Measure Flower on Ray, too, where it is installed.")
    flower_seconds: int = Field(
        1800, ge=1, description="Seconds after which Flower is stopped, for each number of clients; the row says so."
    )


@dataclass(frozen=True)
class DealtDigits:
    """A split by which every client draws its records from all of them."""

    clients: int
    records: int

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Client id to the numbers of its records."""
        drawn = coins.sampler().integers(len(dataset.train), size=(self.clients, self.records))
        digits = len(str(self.clients - 1))
        return {f"c{at:0{digits}}": torch.from_numpy(row) for at, row in enumerate(drawn)}


def measure(size: ScaleSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """One row for each number of clients and side."""
    rows = []
    for clients in sorted(size.clients):
        watch(f"{clients} clients, one process")
        rows.append(apart(ours, clients, size, seed, "local"))
        if find_spec("ray"):
            watch(f"{clients} clients, {size.actors} actors of Ray")
            rows.append(apart(ours, clients, size, seed, "ray"))
        if size.flower and find_spec("flwr") and find_spec("ray"):
            watch(f"{clients} clients, Flower on Ray")
            rows.append(flower(clients, size))
    return {"rounds": size.rounds, "records": size.records, "actors": size.actors, "rows": _compared(rows)}


def ours(clients: int, size: ScaleSize, seed: int, engine: Literal["local", "ray"]) -> dict[str, Any]:
    """Rounds of plain averaging by our own loop."""
    spec, coins = load("digits"), Coins.from_seed(seed)
    machine = Hardware(workers=size.actors if engine == "ray" else None, engine=engine)
    fit, options = Sgd(lr=0.1, epochs=1, batch=32), TaskOptions(together=spec.task.together)
    torch.set_num_threads(1)
    with marked(f"{engine} {clients}", here=True) as memory:
        made = assemble(
            spec.task.data,
            DealtDigits(clients, size.records),
            spec.task.model,
            fit,
            coins,
            options=options,
            machine=machine,
        )
        ends, marks = [time.perf_counter()], [0]
        try:
            for done in rounds(spec.protocol, made.task, Federation(rounds=size.rounds), coins, Local()):
                ends.append(time.perf_counter())
                marks.append(memory.now())
                accuracy = done.metrics["accuracy"]
        finally:
            made.close()
    # Each look was made right after its round.
    looks = [when for when, _ in memory.used]
    side = "one process" if engine == "local" else f"{size.actors} actors of Ray"
    later = [after - before for before, after in pairwise(ends[1:])]
    return {
        "clients": clients, "side": side, "round_s": min(later), "round_cpu_s": memory.least_between(looks),
        "first_round_s": ends[1] - ends[0], "peak_bytes": max(marks), "peak_bytes_first": marks[1],
        "accuracy": accuracy,
    }  # fmt: skip


def flower(clients: int, size: ScaleSize) -> dict[str, Any]:
    """The same under `flwr run`; where that failed, the last of what it said."""
    home = FLOWER_HOME.replace("num-supernodes = 10", f"num-supernodes = {clients}")
    home += "options.backend.client-resources.num-cpus = 1\n"
    config = f"clients={clients} rounds={size.rounds} records={size.records}"
    with marked(f"flower {clients}") as memory, memory.polled():
        try:
            said = run_flower(home, ("--run-config", config), timeout=size.flower_seconds)
        except subprocess.TimeoutExpired:
            why = f"stopped after {size.flower_seconds} s without an end: --flower-seconds gives it more"
            return {"clients": clients, "side": "Flower on Ray", "failed": why, "peak_bytes": memory.most}
    ends = [float(line.split()[-1]) for line in said.splitlines() if "tinyapp: round" in line]
    if "tinyapp: trained" not in said or len(ends) <= size.rounds:
        # Errors of Flower's stand in a frame.
        lines = [line.strip("│ ") for line in said.splitlines() if any(map(str.isalnum, line))]
        return {"clients": clients, "side": "Flower on Ray", "failed": " ".join(lines[-3:])[-300:] or "it said nothing"}
    later = [after - before for before, after in pairwise(ends[1:])]
    return {
        "clients": clients, "side": "Flower on Ray", "round_s": min(later),
        "round_cpu_s": memory.least_between(ends[1:]), "first_round_s": ends[1] - ends[0],
        "peak_bytes": memory.most,
    }  # fmt: skip


@dataclass
class SideMemory:
    """Memory of all processes that carry a mark, added up from their peaks, and their processor seconds.

    With `here` this process counts too: it was started before there was a mark, and plays the side itself.
    """

    mark: bytes
    here: bool
    most: int = 0
    # When, and how many seconds of processors they had used by then.
    used: list[tuple[float, float]] = field(default_factory=list)

    def now(self) -> int:
        """The sum of the high-water marks of those that are there now."""
        total, ticks, now = 0, 0, time.perf_counter()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self._counts(entry):
                    status = (entry / "status").read_text("ascii")
                    total += next((int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line), 0) * 1024
                    # Times of the process stand behind its name, which may hold anything.
                    ticks += sum(map(int, (entry / "stat").read_text("utf-8").rpartition(")")[2].split()[11:13]))
            except OSError:
                continue  # ended meanwhile, or not ours
        self.most = max(self.most, total)
        self.used.append((now, ticks / os.sysconf("SC_CLK_TCK")))
        return total

    def _counts(self, entry: Path) -> bool:
        own = int(entry.name) == os.getpid()
        return self.here if own else self.mark in (entry / "environ").read_bytes().split(b"\0")

    def least_between(self, ends: Sequence[float]) -> float:
        """The fewest seconds of processors that were used between two of these moments, as far as they were seen."""
        by = [next((used for when, used in reversed(self.used) if when <= end), 0.0) for end in ends]
        return min(after - before for before, after in pairwise(by))

    @contextmanager
    def polled(self) -> Iterator[None]:
        """Look every second: for processes that nobody here sees ending."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(1):
                self.now()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def marked(name: str, *, here: bool = False) -> Iterator[SideMemory]:
    """Whatever is started meanwhile carries a mark of its own; with `here` this process counts with it."""
    value = f"{name} {os.getpid()} {time.monotonic_ns()}"
    os.environ[MARK] = value
    try:
        yield SideMemory(f"{MARK}={value}".encode(), here)
    finally:
        del os.environ[MARK]


def _compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row with a round's seconds in multiples of ours in one process: by the clock, and of processors."""
    here = {row["clients"]: row for row in rows if row["side"] == "one process"}
    told = {"to_one_process": "round_s", "cpu_to_one_process": "round_cpu_s"}
    return [
        row if "failed" in row else {**row, **{to: row[key] / here[row["clients"]][key] for to, key in told.items()}}
        for row in rows
    ]


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"digit clients of {found['records']} records, one local step; the best of the rounds after the first")
    for row in found["rows"]:
        if "failed" in row:
            print(f"{row['clients']:>8} {row['side']:<20} failed: {row['failed']}")
            continue
        print(
            f"{row['clients']:>8} {row['side']:<20} {row['round_s']:>9.3f} s a round "
            f"({row['to_one_process']:.1f} times one process), {row['round_cpu_s']:.2f} of processors "
            f"({row['cpu_to_one_process']:.1f} times) {row['peak_bytes'] / 1e6:>8.0f} MB"
            + (f", {row['peak_bytes_first'] / 1e6:.0f} after a round" if "peak_bytes_first" in row else "")
        )
    if not any("Flower" in row["side"] for row in found["rows"]):
        print("Flower on Ray: not measured (pip install 'croupier[flower]')")
