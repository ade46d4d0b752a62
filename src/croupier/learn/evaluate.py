"""How good a model is on records nobody trained on.

The round loop calls `Evaluate` after every round through its `Task`; nothing that it measures reaches a client or the
server's rule. Records are taken in their order and in batches of one size, so that the same model always measures the
same. `learn.clients` measures the last model on each client's own test records by it. `ModelAnswers` is another thing:
it does serve a rule (`aggregate.clusters`), which compares models by what they answer to inputs of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from croupier.core.update import Model
from croupier.errors import DataError, SpecError
from croupier.learn.data import Records
from croupier.learn.flat import FlatNet, loss_of
from croupier.learn.metrics import Metric, Undefined


@dataclass(frozen=True)
class Evaluate:
    """Accuracy and loss, or the root mean squared error in the data's own unit; and the metrics that are asked for.

    `loss` names the one that is trained by, where it is not the goal's usual one. `unit` is what a target of 1 stands
    for in the data's own unit.
    """

    net: FlatNet
    goal: str
    test: Records
    unit: float = 1.0
    batch: int = 1024
    metrics: tuple[Metric, ...] = ()
    loss: str | None = None

    def __call__(self, model: Model) -> Mapping[str, float]:
        """Measure a model on all test records. Raises: DataError when a metric is not defined for them."""
        found, lacking = self.on(model, self.test)
        for name, why in lacking.items():
            raise DataError(f"task.metrics = {name!r}: not defined for the test records ({why}); test on others")
        return found

    def on(self, model: Model, test: Records) -> tuple[dict[str, float], dict[str, str]]:
        """Measure a model on any records: its metrics, and why some have no value."""
        self.net.load(model.vector)
        self.net.module.eval()
        right, loss, error, said = 0, 0.0, 0.0, []
        named = self.loss or ("classify" if self.goal == "classify" else None)
        with torch.no_grad():
            for at in range(0, len(test), self.batch):
                index = torch.arange(at, min(at + self.batch, len(test)), device=self.net.weights.device)
                inputs, targets = test.batch(index)
                outputs = self.net.module(inputs)
                if named:
                    loss += float(loss_of(named, outputs, targets, "sum"))
                if self.goal == "classify":
                    right += int((outputs.argmax(1) == targets).sum())
                else:
                    error += float(loss_of("mse", outputs, targets, "sum")) / targets[0].numel()
                if self.metrics:
                    said.append((outputs.cpu(), targets.cpu()))
        if self.goal == "classify":
            found = {"accuracy": right / len(test), "loss": loss / len(test)}
        else:
            found = {"rmse": math.sqrt(error / len(test)) * self.unit}
            found |= {"loss": loss / len(test)} if named else {}
        return self._asked(found, said)

    def _asked(
        self, found: dict[str, float], said: Sequence[tuple[Tensor, Tensor]]
    ) -> tuple[dict[str, float], dict[str, str]]:
        lacking = {}
        for metric in self.metrics:
            outputs, targets = (torch.cat([pair[at] for pair in said]) for at in (0, 1))
            try:
                # What a diverged model says is no score, and no library's to judge.
                found[metric.name] = metric(outputs, targets) if bool(outputs.isfinite().all()) else math.nan
            except Undefined as why:
                lacking[metric.name] = str(why)
        return found, lacking


@dataclass(frozen=True)
class ModelAnswers:
    """What a model makes of any inputs, for rules that ask; `learn.assemble` puts it into the task."""

    net: FlatNet

    def __call__(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """The outputs, on the CPU."""
        self.net.load(vector)
        self.net.module.eval()
        try:
            with torch.no_grad():
                outputs: Tensor = self.net.module(inputs.to(self.net.weights.device))
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise SpecError(
                f"task.model: a rule asks the network about inputs that no client has, and it failed with {error!r}; "
                'use protocol.aggregate.probes_from = "samples" where they are noise, or another rule'
            ) from error
        return outputs.reshape(len(inputs), -1).cpu()
