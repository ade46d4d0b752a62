"""A recurrent network that forecasts the next value of a series.

The forecaster of the household data, in the presets `households`, `intra-london` and `intra-london-sum`, and in
IntraShuffler's tables. Torch's LSTM takes one set of weights for a whole batch (which is enough for gradients of single
records), so that models of many clients cannot be stacked with it. The recurrence is therefore also written out as
plain batched operations in torch's order of gates. A description asks for it by `task.model.stacked`; the tables do on
a GPU, where two hundred households then train as one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.network import Network

_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Forecaster(nn.Module):
    """An LSTM over the window, and a linear layer from its last state to the next value."""

    def __init__(self, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, 1) to (batch, 1)."""
        states, _ = self.lstm(x)
        out: Tensor = self.fc(states[:, -1])
        return out

    def stacked(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The same for many models at once, up to rounding: `parameters` and `x` have a first dimension for the models.

        In plain operations, because torch's own LSTM takes one set of weights only. `learn.batch` looks for a method of
        this name on any network.
        """
        states = x.transpose(1, 2)
        for layer in range(self.lstm.num_layers):
            states = _recurred(states, *(parameters[f"lstm.{name}_l{layer}"] for name in _WEIGHTS))
        return torch.baddbmm(parameters["fc.bias"].unsqueeze(1), states[:, -1], parameters["fc.weight"].transpose(1, 2))


class Lstm(Network, use="lstm"):
    """An LSTM forecaster. With `stacked` many clients train as one model, which pays on a GPU and not on a CPU."""

    hidden: PositiveInt = Field(32, description="width of the state")
    layers: PositiveInt = Field(1, description="how many layers")
    # Off unless asked for: it changes last bits.
    stacked: bool = Field(
        False, description="clients train as one model, in plain operations: the same up to rounding, for GPUs"
    )

    @property
    def batchable(self) -> bool:
        """True where the description asks for it."""
        return self.stacked

    def build(self, dataset: Dataset) -> Forecaster:
        """A fresh model. Raises: SpecError unless the dataset forecasts from one value a step."""
        if dataset.goal != "forecast" or dataset.shape[1:] != (1,):
            remedy = 'use data = "households" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (width, 1) to forecast", remedy)
        return Forecaster(self.hidden, self.layers)


def _recurred(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """(models, steps, batch, inputs) to the states after every step, one LSTM a model; torch's order of gates."""
    models, steps, batch, _ = x.shape
    # What the inputs add to the gates depends on no state: all steps at once. The second bias is added apart: of a sum
    # of both, one tensor would be the gradient of either, and a step that works in place would change it twice.
    added = torch.baddbmm(bias_ih.unsqueeze(1), x.flatten(1, 2), weight_ih.transpose(1, 2)) + bias_hh.unsqueeze(1)
    added = added.reshape(models, steps, batch, -1)
    recur = weight_hh.transpose(1, 2)
    state = cell = x.new_zeros(models, batch, weight_hh.shape[2])
    states = []
    for step in added.unbind(1):
        enter, keep, new, leave = torch.baddbmm(step, state, recur).chunk(4, 2)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
        state = torch.sigmoid(leave) * torch.tanh(cell)
        states.append(state)
    return torch.stack(states, 1)
