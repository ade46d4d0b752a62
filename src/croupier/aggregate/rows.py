"""What rules on rows have in common: inner products, norms and sums in float64, a block of coordinates at a time.

A row is one client's (or group's) difference or model, of any float type on any device. Nothing is centred first: one
far row would then take the digits of all the others. Everything that rules compute of high-dimensional rows is a few
inner products. Taken block by block they need no copy of the rows in float64, on the CPU or on a GPU. All rules but the
mean and RAIN's own use it, and the laboratory for its comparisons with RAIN.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from croupier.core.update import Gathered
from croupier.errors import ProtocolError

# Coordinates that are widened to float64 at once.
_BLOCK = 1 << 16


def alike(gathered: Gathered, use: str) -> Tensor:
    """The rows of a release where every client counts alike. Raises: ProtocolError where there are none."""
    rows, weights = gathered.rows, gathered.weights
    if rows is None or not len(rows):
        raise ProtocolError(f"aggregate = {use!r} needs rows: it cannot be read from a sum; use release = 'rows'")
    if gathered.scaled or weights is None or len(weights) != len(rows) or bool((weights != weights[0]).any()):
        raise ProtocolError(f"aggregate = {use!r} counts every client alike; use encode.weights = 'uniform'")
    return rows


def gram(rows: Tensor) -> Tensor:
    """The inner product of every two rows."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for block in _blocks(rows):
        total += block @ block.T
    return (total + total.T) / 2


def along(rows: Tensor, one: Tensor) -> Tensor:
    """The inner product of every row with one vector."""
    return gram_between(rows, one.reshape(1, -1))[:, 0]


def gram_between(rows: Tensor, others: Tensor) -> Tensor:
    """The inner product of every row with every one of the other table's rows."""
    total = torch.zeros(len(rows), len(others), dtype=torch.float64, device=rows.device)
    for block, other in zip(_blocks(rows), _blocks(others), strict=True):
        total += block @ other.T
    return total


def norms(rows: Tensor) -> Tensor:
    """The length of every row."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    for block in _blocks(rows):
        total += block.square().sum(1)
    return total.sqrt()


def squared_distances(rows: Tensor) -> Tensor:
    """The squared distance of every two rows, over all coordinates together."""
    products = gram(rows)
    squares = products.diagonal()
    apart = (squares[:, None] + squares - 2 * products).clamp_(min=0)
    return apart.fill_diagonal_(0)


def cosines(rows: Tensor) -> Tensor:
    """The cosine of every two rows, 0 where one has no length."""
    products = gram(rows)
    lengths = products.diagonal().sqrt()
    return share(products, lengths[:, None] * lengths).clamp(-1, 1)


def cosines_to(rows: Tensor, one: Tensor) -> Tensor:
    """The cosine of every row with one vector, 0 where either has no length."""
    return share(along(rows, one), norms(rows) * one.double().norm()).clamp(-1, 1)


def combine(rows: Tensor, weights: Tensor) -> Tensor:
    """The sum of the rows, each times its weight."""
    return torch.cat([weights.double() @ block for block in _blocks(rows)])


def share(part: Tensor, whole: Tensor) -> Tensor:
    """The part divided by the whole, element by element; 0 where the whole is 0."""
    nothing = whole == 0
    return torch.where(nothing, 0.0, part / torch.where(nothing, 1.0, whole))


def middle(rows: Tensor) -> Tensor:
    """The medians of the columns in float64; the mean of the two middle values where their number is even."""
    low, high = (len(rows) - 1) // 2, len(rows) // 2
    ordered = rows.sort(dim=0).values
    # Zeros of both signs are equal, so their order is the rows' own; adding zero leaves one of them.
    return (ordered[low].double() + ordered[high].double()) / 2 + 0.0


def best(scores: Tensor, count: int, order: Tensor | None = None) -> Tensor:
    """The places of the least scores; of equal ones those that come first in `order`, which is the rows' unless given.

    Who could tell where a row lands would like ties to fall its way: a server draws an order of its own.
    """
    first = torch.arange(len(scores), device=scores.device) if order is None else order.to(scores.device)
    return first[torch.sort(scores[first], stable=True).indices[:count]]


def chosen(picks: Tensor, count: int) -> Tensor:
    """Weights for all `count` rows that make a plain mean of the picked ones; all 0 where none was picked."""
    weights = torch.zeros(count, dtype=torch.float64, device=picks.device)
    weights[picks] = 1.0
    return share(weights, weights.sum())


def _blocks(rows: Tensor) -> Iterator[Tensor]:
    for block in rows.split(_BLOCK, 1):  # type: ignore[no-untyped-call]
        yield block.double()
