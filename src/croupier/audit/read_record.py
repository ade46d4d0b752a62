"""The one record behind a gradient: read off a linear layer, exactly, or searched for with the label that it shows.

Used by the attacks of the questions of reconstruction and permutation, and by papers.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from croupier.audit.invert import SearchRecipe, Target, search_records
from croupier.core.coins import Coins
from croupier.errors import Unsuited
from croupier.learn.ends import Entrance, find_entrance, last_gradient
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


def record_behind(
    gradient: Tensor, network: nn.Module, shape: Sequence[int], classes: int, coins: Coins,
    search: SearchRecipe | None = None,
) -> Tensor:  # fmt: skip
    """The one record behind a network's gradient: searched for, or, without a recipe, read off its first layer.

    Raises: Unsuited for a first layer that is not linear with biases, or a label or gradient that cannot be read.
    """
    if search is not None:
        target = Target(gradient, 1, tuple(shape), classes, label_of(gradient, network, shape))
        return search_records(search, network, target, coins.child(0))[0]
    first = find_entrance(network, shape)
    if first is None:
        raise Unsuited("the first layer is not linear with biases: search for the record instead (audit.invert)")
    return off_layer(*at_entrance(gradient, network, first)).reshape(1, *shape)


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
