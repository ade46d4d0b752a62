"""How convolutions start.

Shared by the deep convolutional networks, which would not train from torch's own start.
"""

from __future__ import annotations

from torch import nn


def start(module: nn.Module) -> None:
    """Convolutions that keep the size of gradients through the depth (He et al. 2015); the rest starts as torch's."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
