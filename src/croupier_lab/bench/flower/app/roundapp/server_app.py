"""The server's side of the app of `bench flower`: federated averaging that measures every model on test records.

`superlink.plain_copy` makes the unprotected twin by deleting the import line and the line that protects the strategy:
keep both as they stand. The last line that it prints is read by `superlink.found_in`. `app_secagg` replaces this file
for SecAgg+.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import croupier.flower
from roundapp.task import Net, load_data
from roundapp.task import test as test_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, each with the seconds that it took."""
    run = context.run_config
    marks: list[float] = []

    def marked(number: int, arrays: ArrayRecord) -> MetricRecord:
        marks.append(time.perf_counter())
        return measure(number, arrays)

    torch.manual_seed(1)
    first = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_evaluate=float(run["fraction-evaluate"]))
    strategy = croupier.flower.protect(strategy, metrics={"train_loss": 16.0})
    result = strategy.start(
        grid=grid, initial_arrays=first, num_rounds=int(run["num-server-rounds"]), evaluate_fn=marked
    )
    seconds = [round(after - before, 3) for before, after in pairwise(marks)]
    found = {"seconds": seconds, **result.evaluate_metrics_serverapp[len(seconds)]}
    print(f"roundapp: {json.dumps(found)}", flush=True)


def measure(number: int, arrays: ArrayRecord) -> MetricRecord:
    """What the server finds on test records of its own."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test_fn(model, load_data(0, 1)[1])
    return MetricRecord({"accuracy": accuracy, "loss": loss})
