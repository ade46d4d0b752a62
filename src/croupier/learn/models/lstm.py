"""A recurrent network that forecasts the next value of a series."""

from __future__ import annotations

from pydantic import PositiveInt
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.network import Network


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


class Lstm(Network, use="lstm"):
    """An LSTM forecaster."""

    hidden: PositiveInt = 32
    layers: PositiveInt = 1

    def build(self, dataset: Dataset) -> Forecaster:
        """A fresh model. Raises: SpecError unless the dataset forecasts from one value a step."""
        if dataset.goal != "forecast" or dataset.shape[1:] != (1,):
            remedy = 'use data = "households" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (width, 1) to forecast", remedy)
        return Forecaster(self.hidden, self.layers)
