"""ResNet-18 (He et al. 2016), with torchvision's names for the weights so that they interchange.

The usual large network for small pictures: RNS's figures of source inference train it, and Tazza's cost is timed on it.
Batch statistics are part of what clients send: they come after the weights in the flat vector, so that aggregators
which measure distances over weights can leave them out.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.layers import Standardise
from croupier.learn.models.network import Network
from croupier.learn.models.start import init_convolutions


class Residual(nn.Module):
    """Two 3 x 3 convolutions around which the input is passed on, resized where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = _resize(before, after, stride) if stride > 1 or before != after else None

    def forward(self, x: Tensor) -> Tensor:
        """The input plus what the convolutions add to it."""
        kept = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + kept)


class ResidualNet(nn.Module):
    """Eight residual blocks on RGB images of any size; 11,227,812 weights for 100 classes.

    `first` is done to the images before all else.
    """

    def __init__(self, classes: int, first: Standardise | None = None) -> None:
        super().__init__()
        self.first = first
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, 1)
        self.layer2 = _stage(64, 128, 2)
        self.layer3 = _stage(128, 256, 2)
        self.layer4 = _stage(256, 512, 2)
        self.fc = nn.Linear(512, classes)
        self.apply(init_convolutions)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = x if self.first is None else self.first(x)
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


class ResNet18(Network, use="resnet18"):
    """ResNet-18 without pretrained weights. `standardise` brings pixels to [-1, 1]."""

    standardise: bool = Field(
        False, description="the network first subtracts a public mean and divides by a public deviation"
    )

    def build(self, dataset: Dataset) -> ResidualNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of RGB images."""
        if dataset.goal != "classify" or len(dataset.shape) != 3 or dataset.shape[0] != 3:
            remedy = 'use data of RGB images or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (3, height, width) to classify", remedy)
        return ResidualNet(dataset.classes, Standardise(0.5, 0.5) if self.standardise else None)


def _stage(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Residual(before, after, stride), Residual(after, after, 1))


def _resize(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
