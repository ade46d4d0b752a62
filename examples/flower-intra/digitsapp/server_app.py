"""The server's side."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import croupier.flower
from digitsapp.task import Net, load_data
from digitsapp.task import test as test_fn

app = ServerApp()

# In a deployment the roster says it, and names each client's wish; in a simulation everybody is dealt a tier.
TIERS = {
    "protocol": {
        "use": "intra-sum",
        "privacy": {"clip": 0.5, "tiers": [2.0, 8.0]},
        "release": {"smallest": 3, "colluders": 1},
        "encode": {"scale": 64},
    }
}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    run = context.run_config
    torch.manual_seed(1)
    first = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_evaluate=float(run["fraction-evaluate"]))
    strategy = croupier.flower.protect(strategy, describe=TIERS)
    result = strategy.start(
        grid=grid, initial_arrays=first, num_rounds=int(run["num-server-rounds"]), evaluate_fn=measure
    )
    final = result.evaluate_metrics_serverapp[int(run["num-server-rounds"])]
    print(f"digitsapp: accuracy {final['accuracy']:.4f} after {run['num-server-rounds']} rounds", flush=True)


def measure(number: int, arrays: ArrayRecord) -> MetricRecord:
    """What the server finds on test records of its own."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test_fn(model, load_data(0, 1)[1])
    return MetricRecord({"accuracy": accuracy, "loss": loss})
