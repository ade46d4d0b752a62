"""How fast simulated clients train: stacked against one by one, on the same cores in the same process.

Stacked clients share each call of torch (`task.together`). `croupier bench simulate` runs it. It also measures peak
memory after five rounds and at the end, which must not grow, and a whole small command from start to files, against
Flower's where that is installed. With `--device cuda` it measures the device beside this machine's CPU instead
(`device_rounds`). `scale` uses its `run_flower`.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from croupier.core.coins import Coins
from croupier.engine.federation import Federation
from croupier.engine.job.result import peak_bytes
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.errors import CroupierError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.spec import Machine, Spec, load
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed import device_rounds

TINY = ("federation.rounds=2", "task.fit.epochs=1")
FLOWER = Path(__file__).parent / "flower_app"
FLOWER_HOME = """[superlink]
default = "local"

[superlink.local]
address = ":local:"
options.num-supernodes = 10
"""


class SimulationSize(BenchSize):
    """How much is simulated: clients, rounds for the memory mark, and timed repeats."""

    clients: int = Field(100, ge=2, description="Simulated clients.")
    rounds: int = Field(50, ge=6, description="Rounds for the memory mark.")
    repeats: int = Field(10, ge=1, description="Timed repeats of each side; the best counts.")
    device: str = Field("cpu", description="`cuda`, to measure a device beside the CPU; `cpu` measures this alone.")


def describe(size: SimulationSize) -> Spec:
    """The run that is measured: FedAvg's usual five local epochs of batches of ten, a small MLP on digits."""
    split = f"task.split={{use='iid', clients={size.clients}}}"
    return load("digits", (split, "task.fit.epochs=5", "task.fit.batch=10"))


def measure(size: SimulationSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Measure all and report. Memory comes first, so that its high-water mark is not another measurement's."""
    if Machine.parse({"device": size.device}, "run").device != "cpu":
        return device_rounds.beside(describe(size), size.device, seed, size.repeats, watch)
    spec, coins, repeats = describe(size), Coins.from_seed(seed), size.repeats
    cores = os.cpu_count() or 1
    # What was loaded stays: without this, searching it for garbage is a tenth of the time of either side.
    gc.collect()
    gc.freeze()
    first_mark, last_mark = _marks(spec, coins, size.rounds)
    # Stacked and one by one, with one worker and with one a core: each way is reported at its better worker count.
    sides = [(together, workers) for together in (spec.task.together, 1) for workers in sorted({1, cores})]
    made = [_made(spec, coins, together, workers) for together, workers in sides]
    rates = dict(zip(sides, _rates(made, spec, coins, repeats), strict=True))
    batched, serial = ({w: rate for (t, w), rate in rates.items() if (t == 1) == alone} for alone in (False, True))
    fast, slow = max(batched.values()), max(serial.values())
    return {
        "clients": size.clients,
        "cores": cores,
        "rounds_per_s_batched": fast,
        "rounds_per_s_serial": slow,
        "ratio": fast / slow,
        "batched_by_workers": {str(w): rate for w, rate in sorted(batched.items())},
        "serial_by_workers": {str(w): rate for w, rate in sorted(serial.items())},
        "protocol_s_per_round": _protocol(spec, coins, repeats),
        "largest_difference": _difference(spec, coins),
        "peak_bytes_first": first_mark,
        "peak_bytes_last": last_mark,
        "memory_growth": last_mark / first_mark - 1,
        "tiny_job_s": _tiny(),
        "tiny_job_flower_s": _tiny_flower(),
    }


def _made(spec: Spec, coins: Coins, together: int, workers: int) -> Assembled:
    task = spec.task
    return assemble(
        task.data,
        task.split,
        task.model,
        task.fit,
        coins,
        options=TaskOptions(root=task.root, together=together),
        machine=Hardware(workers=workers, alone=True),
    )


def _rounds(made: Assembled, spec: Spec, coins: Coins, count: int) -> Iterator[Round]:
    return rounds(spec.protocol, made.task, Federation(rounds=count), coins, Local())


def _rates(made: Sequence[Assembled], spec: Spec, coins: Coins, repeats: int) -> list[float]:
    """Rounds a second of each, at best; in turn, so that a machine's slow moments are everybody's."""
    torch.set_num_threads(1)
    best = [0.0] * len(made)
    for repeat in range(repeats + 1):
        for number, one in enumerate(made):
            start, done = time.perf_counter(), 0
            for _ in _rounds(one, spec, coins, 3):
                done += 1
            # The first is not counted: it loads and sets up.
            best[number] = max(best[number], done / (time.perf_counter() - start)) if repeat else 0.0
    return best


def _protocol(spec: Spec, coins: Coins, repeats: int) -> float:
    """Seconds of a round without training: encoding, counting and checking messages, aggregating, evaluating."""
    made = _made(spec, coins, spec.task.together, 1)
    jobs = [(made.task.first.vector, shard, coins.child("kept", shard)) for shard in made.task.shards.values()]
    kept = made.task.fit(jobs)
    idle = replace(made, task=replace(made.task, fit=lambda asked: kept[: len(asked)]))
    return 1 / _rates([idle], spec, coins, repeats)[0]


def _difference(spec: Spec, coins: Coins) -> float:
    """The largest difference between a client trained stacked and the same client trained alone."""
    spec = load(spec, ("task.fit.epochs=1",))
    stacked, alone = _made(spec, coins, spec.task.together, 1), _made(spec, coins, 1, 1)
    start = stacked.task.first.vector
    jobs = [(start, shard, coins.child("compare", shard)) for shard in stacked.task.shards.values()]
    largest = 0.0
    for a, b in zip(stacked.task.fit(jobs), alone.task.fit(jobs), strict=True):
        if isinstance(a, CroupierError) or isinstance(b, CroupierError):
            raise a if isinstance(a, CroupierError) else b  # type: ignore[misc]
        largest = max(largest, float((a.vector - b.vector).abs().max()))
    return largest


def _marks(spec: Spec, coins: Coins, last: int) -> tuple[int, int]:
    """The most memory that was ever resident (the high-water mark), in bytes, after round 5 and after the last."""
    made, first = _made(spec, coins, spec.task.together, os.cpu_count() or 1), 0
    for done in _rounds(made, spec, coins, last):
        if done.number + 1 == 5:
            first = peak_bytes()
    return first, peak_bytes()


def _tiny() -> float:
    """Seconds of a whole small command, the best of three: start-up, ten clients, two rounds, files written."""
    sets = [part for setting in TINY for part in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "croupier", "run", "digits", *sets, "--seed", "1", "--out"]
        return min(_timed([*command, f"{folder}/{number}"]) for number in range(3))


def _timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def _tiny_flower() -> float | None:
    """The same under `flwr run`, once; None where its run did not end well or in time, or Flower is not installed."""
    start = time.perf_counter()
    try:
        said = run_flower(FLOWER_HOME)
    except subprocess.TimeoutExpired:
        # All that was measured before is kept.
        return None
    # Its exit status is 0 even when every client failed: the app's own last line is the proof.
    return time.perf_counter() - start if "tinyapp: trained" in said else None


def run_flower(config: str, more: Sequence[str] = (), timeout: float = 300) -> str:
    """What the tiny app says under `flwr run`; nothing where Flower is not installed.

    What Flower leaves running is told to end, on systems with /proc. Raises: subprocess.TimeoutExpired after `timeout`
    seconds.
    """
    # Flower starts its own background programs by name: they lie beside this interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    flwr = shutil.which("flwr", path=path)
    if flwr is None:
        return ""
    quiet = {
        "PATH": path,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with tempfile.TemporaryDirectory() as home:
        # To a file: the background program that Flower leaves running would hold a pipe open for ever.
        said = Path(home) / "said.txt"
        (Path(home) / "config.toml").write_text(config, "utf-8")
        try:
            with said.open("w") as file:
                subprocess.run(
                    [flwr, "run", str(FLOWER), "--stream", *more],
                    env={**os.environ, **quiet, "FLWR_HOME": home},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    check=False,
                    timeout=timeout,
                )
        finally:
            _end_all(home)
        return said.read_text("utf-8", "replace")


def _end_all(home: str) -> None:
    """End what `flwr run` leaves running in the background for this home."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"FLWR_HOME={home}".encode() in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGTERM)
        except OSError:
            continue  # ended by itself, or not ours


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    if "device" in found:
        device_rounds.show(found)
        return
    print(f"{found['clients']} digit clients, five local epochs of batches of ten, {found['cores']} cores")
    print(f"stacked     {found['rounds_per_s_batched']:8.2f} rounds/s")
    print(f"one by one  {found['rounds_per_s_serial']:8.2f} rounds/s at its best worker count")
    print(f"ratio       {found['ratio']:8.1f}")
    print(f"of a round, {1e3 * found['protocol_s_per_round']:.0f} ms are not training but the protocol itself")
    print(f"largest parameter difference after one epoch: {found['largest_difference']:.2e}")
    print(
        f"resident high-water mark: {found['peak_bytes_first'] / 1e6:.0f} MB after round 5, "
        f"{found['peak_bytes_last'] / 1e6:.0f} MB at the end ({found['memory_growth']:+.1%})"
    )
    flower = found["tiny_job_flower_s"]
    print(f"tiny job (10 clients, 2 rounds), whole command: {found['tiny_job_s']:.2f} s")
    missing = "did not end well, or is not installed (pip install 'croupier[flower]')"
    rival = missing if flower is None else f"{flower:.1f} s"
    print(f"the same under flwr run: {rival}")
