"""The two convolutional networks of the source inference experiments: one for MNIST, one for CIFAR-10.

Their sizes are the papers', to the last weight, because un-shuffling and communication cost depend on how many
parameters there are. Used by the presets `mnist` and `cifar10`, by figures of RNS and Tazza, and by benches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.models.layers import Dropout, Standardise, convolved, pooled
from croupier.learn.models.network import Network


class ConvNet(nn.Module):
    """Two unpadded 5 x 5 convolutions, each max pooled by 2, then three linear layers; for square images.

    `first` is done to the images before all else.
    """

    def __init__(
        self, channels: int, side: int, classes: int, dropout: float = 0.0, first: Standardise | None = None
    ) -> None:
        super().__init__()
        self.first = first
        self.dropout = Dropout(dropout)
        left = ((side - 4) // 2 - 4) // 2
        self.conv1 = nn.Conv2d(channels, 32, 5)
        self.conv2 = nn.Conv2d(32, 64, 5)
        self.fc1 = nn.Linear(64 * left * left, 512)
        self.fc2 = nn.Linear(512, 128)
        self.fc3 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x if self.first is None else self.first(x)
        for conv in (self.conv1, self.conv2):
            x = functional.max_pool2d(torch.relu(conv(x)), 2)
        x = x.flatten(1)
        for linear in (self.fc1, self.fc2):
            x = self.dropout(torch.relu(linear(x)))
        out: Tensor = self.fc3(x)
        return out

    def stacked(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The same for many models at once, up to rounding: `parameters` and `x` have a leading side for the models."""
        x = x if self.first is None else self.first(x)
        x = x.permute(0, 1, 3, 4, 2)
        for name in ("conv1", "conv2"):
            x = torch.relu(pooled(convolved(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"]), 2))
        x = x.permute(0, 1, 4, 2, 3).flatten(2)
        for name in ("fc1", "fc2", "fc3"):
            weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
            x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            x = x if name == "fc3" else torch.relu(x)
        return x


class _Stackable(Network):
    """A convolutional network whose clients may train as one model, which pays on a GPU and not on a CPU."""

    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout after each hidden linear layer")
    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )
    # Off unless asked for: it changes last bits.
    stacked: bool = Field(
        False, description="clients train as one model, by products of matrices: the same up to rounding, for GPUs"
    )

    @model_validator(mode="after")
    def _drawn_alone(self) -> Self:
        if self.stacked and self.dropout:
            raise SpecError(
                f"task.model.stacked = true: dropout = {self.dropout:g} draws for one client at a time; leave one out"
            )
        return self

    @property
    def batchable(self) -> bool:
        """Whether it is to be stacked."""
        return self.stacked


class MnistCnn(_Stackable, use="mnist-cnn"):
    """The network for MNIST: 643,850 weights for 10 classes.

    `standardise` brings pixels to the mean 0 and the deviation 1 that MNIST's training part has.
    """

    def build(self, dataset: Dataset) -> ConvNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of 1 x 28 x 28 images."""
        if dataset.goal != "classify" or dataset.shape != (1, 28, 28):
            remedy = 'use data = "mnist" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (1, 28, 28) to classify", remedy)
        first = Standardise(0.1307, 0.3081) if self.standardise else None
        return ConvNet(1, 28, dataset.classes, self.dropout, first)


class CifarCnn(_Stackable, use="cifar-cnn"):
    """The network for CIFAR-10: 940,362 weights for 10 classes. `standardise` brings pixels to [-1, 1]."""

    def build(self, dataset: Dataset) -> ConvNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of 3 x 32 x 32 images."""
        if dataset.goal != "classify" or dataset.shape != (3, 32, 32):
            remedy = 'use data = "cifar10" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (3, 32, 32) to classify", remedy)
        first = Standardise(0.5, 0.5) if self.standardise else None
        return ConvNet(3, 32, dataset.classes, self.dropout, first)
