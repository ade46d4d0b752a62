"""The nodes' side of the app of `bench flower` under SecAgg+, in Flower's older way to write apps.

Flower offers SecAgg+ only in that way. `superlink.secagg_copy` lays this file over the app's own; the task is the same.
"""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import Context
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod

from roundapp.task import Net, load_data
from roundapp.task import test as test_fn
from roundapp.task import train as train_fn


class DigitsClient(NumPyClient):
    """Trains and evaluates as the plain app does, on the same records with the same seeds."""

    def __init__(self, context: Context) -> None:
        self.partition = int(context.node_config["partition-id"])
        self.train, self.test = load_data(self.partition, int(context.node_config["num-partitions"]))
        self.run = context.run_config

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Train the model on local records."""
        model = loaded(parameters)
        seed = 1000 * int(config["server-round"]) + self.partition
        train_fn(model, self.train, int(self.run["local-epochs"]), float(self.run["lr"]), seed)
        return [value.numpy() for value in model.state_dict().values()], len(self.train[0]), {}

    def evaluate(self, parameters: list[Any], config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        """Evaluate the model."""
        loss, accuracy = test_fn(loaded(parameters), self.test)
        return loss, len(self.test[0]), {"eval_acc": accuracy}


def loaded(parameters: list[Any]) -> Net:
    """The network with these numbers."""
    model = Net()
    names = model.state_dict()
    model.load_state_dict({name: torch.tensor(value) for name, value in zip(names, parameters, strict=True)})
    return model


def client_fn(context: Context) -> Any:
    """One client for one message."""
    return DigitsClient(context).to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
