"""A multilayer perceptron.

The network of most examples and tests. It is also the one for which private training has a short cut: the norm of a
linear layer's gradient follows from its input and output alone, so that no record's gradient is ever laid out
(`learn.private.of_products`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from croupier.learn.by_hand import StackedPerceptrons
from croupier.learn.data import Dataset
from croupier.learn.models.layers import Dropout
from croupier.learn.models.network import Network


class Perceptron(nn.Module):
    """Linear layers of the given widths, input and output included, with ReLU and dropout between them."""

    def __init__(self, widths: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for before, after in pairwise(widths):
            # Dropout shares ReLU's place, so that the weights have the same names with and without it.
            between = nn.Sequential(nn.ReLU(), Dropout(dropout)) if dropout else nn.ReLU()
            steps += [nn.Linear(before, after), between]
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

    def by_hand(self, leaves: Mapping[str, Tensor], width: int) -> StackedPerceptrons:
        """The gradients of such models at once, on batches of `width` records. Dropout is not stacked."""
        names = [f"layers.{number}" for number, layer in enumerate(self.layers) if isinstance(layer, nn.Linear)]
        return StackedPerceptrons(names, leaves, width)


class Mlp(Network, use="mlp"):
    """A multilayer perceptron for inputs of any shape."""

    hidden: tuple[PositiveInt, ...] = Field((64,), description="widths of the hidden layers")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout after each hidden linear layer")

    @property
    def batchable(self) -> bool:
        """Whether it can be stacked: masks are drawn for one client at a time."""
        return not self.dropout

    def build(self, dataset: Dataset) -> Perceptron:
        """A fresh model. Raises: SpecError on words, whose numbers are names and no quantities."""
        if dataset.worded:
            raise self._misfit(dataset, "inputs that are quantities, not words", 'use model = "text-transformer"')
        return Perceptron((math.prod(dataset.shape), *self.hidden, dataset.outputs), self.dropout)
