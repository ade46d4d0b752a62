"""A convolutional network over time, for windows of a phone's sensors.

Convolutions run over time with the six sensors as channels, and the mean over time forgets where in the window
something happened. Used with the dataset `activity`, by the preset of that name and by figures of RNS and
IntraShuffler.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.layers import Dropout, Standardise
from croupier.learn.models.network import Network

# The shortest window that three convolutions leave something of.
LEAST = 41
# What a phone that hangs upright and at rest reads: one g along its first axis, no rotation.
AT_REST = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class TimeNet(nn.Module):
    """Three unpadded convolutions over time, the first two by steps of 2, the mean over time, two linear layers.

    `first` is done to the windows before all else.
    """

    def __init__(self, channels: int, classes: int, dropout: float = 0.0, first: Standardise | None = None) -> None:
        super().__init__()
        self.first = first
        self.dropout = Dropout(dropout)
        self.conv1 = nn.Conv1d(channels, 64, 9, stride=2)
        self.conv2 = nn.Conv1d(64, 128, 9, stride=2)
        self.conv3 = nn.Conv1d(128, 128, 5)
        self.fc1 = nn.Linear(128, 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x if self.first is None else self.first(x)
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.relu(conv(x))
        x = self.dropout(torch.relu(self.fc1(x.mean(2))))
        out: Tensor = self.fc2(x)
        return out


class ActivityCnn(Network, use="activity-cnn"):
    """A network for windows of a phone's six sensors: 176,710 weights for 6 classes.

    `standardise` subtracts what an upright phone at rest reads, in g and rad/s, and divides by one half: physics and a
    round number, nothing that was computed from anybody's readings.
    """

    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout after each hidden linear layer")
    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )

    def build(self, dataset: Dataset) -> TimeNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of six channels over time."""
        shape = dataset.shape
        if dataset.goal != "classify" or len(shape) != 2 or shape[0] != len(AT_REST) or shape[1] < LEAST:
            needs = f"inputs of shape ({len(AT_REST)}, {LEAST} or more) to classify"
            raise self._misfit(dataset, needs, 'use data = "activity" or model = "mlp"')
        first = Standardise(AT_REST, 0.5) if self.standardise else None
        return TimeNet(shape[0], dataset.classes, self.dropout, first)
