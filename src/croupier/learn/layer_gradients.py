"""What the gradients of a network's first and last linear layers tell of the records behind them, without a search.

The first layer's holds a single record whole, the last one's the classes. Counting classes of several is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.errors import SpecError, Unsuited
from croupier.learn.ends import Entrance, last_gradient
from croupier.learn.flat import layout_of


def at_entrance(gradient: Tensor, module: nn.Module, first: Entrance) -> tuple[Tensor, Tensor]:
    """A gradient's part in a linear layer that reads whole records: weights, one row a unit, and biases."""
    parts = {part.name: gradient[start:stop].view(part.shape) for part, start, stop in layout_of(module).spans()
             if part.role == "weight"}  # fmt: skip
    weight = parts[first.weight]
    return weight.T if first.flipped else weight, parts[first.bias]


def off_layer(weight: Tensor, bias: Tensor) -> Tensor:
    """The one record behind a linear layer's gradient: exact, no search.

    Each row of the weights' gradient is the record times the same row of the biases' gradient; all rows count, by
    least squares.
    """
    return (bias @ weight) / bias.square().sum().clamp(min=1e-30)


def label_of(gradient: Tensor, module: nn.Module, shape: Sequence[int]) -> Tensor:
    """The class of a single record: only its bias of the last layer has a negative gradient.

    Without biases: only its row of the weights' gradient points against all others. Of two rows each does. Raises:
    Unsuited where there are only two, or where the last layer is not linear.
    """
    weight, bias = last_gradient(module, gradient, shape)
    if bias is not None:
        return bias.argmin().reshape(1)
    if len(weight) < 3:
        raise Unsuited("the last layer has no biases, and two classes' weights do not tell which one a record is of")
    alike = weight @ weight.T
    return (alike.sum(1) - alike.diagonal()).argmin().reshape(1)


def counted_labels(
    gradient: Tensor, module: nn.Module, records: int, shape: Sequence[int], coins: Coins, draws: int = 64
) -> Tensor:
    """The classes of several records, from the last biases: their gradient is a class's mean chance less its share.

    The chances are those that the network gives to noise, close to right only before training. Raises: SpecError for
    a last layer without biases.
    """
    _, bias = last_gradient(module, gradient, shape)
    if bias is None:
        raise SpecError("labels of several records are read in the last biases, and there are none; declare them")
    noise = torch.rand((draws, *shape), generator=coins.fast()).to(gradient)
    with torch.no_grad():
        chances = module(noise).softmax(1).mean(0)
    left = (chances - bias) * records
    labels = []
    for _ in range(records):
        labels.append(int(left.argmax()))
        left[labels[-1]] -= 1
    return torch.tensor(sorted(labels), device=gradient.device)
