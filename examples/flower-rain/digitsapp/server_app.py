"""The server's side."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import croupier.flower
from digitsapp.task import Net, load_data
from digitsapp.task import test as test_fn
from digitsapp.task import train as train_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    run = context.run_config
    torch.manual_seed(1)
    first = ArrayRecord(Net().state_dict())
    strategy = FedAvg(fraction_evaluate=float(run["fraction-evaluate"]))
    strategy = croupier.flower.protect(strategy, describe="rain", root=own_training)
    result = strategy.start(
        grid=grid, initial_arrays=first, num_rounds=int(run["num-server-rounds"]), evaluate_fn=measure
    )
    final = result.evaluate_metrics_serverapp[int(run["num-server-rounds"])]
    print(f"digitsapp: accuracy {final['accuracy']:.4f} after {run['num-server-rounds']} rounds", flush=True)


def own_training(arrays: ArrayRecord) -> ArrayRecord:
    """What the server's own records make of the model: the reference that rows of signs are compared with."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    pictures, labels = load_data(0, 1)[1]
    train_fn(model, (pictures[:100], labels[:100]), epochs=1, lr=0.1, seed=1)
    return ArrayRecord(model.state_dict())


def measure(number: int, arrays: ArrayRecord) -> MetricRecord:
    """What the server finds on test records of its own."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test_fn(model, tuple(part[100:] for part in load_data(0, 1)[1]))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
