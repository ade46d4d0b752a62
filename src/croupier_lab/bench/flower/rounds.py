"""Seconds of a round inside Flower, plain and protected, in one run; and of Flower's own SecAgg+ on the same updates.

`croupier bench flower`. First on a grid in this process, node after node, where nothing but the protocol costs time:
updates of so many parameters that nobody has to train. With `--nodes`, then on a real SuperLink with SuperNodes, hosts
that are processes of their own, and digits that are trained: once without the two lines, once with them.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
import warnings
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
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


class FlowerRoundSize(BenchSize):
    """How large an update is, how many nodes send one, and whether a SuperLink is started."""

    params: int = Field(1_000_000, ge=1, description="Parameters of each update, on the grid in this process.")
    clients: int = Field(10, ge=2, description="Nodes of the grid in this process.")
    rounds: int = Field(4, ge=2, description="Rounds of each side; the first is not counted.")
    nodes: int = Field(0, ge=0, le=16, description="SuperNodes of a real SuperLink; 0 leaves it out (minutes).")


def measure(size: FlowerRoundSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Both sides on the grid, SecAgg+ beside them, and both sides on a SuperLink where one is asked for."""
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
    secagg, _, total = secaggplus(updates, size.rounds - 1)
    found: dict[str, Any] = {
        "params": size.params, "clients": size.clients, "rounds": size.rounds, "load": os.getloadavg()[0],
        "plain_s": plain, "protected_s": protected, "secaggplus_s": secagg, "ratio": protected / plain,
        "largest_error": float(np.abs(ours - mean).max()),
        "secaggplus_largest_error": float(np.abs(total.numpy() / size.clients - mean).max()),
    }  # fmt: skip
    if size.nodes:
        found |= _on_superlink(size, watch)
    return found


def _on_grid(size: FlowerRoundSize, updates: Any, protected: bool) -> tuple[float, Any]:
    """The median round, and the model after the first."""
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg

    import croupier.flower
    from croupier.flower.rehearse import RehearsalPlan, rehearse
    from croupier.flower.station import KEY, client_name
    from croupier_lab.bench.flower.grid import HereGrid

    vectors = [update.vector.numpy() for update in updates.values()]
    app = ClientApp(mods=[croupier.flower.shield] if protected else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"w": Array(vectors[int(context.node_config["partition-id"])])})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    first, marks, models = ArrayRecord({"w": Array(np.zeros(size.params, np.float32))}), list[float](), list[Any]()

    def marked(number: int, arrays: ArrayRecord) -> None:
        marks.append(time.perf_counter())
        models.append(arrays["w"].numpy())

    parts: dict[int, dict[str, Any]] = {node + 1: {"partition-id": node} for node in range(size.clients)}
    made = rehearse(RehearsalPlan(rounds=size.rounds), size.clients, first) if protected else None
    strategy: Any = FedAvg(fraction_evaluate=0.0)
    if made is not None:
        parts = {node: {**one, KEY: str(made.key(client_name(node - 1)))} for node, one in parts.items()}
        strategy = croupier.flower.protect(strategy, key=made.key("server"))
    try:
        with warnings.catch_warnings(), _silent():
            warnings.simplefilter("ignore", CroupierWarning)
            strategy.start(HereGrid(app, parts, keeps=False), first, size.rounds, evaluate_fn=marked)
    finally:
        if made is not None:
            made.close()
    return median(_rounds(marks)), models[1]


def _rounds(marks: list[float]) -> list[float]:
    """Seconds of each round but the first."""
    return [after - before for before, after in pairwise(marks[1:])]


class _silent:  # noqa: N801 - reads as a statement
    """Parties of this process say nothing while they are timed."""

    def __enter__(self) -> None:
        self._held, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: PTH123 - closed below

    def __exit__(self, *what: object) -> None:
        sys.stderr.close()
        sys.stderr = self._held


def _on_superlink(size: FlowerRoundSize, watch: Watch) -> dict[str, Any]:
    """The digits app on SuperNodes, without and with the two lines."""
    from croupier_lab.bench.flower.deployed import protected_run
    from croupier_lab.bench.flower.superlink import APP, add_node, found_in, plain_copy, superlink

    config = f"num-server-rounds={size.rounds}"
    watch("plain, on a SuperLink")
    with tempfile.TemporaryDirectory() as folder, superlink() as link:
        app = plain_copy(APP, Path(folder))
        for number in range(size.nodes):
            add_node(link, number, size.nodes)
        plain = found_in(link.run(app, config))
    watch("protected, on a SuperLink")
    protected = found_in(protected_run(size.nodes, config).said)
    before, after = median(plain["seconds"][1:]), median(protected["seconds"][1:])
    return {
        "nodes": size.nodes, "deployed_plain_s": before, "deployed_protected_s": after,
        "deployed_ratio": after / before, "deployed_first_plain_s": plain["seconds"][0],
        "deployed_first_protected_s": protected["seconds"][0], "deployed_load": os.getloadavg()[0],
        "plain_accuracy": plain["accuracy"], "protected_accuracy": protected["accuracy"],
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """The same numbers for people."""
    print(f"a round of {found['clients']} nodes and {found['params']} parameters, in one process ({_LAST}):")
    for name, key in (("plain FedAvg", "plain_s"), ("protected", "protected_s"), ("SecAgg+", "secaggplus_s")):
        print(f"{name:<14}{found[key]:9.3f} s")
    print(f"largest error of the mean {found['largest_error']:.1e}, SecAgg+ {found['secaggplus_largest_error']:.1e}")
    if "nodes" in found:
        print(f"a round of digits on a SuperLink with {found['nodes']} SuperNodes:")
        for name, key in (("plain FedAvg", "plain"), ("protected", "protected")):
            print(f"{name:<14}{found[f'deployed_{key}_s']:9.1f} s, accuracy {found[f'{key}_accuracy']:.4f}")
    print(f"load of the machine: {found['load']:.1f}")
