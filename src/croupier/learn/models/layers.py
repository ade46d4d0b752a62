"""Layers without weights that models share, and convolution and pooling of many stacked models at once.

Dropout is the one layer that draws. Torch's draws from a generator that all worker threads share, so that results would
depend on who comes first; ours draws from the client's coins, and `take_over` swaps it into a user's own network.
"""

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
        if self.rate == 1:
            return x * 0.0
        kept = torch.rand(self._places(x), generator=self.generator) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.device)

    @property
    def p(self) -> float:
        """The rate, by the name that torch's own has for it."""
        return self.rate

    def _places(self, x: Tensor) -> Sequence[int]:
        """The shape of what stays or goes as one."""
        return x.shape


class ChannelDropout(Dropout):
    """Dropout that sets whole channels of a record to zero."""

    def _places(self, x: Tensor) -> Sequence[int]:
        return (*x.shape[:2], *(1 for _ in x.shape[2:]))


# Exactly these: what inherits from them may do something else.
TAKEN = {
    nn.Dropout: Dropout, nn.Dropout1d: ChannelDropout, nn.Dropout2d: ChannelDropout, nn.Dropout3d: ChannelDropout,
}  # fmt: skip


def take_over(module: nn.Module) -> None:
    """Put our own dropout in the place of torch's, which draws from a generator that all workers share.

    Weights keep their names. One that stands in several places stays one.
    """
    known: dict[int, Dropout] = {}
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if child is not None and type(child) in TAKEN:
                twin = known.setdefault(id(child), TAKEN[type(child)](child.p))  # type: ignore[index, arg-type]
                parent._modules[name] = twin.train(child.training)


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


def convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Unpadded convolutions of many models at once, as one batched product of matrices.

    `x` is (models, records, height, width, channels); weights and biases have a leading side for the models. Torch's
    own convolution of several models is one of as many groups, which devices have no quick way for.
    """
    models, records = x.shape[:2]
    size = weight.shape[-1]
    seen = x.unfold(2, size, 1).unfold(3, size, 1)
    high, wide = seen.shape[2:4]
    # Channels last, as they lie in memory: what is copied are then runs of them.
    columns = seen.permute(0, 1, 2, 3, 5, 6, 4).reshape(models, records * high * wide, -1)
    filters = weight.permute(0, 3, 4, 2, 1).flatten(1, 3)
    return torch.baddbmm(bias.unsqueeze(1), columns, filters).view(models, records, high, wide, -1)


def pooled(x: Tensor, size: int) -> Tensor:
    """The largest value of each square of each channel, for many models at once; channels last."""
    found = torch.max_pool2d(x.flatten(0, 1).permute(0, 3, 1, 2), size).permute(0, 2, 3, 1)
    return found.reshape(*x.shape[:2], *found.shape[1:])
