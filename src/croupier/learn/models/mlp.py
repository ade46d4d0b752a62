"""A multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.network import Network


class Perceptron(nn.Module):
    """Linear layers of the given widths, input and output included, with ReLU between them."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for before, after in pairwise(widths):
            steps += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*steps[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """One row of outputs for each input of any shape."""
        out: Tensor = self.layers(x.flatten(1))
        return out

    def stacked(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The same for many models at once: `parameters` have a leading side for the models, and so has `x`."""
        out = x.flatten(2)
        for number, layer in enumerate(self.layers):
            if isinstance(layer, nn.Linear):
                weight, bias = parameters[f"layers.{number}.weight"], parameters[f"layers.{number}.bias"]
                out = torch.baddbmm(bias.unsqueeze(1), out, weight.transpose(1, 2))
            else:
                out = layer(out)
        return out


class Mlp(Network, use="mlp"):
    """A multilayer perceptron for inputs of any shape."""

    batchable: ClassVar[bool] = True

    hidden: tuple[PositiveInt, ...] = (64,)

    def build(self, dataset: Dataset) -> Perceptron:
        """A fresh model."""
        return Perceptron((math.prod(dataset.shape), *self.hidden, dataset.outputs))
