"""A small Vision Transformer (Dosovitskiy et al. 2021): patches of a picture as words of a text.

Patches come from `mixer`, blocks from `transformer`; what is new here is how places are added and where logits are
read. Blocks use ReLU, and logits are read from the patches' mean unless `token` is set: neither is as in the paper.

One of Tazza's architectures (`croupier_lab.papers.tazza`), and one of those that `learn.axes` is tested on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from croupier.errors import SpecError
from croupier.learn.data import Dataset
from croupier.learn.models.layers import Standardise
from croupier.learn.models.mixer import PicturePatches, check_tiles
from croupier.learn.models.network import Network
from croupier.learn.models.transformer import START, Block


@dataclass(frozen=True)
class AttentionBlocks:
    """How large a stack of attention blocks is: width of its vectors, heads, blocks, width inside one, and dropout."""

    width: int
    heads: int
    layers: int
    hidden: int
    dropout: float = 0.0


class PatchReader(nn.Module):
    """Patches and their places as vectors, blocks of attention, and logits from their mean or from a learned token.

    `token` puts a learned vector before the patches and reads only what becomes of it, as the first ViT does; without
    it the patches' mean is read. `first` is done to the pictures before all else.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        classes: int,
        patch: int,
        stack: AttentionBlocks,
        token: bool = False,
        first: Standardise | None = None,
    ) -> None:
        super().__init__()
        (colours, height, wide), width = shape, stack.width
        patches = (height // patch) * (wide // patch)
        self.first = first
        self.patches = PicturePatches(patch)
        self.embed = nn.Linear(colours * patch * patch, width)
        self.token = nn.Parameter(START * torch.randn(1, 1, width)) if token else None
        self.places = nn.Parameter(START * torch.randn(1, patches + token, width))
        self.blocks = nn.ModuleList(Block(width, stack.heads, stack.hidden, stack.dropout) for _ in range(stack.layers))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.embed(self.patches(x if self.first is None else self.first(x)))
        if self.token is not None:
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = x + self.places
        # No place is empty: attention leaves none out.
        empty = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        for block in self.blocks:
            x = block(x, empty)
        x = self.norm(x)
        out: Tensor = self.fc(x.mean(1) if self.token is None else x[:, 0])
        return out


class Vit(Network, use="vit"):
    """A Vision Transformer for pictures: 545,930 weights for 10 classes of CIFAR-10.

    `standardise` brings pixels to [-1, 1]; `token` reads a learned token instead of the patches' mean.
    """

    patch: PositiveInt = Field(4, description="side of a patch in pixels")
    width: PositiveInt = Field(128, description="width of a patch's vector")
    heads: PositiveInt = Field(4, description="heads of attention")
    layers: PositiveInt = Field(4, description="how many layers")
    hidden: PositiveInt = Field(256, description="width of the two-layer perceptron inside a block")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate of dropout in every layer")
    token: bool = Field(
        False, description="reads a learned token, put before the patches, instead of the patches' mean"
    )
    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise SpecError(f"task.model.heads = {self.heads}: does not divide task.model.width = {self.width}")
        return self

    def build(self, dataset: Dataset) -> PatchReader:
        """A fresh model. Raises: SpecError unless the dataset has classes of pictures that patches tile."""
        shape = check_tiles(self, dataset, self.patch)
        first = Standardise(0.5, 0.5) if self.standardise else None
        stack = AttentionBlocks(self.width, self.heads, self.layers, self.hidden, self.dropout)
        return PatchReader(shape, dataset.classes, self.patch, stack, self.token, first)
