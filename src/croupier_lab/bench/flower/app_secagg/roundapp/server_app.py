"""The server's side of the app of `bench flower` under SecAgg+.

All nodes are neighbours of each other, and two in three of them suffice to open a sum. `superlink.secagg_copy` lays
this file over the app's own.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import torch
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import Grid, LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from roundapp.client_app import loaded
from roundapp.task import Net, load_data
from roundapp.task import test as test_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, each with the seconds that it took: from one measured model to the next."""
    count, nodes = int(context.run_config["num-server-rounds"]), int(context.run_config["nodes"])
    marks, found = [], dict[str, Any]()

    def measure(number: int, parameters: list[Any], config: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        marks.append(time.perf_counter())
        loss, accuracy = test_fn(loaded(parameters), load_data(0, 1)[1])
        found.update(accuracy=accuracy, loss=loss)
        return loss, {"accuracy": accuracy}

    torch.manual_seed(1)
    first = ndarrays_to_parameters([value.numpy() for value in Net().state_dict().values()])
    strategy = FedAvg(
        min_fit_clients=nodes, min_evaluate_clients=nodes, min_available_clients=nodes, evaluate_fn=measure,
        initial_parameters=first, on_fit_config_fn=lambda number: {"server-round": number},
    )  # fmt: skip
    rule = SecAggPlusWorkflow(num_shares=nodes, reconstruction_threshold=max(2, 2 * nodes // 3), max_weight=1500.0)
    DefaultWorkflow(fit_workflow=rule)(grid, LegacyContext(context, ServerConfig(num_rounds=count), strategy))
    seconds = [round(after - before, 3) for before, after in pairwise(marks)]
    print(f"roundapp: {json.dumps({'seconds': seconds, **found})}", flush=True)
