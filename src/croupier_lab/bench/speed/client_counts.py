"""How a round grows with its clients: seconds and memory of whole runs of a tiny model, plain and behind sum servers.

`croupier bench clients` runs it. Every row is a run in a process and a directory of its own, with all that a run
writes: journal, metrics, clients' own notes, a checkpoint each round. Nothing in a round may grow faster than clients
times parameters. So the processor's seconds for each client, which other work on the machine changes least, must be
about the same in every row of a protocol.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from croupier.engine.job.run import run
from croupier.kernels.memory import own_process
from croupier.spec import Spec, load
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.process import apart, resident

PROTOCOLS = {"plain": "digits", "rns-servers": "rns-servers"}
# Records of each client; one fifth of all that are drawn are kept for testing.
RECORDS = 8


class ClientCountsSize(BenchSize):
    """How much is played: numbers of clients, and rounds of each run."""

    clients: tuple[Annotated[int, Field(ge=4, le=100_000)], ...] = Field(
        (100, 1000, 10_000), description="Clients, all of them in every round; may be given several times."
    )
    rounds: int = Field(4, ge=2, description="Rounds of a run; the first, which loads compiled loops, does not count.")


def describe(size: ClientCountsSize) -> Spec:
    """The largest plain run, for `--print-config`."""
    return described(max(size.clients), "plain", size.rounds)


def described(clients: int, protocol: str, rounds: int) -> Spec:
    """One run: a network of 1,146 parameters on drawn records, one local step."""
    return load(
        {
            "task": {
                "data": {"use": "synthetic", "records": RECORDS * clients * 5 // 4},
                "split": {"use": "iid", "clients": clients},
                "model": {"use": "mlp", "hidden": [16]},
                "fit": {"use": "sgd", "lr": 0.1, "epochs": 1, "batch": RECORDS},
            },
            "federation": {"rounds": rounds},
            "protocol": PROTOCOLS[protocol],
        }
    )


def measure(size: ClientCountsSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """One row for each number of clients and protocol, and how far the seconds for each client are from flat."""
    rows = []
    for protocol in PROTOCOLS:
        for clients in sorted(size.clients):
            watch(f"{clients} clients, {protocol}")
            rows.append(apart(played, clients, protocol, size.rounds, seed))
    return {"rounds": size.rounds, "rows": rows, "growth": {name: _growth(rows, name) for name in PROTOCOLS}}


def played(clients: int, protocol: str, rounds: int, seed: int) -> dict[str, Any]:
    """One run, from file to file: its best round, memory before it, and peak memory after a round and at the end."""
    # What `croupier run` asks of its process, too.
    own_process()
    gc.freeze()
    spec, before = described(clients, protocol, rounds), resident("VmRSS")
    ends: list[tuple[float, float]] = []
    marks: list[int] = []

    def watch(event: str, facts: Mapping[str, Any]) -> None:
        if event == "round":
            ends.append((time.perf_counter(), time.process_time()))
            marks.append(resident("VmHWM"))

    with tempfile.TemporaryDirectory() as folder:
        done = run(spec, out=Path(folder) / "run", seed=seed, watch=watch)
        on_disk = sum(path.stat().st_size for path in done.path.rglob("*") if path.is_file())
    best, cpu = (min(after[at] - earlier[at] for earlier, after in pairwise(ends)) for at in (0, 1))
    return {
        "clients": clients,
        "protocol": protocol,
        "parameters": sum(p.numel() for p in done.model.parameters()),
        "round_s": best,
        "round_cpu_s": cpu,
        "cpu_s_per_client": cpu / clients,
        "peak_bytes": resident("VmHWM"),
        "loaded_bytes": before,
        "peak_bytes_first": marks[0],
        "run_bytes": on_disk,
    }


def _growth(rows: list[dict[str, Any]], protocol: str) -> float:
    """Processor seconds for each client with the most clients, as a multiple of the same with the fewest."""
    own = [row["cpu_s_per_client"] for row in rows if row["protocol"] == protocol]
    return float(own[-1] / own[0])


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"whole runs of {found['rounds']} rounds, a tiny network, one local step; the best round but the first")
    heads = ("s a round", "CPU s", "CPU ms a client", "peak MB", "beyond the program")
    print(f"{'clients':>8} {'protocol':<12}" + "".join(f"{head:>20}" for head in heads))
    for row in found["rows"]:
        beyond = row["peak_bytes"] - row["loaded_bytes"]
        seconds = row["round_s"], row["round_cpu_s"], 1e3 * row["cpu_s_per_client"]
        print(
            f"{row['clients']:>8} {row['protocol']:<12}"
            + "".join(f"{value:>20.3f}" for value in seconds)
            + f"{row['peak_bytes'] / 1e6:>20.0f}{beyond / 1e6:>20.0f}"
        )
    for protocol, growth in found["growth"].items():
        print(f"{protocol}: CPU seconds a client with the most clients are {growth:.2f} times those with the fewest")
