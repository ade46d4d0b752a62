"""DenseNet-121 (Huang et al. 2017) for small pictures, with torchvision's names for the weights.

IntraShuffler's Table 9 trains it, smaller below the paper's scale, and the costs of its Table 7 take its number of
weights. The first convolution and pooling are made for pictures of 32 pixels and not of 224; the names are
torchvision's so that weights can be exchanged. `norm` may replace batch statistics, which would travel unnoised
(`learn.models.grouped`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.grouped import Norm, grouped
from croupier.learn.models.layers import Standardise
from croupier.learn.models.network import Network
from croupier.learn.models.start import init_convolutions

# How much wider than the growth a layer is between its two convolutions.
INSIDE = 4


class Grown(nn.Module):
    """Normalised, narrowed by 1 x 1, convolved by 3 x 3: `growth` channels that are put beside the input."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, INSIDE * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(INSIDE * growth)
        self.conv2 = nn.Conv2d(INSIDE * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The input and what was made of it."""
        new = self.conv2(torch.relu(self.norm2(self.conv1(torch.relu(self.norm1(x))))))
        return torch.cat([x, new], 1)


class DenseNet(nn.Module):
    """Blocks of layers that see all layers before them; 6,956,426 weights for 10 classes as published.

    The stem is one 3 x 3 convolution by steps of 1, where the published one is 7 x 7 by steps of 2 with a pool after
    it: a picture of 32 x 32 ends as 4 x 4. `first` is done to the pictures before all else.
    """

    def __init__(self, classes: int, growth: int, blocks: Sequence[int], first: Standardise | None = None) -> None:
        super().__init__()
        self.first = first
        width = 2 * growth
        steps: OrderedDict[str, nn.Module] = OrderedDict()
        steps["conv0"] = nn.Conv2d(3, width, 3, padding=1, bias=False)
        steps["norm0"], steps["relu0"] = nn.BatchNorm2d(width), nn.ReLU()
        for number, layers in enumerate(blocks, 1):
            steps[f"denseblock{number}"] = _block(width, growth, layers)
            width += layers * growth
            if number < len(blocks):
                steps[f"transition{number}"] = _halve(width)
                width //= 2
        steps[f"norm{len(blocks) + 1}"] = nn.BatchNorm2d(width)
        self.features = nn.Sequential(steps)
        self.classifier = nn.Linear(width, classes)
        self.apply(init_convolutions)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x if self.first is None else self.first(x)
        out: Tensor = self.classifier(torch.relu(self.features(x)).mean((2, 3)))
        return out


class DenseNet121(Network, use="densenet"):
    """DenseNet without pretrained weights: DenseNet-121 unless `growth` or the `blocks`' layers are given.

    `standardise` brings pixels to [-1, 1]. `norm` may be by group, as in `mobilenet`.
    """

    growth: PositiveInt = Field(32, description="channels that a layer adds")
    blocks: tuple[PositiveInt, ...] = Field((6, 12, 24, 16), min_length=1, description="layers in each block")
    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )
    norm: Norm = Field(
        "batch",
        description="normalise by `batch`, or by `group` of channels, which has no running statistics for noise to "
        "drown",
    )

    def build(self, dataset: Dataset) -> DenseNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of RGB pictures that can be halved enough."""
        least = 1 << (len(self.blocks) - 1)
        shape = dataset.shape
        if dataset.goal != "classify" or len(shape) != 3 or shape[0] != 3 or min(shape[1:]) < least:
            needs = f"inputs of shape (3, {least} or more, {least} or more) to classify"
            raise self._misfit(dataset, needs, 'use data = "cifar10" or model = "mlp"')
        first = Standardise(0.5, 0.5) if self.standardise else None
        made = DenseNet(dataset.classes, self.growth, self.blocks, first)
        if self.norm == "group":
            grouped(made)
        return made


def _block(before: int, growth: int, layers: int) -> nn.Sequential:
    made = {f"denselayer{number + 1}": Grown(before + number * growth, growth) for number in range(layers)}
    return nn.Sequential(OrderedDict[str, nn.Module](made))


def _halve(width: int) -> nn.Sequential:
    """Half the channels, at half the side."""
    steps: OrderedDict[str, nn.Module] = OrderedDict()
    steps["norm"], steps["relu"] = nn.BatchNorm2d(width), nn.ReLU()
    steps["conv"], steps["pool"] = nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)
    return nn.Sequential(steps)
