"""A recurrent network that classifies sequences.

Plain, GRU or LSTM cells over the steps of a record: `model = "rnn"`, for the dataset `ecg` and Tazza's tables. DP-SGD
needs each record's own gradient: for it torch's vmap takes plain and GRU layers written out (`learn.unroll`), and LSTM
layers as they are.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.layers import Dropout
from croupier.learn.models.network import Network

Cell = Literal["rnn", "gru", "lstm"]
CELLS: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class Listener(nn.Module):
    """A recurrent network over the steps, and a linear layer from what it holds after them to logits.

    In both directions the state after all steps is the last one forward, and the first one backward.
    """

    def __init__(
        self, cell: Cell, features: int, hidden: int, layers: int, classes: int, both: bool = False, dropout: float = 0
    ) -> None:
        super().__init__()
        self.rnn = CELLS[cell](features, hidden, layers, batch_first=True, bidirectional=both)
        self.hidden, self.both = hidden, both
        self.dropout = Dropout(dropout)
        self.fc = nn.Linear(hidden * (1 + both), classes)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, steps, features) to logits."""
        states, _ = self.rnn(x)
        if self.both:
            ahead, back = states.split(self.hidden, 2)
            last = torch.cat([ahead[:, -1], back[:, 0]], 1)
        else:
            last = states[:, -1]
        out: Tensor = self.fc(self.dropout(last))
        return out


class Rnn(Network, use="rnn"):
    """A recurrent network for sequences: 14,084 weights for the 4 classes of `ecg`.

    `cell` is `rnn` (tanh), `gru` or `lstm`; `both` reads the sequence in both directions.
    """

    cell: Cell = Field("rnn", description="`rnn`, `gru` or `lstm`")
    hidden: PositiveInt = Field(64, description="width of the state")
    layers: PositiveInt = Field(2, description="how many layers")
    both: bool = Field(False, description="read in both directions")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout after the last state")

    def build(self, dataset: Dataset) -> Listener:
        """A fresh model. Raises: SpecError unless the dataset has classes of sequences of several numbers a step."""
        if dataset.goal != "classify" or len(dataset.shape) != 2 or dataset.worded:
            remedy = 'use data = "ecg" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (steps, features) to classify", remedy)
        features = dataset.shape[1]
        return Listener(self.cell, features, self.hidden, self.layers, dataset.classes, self.both, self.dropout)
