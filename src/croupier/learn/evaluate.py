"""How good a model is on records nobody trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from croupier.core.update import Model
from croupier.learn.data import Records
from croupier.learn.flat import FlatNet, loss_of


@dataclass(frozen=True)
class Evaluate:
    """Accuracy and loss, or the root mean squared error in the data's own unit."""

    net: FlatNet
    goal: str
    test: Records
    unit: float = 1.0
    batch: int = 1024

    def __call__(self, model: Model) -> Mapping[str, float]:
        """Measure a model."""
        self.net.load(model.vector)
        self.net.module.eval()
        right, loss, device = 0, 0.0, self.net.weights.device
        with torch.no_grad():
            for at in range(0, len(self.test), self.batch):
                index = torch.arange(at, min(at + self.batch, len(self.test)), device=device)
                inputs, targets = self.test.batch(index)
                outputs = self.net.module(inputs)
                loss += float(loss_of(self.goal, outputs, targets, "sum"))
                right += int((outputs.argmax(1) == targets).sum()) if self.goal == "classify" else 0
        mean = loss / len(self.test)
        if self.goal == "classify":
            return {"accuracy": right / len(self.test), "loss": mean}
        return {"rmse": math.sqrt(mean) * self.unit}


@dataclass(frozen=True)
class Answers:
    """What a model makes of any inputs."""

    net: FlatNet

    def __call__(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """The outputs, on the CPU."""
        self.net.load(vector)
        self.net.module.eval()
        with torch.no_grad():
            outputs: Tensor = self.net.module(inputs.to(self.net.weights.device))
        return outputs.reshape(len(inputs), -1).cpu()
