"""A small transformer that forecasts the next value of a series.

The attention counterpart of `lstm`, for the same windows: patches of a series are its words, and the blocks are those
of `transformer`. IntraShuffler's Table 8 is trained on it, in the place of TimesFM.
"""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.models.network import Network
from croupier.learn.models.transformer import START, Block


class PatchForecaster(nn.Module):
    """Patches of a window as vectors with their places, blocks of attention, and the next value from the last patch."""

    def __init__(self, length: int, patch: int, width: int, heads: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, width)
        self.places = nn.Embedding(length // patch, width)
        blocks = [Block(width, heads, hidden, 0.0) for _ in range(layers)]
        for block in blocks:
            # A bias of the keys moves no score, so its gradient is rounding alone, along which Adam would walk.
            block.attention.key = nn.Linear(width, width, bias=False)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 1)
        nn.init.normal_(self.places.weight, std=START)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, 1) to (batch, 1)."""
        states = self.embed(x.reshape(len(x), -1, self.patch)) + self.places.weight
        # All of the window is past: every patch may look at every other, and none is empty.
        empty = torch.zeros(states.shape[:2], dtype=torch.bool, device=x.device)
        for block in self.blocks:
            states = block(states, empty)
        out: Tensor = self.fc(self.norm(states[:, -1]))
        return out


class SeriesTransformer(Network, use="series-transformer"):
    """A transformer forecaster whose words are patches of `patch` values: 68,097 weights for windows of 48.

    It stands in for TimesFM where that is compared with: it reads patches too, but is some three thousand times
    smaller, starts untrained and foretells one value: it is no foundation model.
    """

    patch: PositiveInt = Field(4, description="how many values are one token; must divide the width of the windows")
    width: PositiveInt = Field(64, description="width of a token's vector")
    heads: PositiveInt = Field(4, description="heads of attention")
    layers: PositiveInt = Field(2, description="how many layers")
    hidden: PositiveInt = Field(128, description="width between, inside a layer")

    @property
    def batchable(self) -> bool:
        """Whether it can be stacked: it normalises within a patch and draws nothing."""
        return True

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise SpecError(f"task.model.heads = {self.heads}: does not divide task.model.width = {self.width}")
        return self

    def build(self, dataset: Dataset) -> PatchForecaster:
        """A fresh model. Raises: SpecError unless the dataset forecasts from one value a step, in whole patches."""
        if dataset.goal != "forecast" or dataset.shape[1:] != (1,):
            remedy = 'use data = "households" or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (width, 1) to forecast", remedy)
        length = dataset.shape[0]
        if length % self.patch:
            raise SpecError(
                f"task.model.patch = {self.patch}: does not divide the windows' width, {length}; use 1 or one that does"
            )
        return PatchForecaster(length, self.patch, self.width, self.heads, self.layers, self.hidden)
