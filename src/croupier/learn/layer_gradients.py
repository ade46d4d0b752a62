"""What the gradients of a network's first and last linear layers tell of the records behind them, without a search.

For linear layers it follows by algebra: the gradient of a first layer with biases holds a single record whole, and the
last layer's tells classes. So an audit can show exact leaks at little cost, and a search can begin with known labels.
`audit.attacks.reconstruction` uses all of it, `audit.membership` cuts out the first layer's part, and laboratory
attacks read labels. The class of one record is read as by Zhao et al. 2020; counting the classes of several is
Croupier's own. Reading classes supposes that the loss is the cross-entropy of logits.
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
    """What a gradient has for a linear layer that reads whole records: its weights, one row a unit, and its biases.

    The vector may be a model's change as well: anything that lies as the network's weights do.
    """
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
    """The class of a single record, for the cross-entropy: only its own bias of the last layer has a negative gradient.

    Without biases it is the one whose row of the weights' gradient points against all others; with two classes each row
    points against the other, and nothing is told. Raises: Unsuited for two classes without biases, and where the last
    layer is not linear.
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
    """The classes of several records, counted from the gradient of the last layer's biases.

    For each class it is the mean probability that the network gives the class over these records, less the fraction of
    them that are of it. The probabilities are taken from what the network says of noise, which is close only before
    training. Raises: SpecError for a last layer without biases; Unsuited where the last layer is not linear.
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
