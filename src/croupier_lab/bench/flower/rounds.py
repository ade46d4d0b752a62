"""Seconds of a round inside Flower, plain and protected, in one run; and of Flower's own SecAgg+ on the same updates.

`croupier bench flower` runs it. First on a grid in this process (`grid`), node after node, where nothing but the
protocol costs time: updates are drawn, so that nobody has to train. With `--nodes` also on a real SuperLink with
SuperNodes and hosts, all processes of their own, which train on digits: without the two lines that protect an app, with
them, and from three nodes on under SecAgg+ (`deployed`).
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from pydantic import Field

from croupier.core.coins import Coins
from croupier.errors import CroupierWarning, SpecError
from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.speed.other_secure_sums import secaggplus
from croupier_lab.bench.speed.secure_sum import drawn

_LAST = "of the rounds after the first, which opens connections and asks nodes who they are"
_SIDES = (("plain FedAvg", "plain"), ("protected", "protected"), ("SecAgg+", "secaggplus"))
_FEWEST_OF_SECAGG = 3


class FlowerRoundSize(BenchSize):
    """How large an update is, how many nodes send one, and whether a SuperLink is started."""

    params: int = Field(1_000_000, ge=1, description="Parameters of each update, on the grid in this process.")
    clients: int = Field(10, ge=2, description="Nodes of the grid in this process.")
    rounds: int = Field(4, ge=2, description="Rounds of each side; the first is not counted.")
    nodes: int = Field(0, ge=0, le=16, description="SuperNodes of a real SuperLink; 0 leaves it out (minutes).")


def measure(size: FlowerRoundSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Both sides on the grid, SecAgg+ beside them, and all of them on a SuperLink where one is asked for."""
    if find_spec("flwr") is None:
        raise SpecError("flwr is not installed: pip install 'croupier[flower]'")
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    import_module("flwr.common")
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    updates = drawn(size.params, size.clients, Coins.from_seed(seed))
    watch("plain, in this process")
    plain, mean = _on_grid(size, updates, protected=False)
    watch("protected, in this process")
    protected, ours = _on_grid(size, updates, protected=True)
    watch("SecAgg+")
    before = time.process_time()
    secagg, _, total = secaggplus(updates, size.rounds - 1)
    spent = (time.process_time() - before) / (size.rounds - 1)
    found: dict[str, Any] = {
        "params": size.params, "clients": size.clients, "rounds": size.rounds, "load": os.getloadavg()[0],
        **_in_process("plain", plain), **_in_process("protected", protected), "secaggplus_s": secagg,
        "secaggplus_cpu_s": spent, "ratio": median(_clocks(protected)) / median(_clocks(plain)),
        "largest_error": float(np.abs(ours - mean).max()),
        "secaggplus_largest_error": float(np.abs(total.numpy() / size.clients - mean).max()),
    }  # fmt: skip
    if size.nodes:
        found |= _on_superlink(size, watch)
    return found


# A moment: by the clock, and by this process's seconds of processors.
Mark = tuple[float, float]


def _on_grid(size: FlowerRoundSize, updates: Any, protected: bool) -> tuple[list[Mark], Any]:
    """When the first round began and when each round ended, and the model after the first round."""
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg

    from croupier.flower.mod import ShieldMod
    from croupier.flower.rehearse import RehearsalPlan, rehearse
    from croupier.flower.session import begin_session
    from croupier.flower.station import NodeFacts, Station, client_name, station_at
    from croupier.flower.strategy import Protected
    from croupier_lab.bench.flower.grid import HereGrid

    vectors = [update.vector.numpy() for update in updates.values()]
    first, marks, models = ArrayRecord({"w": Array(np.zeros(size.params, np.float32))}), list[Mark](), list[Any]()
    made = rehearse(RehearsalPlan(rounds=size.rounds), size.clients, first) if protected else None

    def at_home(facts: NodeFacts) -> Station:
        # As in Flower's simulation: throw-away keys, and nothing that must outlive the machine.
        assert made is not None
        return station_at(made.key(client_name(int(facts.node["partition-id"]))), flush=False)

    app = ClientApp(mods=[ShieldMod(at_home)] if protected else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"w": Array(vectors[int(context.node_config["partition-id"])])})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    def marked(number: int, arrays: ArrayRecord) -> None:
        marks.append((time.perf_counter(), time.process_time()))
        models.append(arrays["w"].numpy())

    parts = {node + 1: {"partition-id": node} for node in range(size.clients)}
    strategy: Any = FedAvg(fraction_evaluate=0.0)
    if made is not None:
        server = made.server
        strategy = Protected(strategy, RehearsalPlan(), lambda *given: begin_session(server))
    try:
        with warnings.catch_warnings(), _silent():
            warnings.simplefilter("ignore", CroupierWarning)
            strategy.start(HereGrid(app, parts, keeps=False), first, size.rounds, evaluate_fn=marked)
    finally:
        if made is not None:
            made.close()
    return marks, models[1]


def _clocks(marks: list[Mark]) -> list[float]:
    """Seconds of each round but the first, by the clock."""
    return [end - start for (start, _), (end, _) in pairwise(marks[1:])]


def _in_process(name: str, marks: list[Mark]) -> dict[str, float]:
    """The median of the rounds but the first, by the clock and in seconds of processors."""
    used = [end - start for (_, start), (_, end) in pairwise(marks[1:])]
    return {f"{name}_s": median(_clocks(marks)), f"{name}_cpu_s": median(used)}


class _silent:  # noqa: N801 - reads as a statement
    """While it is open, this process writes nothing to standard error."""

    def __enter__(self) -> None:
        self._held, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: PTH123 - closed below

    def __exit__(self, *what: object) -> None:
        sys.stderr.close()
        sys.stderr = self._held


def _on_superlink(size: FlowerRoundSize, watch: Watch) -> dict[str, Any]:
    """The digits app on SuperNodes, in turn: without the two lines, with them, and, from three nodes on, SecAgg+."""
    from croupier_lab.bench.flower.deployed import DeployedRun, open_run, protected_run
    from croupier_lab.bench.flower.superlink import found_in, secagg_copy

    config = f"num-server-rounds={size.rounds}"
    found: dict[str, Any] = {"nodes": size.nodes}
    plays: dict[str, Callable[[], DeployedRun]] = {
        "plain": lambda: open_run(size.nodes, config),
        "protected": lambda: protected_run(size.nodes, config),
        "secaggplus": lambda: open_run(size.nodes, f"{config} nodes={size.nodes}", make=secagg_copy),
    }
    for name, play in plays.items():
        if name == "secaggplus" and size.nodes < _FEWEST_OF_SECAGG:
            continue
        watch(f"{name}, on a SuperLink")
        done = play()
        said = found_in(done.said)
        found |= {
            f"deployed_{name}_s": median(said["seconds"][1:]), f"deployed_{name}_cpu_s": median(done.round_cpu[1:]),
            f"deployed_first_{name}_s": said["seconds"][0], f"{name}_accuracy": said["accuracy"],
            f"deployed_{name}_load": os.getloadavg()[0],
        }  # fmt: skip
    ratios = {f"deployed_ratio{unit}": found[f"deployed_protected{unit}_s"] / found[f"deployed_plain{unit}_s"]
              for unit in ("", "_cpu")}  # fmt: skip
    return found | ratios


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"a round of {found['clients']} nodes and {found['params']} parameters, in one process ({_LAST}):")
    for name, key in _SIDES:
        print(f"{name:<14}{found[f'{key}_s']:9.3f} s, {found[f'{key}_cpu_s']:.3f} of processors")
    print(f"largest error of the mean {found['largest_error']:.1e}, SecAgg+ {found['secaggplus_largest_error']:.1e}")
    if "nodes" in found:
        print(f"a round of digits on a SuperLink with {found['nodes']} SuperNodes:")
        for name, key in _SIDES:
            if f"deployed_{key}_s" in found:
                seconds, cpu = found[f"deployed_{key}_s"], found[f"deployed_{key}_cpu_s"]
                print(f"{name:<14}{seconds:9.1f} s, {cpu:.1f} of processors, accuracy {found[f'{key}_accuracy']:.4f}")
    print(f"load of the machine: {found['load']:.1f}")
