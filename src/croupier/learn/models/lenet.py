"""The network that Deep Leakage from Gradients attacks: smooth everywhere, so that gradients can be matched.

Sigmoids and no pooling, because the attack differentiates the gradient once more. It is here as the classical target:
the laboratory's figures of gradient inversion (RNS, Tazza) attack it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from croupier.learn.data import Dataset
from croupier.learn.models.network import Network

WIDTH = 12
SPREAD = 0.5


class SigmoidNet(nn.Module):
    """Three padded 5 x 5 convolutions of 12 channels, strides 2, 2 and 1, each under a sigmoid, then one linear layer.

    All weights and biases start uniform within -0.5 and 0.5: far larger than usual, so that no sigmoid's slope
    vanishes and the gradient tells about every pixel.
    """

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, WIDTH, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 5, stride=2, padding=2)
        self.conv3 = nn.Conv2d(WIDTH, WIDTH, 5, padding=2)
        self.fc = nn.Linear(WIDTH * _quarter(height) * _quarter(width), classes)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -SPREAD, SPREAD)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.sigmoid(conv(x))
        out: Tensor = self.fc(x.flatten(1))
        return out


class DlgLeNet(Network, use="dlg-lenet"):
    """The network of Deep Leakage from Gradients (Zhu et al. 2019): 15,826 weights for 10 classes of CIFAR-10."""

    def build(self, dataset: Dataset) -> SigmoidNet:
        """A fresh model. Raises: SpecError unless the dataset has classes of pictures."""
        if dataset.goal != "classify" or len(dataset.shape) != 3:
            remedy = 'use data of pictures ("mnist", "cifar10") or model = "mlp"'
            raise self._misfit(dataset, "inputs of shape (channels, height, width) to classify", remedy)
        return SigmoidNet(*dataset.shape, dataset.classes)


def _quarter(side: int) -> int:
    """What two strides of 2 leave of a side."""
    return (side + 3) // 4
