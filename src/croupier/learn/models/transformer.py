"""A small transformer that classifies texts.

A text task small enough to federate: the preset `newsgroups` and figures of RNS train it. `vit` and `series` are made
of the same `Block`. Attention is written out in plain operations, because torch's fused module hides steps that three
things must see: stacked training (of `series`; texts train one client at a time), gradients of single records, and the
search for symmetries.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.models.layers import Dropout
from croupier.learn.models.network import Network

# The deviation of the first vectors of words and places.
START = 0.02


class Attention(nn.Module):
    """Every place looks at all places that hold a word, with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, empty: Tensor) -> Tensor:
        """(batch, places, width) to the same; `empty` marks the places without a word."""
        query, key, value = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self._parts())
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        # Finite: a text without any word must not become NaN.
        scores = scores.masked_fill(empty[:, None, None, :], -1e9)
        out: Tensor = self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        return out

    def _parts(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        return self.query, self.key, self.value


class Block(nn.Module):
    """Attention, then two linear layers at every place, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, empty: Tensor) -> Tensor:
        """(batch, places, width) to the same."""
        x = x + self.dropout(self.attention(self.norm1(x), empty))
        out: Tensor = x + self.dropout(self.fc2(torch.relu(self.fc1(self.norm2(x)))))
        return out


class Reader(nn.Module):
    """Words and their places as vectors, blocks of attention, the mean over the places that hold a word, logits."""

    def __init__(
        self, tokens: int, length: int, classes: int, width: int, heads: int, layers: int, hidden: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)
        # A client meets a word a few times a round: from torch's start, of deviation 1, it would hardly move.
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=START)
        with torch.no_grad():
            self.words.weight[0] = 0

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length) numbers of words, 0 where there is none, to logits."""
        empty = x == 0
        states = self.dropout(self.words(x) + self.places.weight)
        for block in self.blocks:
            states = block(states, empty)
        held = (~empty).unsqueeze(2).to(states.dtype)
        mean = (self.norm(states) * held).sum(1) / held.sum(1).clamp(min=1)
        out: Tensor = self.fc(mean)
        return out


class TextTransformer(Network, use="text-transformer"):
    """A transformer for texts as numbers of words: 567,380 weights for 8,192 numbers, 128 places and 20 classes.

    It is trained one client at a time: stacked, every client's table of words would have to be held at once. With fewer
    places (the preset `newsgroups` has 64) it has fewer weights.
    """

    # Said in the description and not taken from the data: an attacker rebuilds the model from the description alone.
    vocabulary: int = Field(8192, ge=2, le=1 << 31, description="how many numbers words can have; at least the data's")
    width: PositiveInt = Field(64, description="width of a word's vector")
    heads: PositiveInt = Field(2, description="heads of attention")
    layers: PositiveInt = Field(1, description="how many layers")
    hidden: PositiveInt = Field(128, description="width between, inside a layer")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout after the words' vectors and in every layer")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise SpecError(f"task.model.heads = {self.heads}: does not divide task.model.width = {self.width}")
        return self

    def build(self, dataset: Dataset) -> Reader:
        """A fresh model. Raises: SpecError unless the dataset has classes of texts."""
        if dataset.goal != "classify" or not dataset.worded:
            raise self._misfit(dataset, "texts as numbers of words to classify", 'use data = "newsgroups"')
        if dataset.tokens > self.vocabulary:
            need = f"{dataset.name!r} has numbers of words below {dataset.tokens}; use at least that"
            raise SpecError(f"task.model.vocabulary = {self.vocabulary}: {need}")
        return Reader(
            self.vocabulary,
            dataset.shape[0],
            dataset.classes,
            self.width,
            self.heads,
            self.layers,
            self.hidden,
            self.dropout,
        )
