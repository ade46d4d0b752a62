"""Networks without running statistics: groups of channels are normalised, one picture at a time.

Batch normalisation keeps means and variances of the records it saw. They would leave a client beside its weights, and
DP-SGD does not cover them. Normalising groups of channels of one picture keeps nothing, so that such a network can be
trained privately; `densenet` and `mobilenet` offer it by a field.
"""

from __future__ import annotations

import math
from typing import Literal

from torch import nn

Norm = Literal["batch", "group"]
# Channels that are normalised together, where they divide the width.
TOGETHER = 8


def grouped(module: nn.Module) -> nn.Module:
    """The same module with every batch normalisation replaced, in place; scale and shift start as they did.

    Running statistics travel with an update: clipped and noised they would take most of its length, and a noised
    variance may be negative.
    """
    for name, part in module.named_children():
        if isinstance(part, nn.BatchNorm2d):
            width = part.num_features
            setattr(module, name, nn.GroupNorm(width // math.gcd(width, TOGETHER), width))
        else:
            grouped(part)
    return module
