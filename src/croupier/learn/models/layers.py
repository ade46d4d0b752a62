"""Layers without weights that models share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Sets each value to zero at a rate while training, and scales the others up.

    Masks come from `generator`, on the CPU, so that a client draws the same ones in any thread and on any device. Until
    one is given they come from torch's own, as in any plain module.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The values that are left, while training; else all of them."""
        if not self.training or not self.rate:
            return x
        kept = torch.rand(x.shape, generator=self.generator) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.device)


def draw_from(module: nn.Module, generator: torch.Generator) -> None:
    """Let every dropout of a module draw its masks from here."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.generator = generator


class Standardise(nn.Module):
    """Inputs less a public mean, in units of a public deviation: plain numbers, so no part of the model's state.

    Several means are one for each row of an input: a channel of a window over time.
    """

    def __init__(self, mean: float | Sequence[float], deviation: float) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        if isinstance(self.mean, Sequence):
            return (x - torch.tensor(self.mean, device=x.device).unsqueeze(1)) / self.deviation
        return (x - self.mean) / self.deviation
