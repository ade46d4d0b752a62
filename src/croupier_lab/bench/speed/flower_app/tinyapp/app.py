"""Federated averaging on digits with Flower, as small as it goes: the rival in `bench simulate` and `bench scale`.

`bench.speed.simulation` starts it under `flwr run` (`run_flower`), and `bench.speed.scale` with more clients. Both read
the lines that it prints.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from croupier.learn.data import Records
from croupier.learn.datasets import Digits

client = ClientApp()
server = ServerApp()


def network() -> nn.Module:
    """The same small perceptron as on our side."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@cache
def everything() -> Records:
    """All records, read once by each process."""
    return Digits().load(None).train


def mine(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """This client's share of the records, or so many of them as the run asks for, drawn by its number."""
    records, count = everything(), int(context.run_config["records"])
    number, parts = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    if count:
        draw = torch.Generator().manual_seed(number)
        return records.batch(torch.randint(len(records), (count,), generator=draw))
    return records.batch(torch.arange(number, len(records), parts))


@client.train()
def train(message: Message, context: Context) -> Message:
    """One local epoch on this client's share of the records."""
    model = network()
    arrays: Any = message.content["arrays"]
    model.load_state_dict(arrays.to_torch_state_dict())
    x, y = mine(context)
    steps = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for index in torch.randperm(len(x)).split(32):
        steps.zero_grad()
        nn.functional.cross_entropy(model(x[index]), y[index]).backward()
        steps.step()
    content: Any = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
    return Message(RecordDict(content), reply_to=message)


def ended(number: int, arrays: ArrayRecord) -> None:
    """Say when a round ended; the first call is before any."""
    print(f"tinyapp: round {number} at {time.perf_counter()}", flush=True)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Some rounds; an error when no client answered, because Flower would end normally."""
    first: Any = network().state_dict()
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=int(context.run_config["clients"]))
    result = strategy.start(
        grid, ArrayRecord(first), num_rounds=int(context.run_config["rounds"]), evaluate_fn=ended, timeout=3600
    )
    if all(torch.equal(first[name], values) for name, values in result.arrays.to_torch_state_dict().items()):
        raise RuntimeError("the model did not change: every client failed")
    print("tinyapp: trained")
