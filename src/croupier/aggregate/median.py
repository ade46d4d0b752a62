"""The coordinate-wise median: every parameter by itself takes the middle of what the clients sent."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator, Desk
from croupier.core.flow import Memory
from croupier.core.update import Gathered, Model
from croupier.errors import ProtocolError

# Coordinates that are sorted at once.
_BLOCK = 1 << 16


class Median(Aggregator, use="median"):
    """The middle of each coordinate's values, or the mean of the two middle ones; every client counts alike.

    It needs rows but not their order, so that it works on what a shuffle of single parameters lets out. A weighted
    median is not offered: clients state their own weights, and one that states a large one would be the median.
    From: Yin et al. 2018, Byzantine-robust distributed learning.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"rows"})

    def __call__(self, gathered: Gathered, desk: Desk, memory: Memory) -> tuple[tuple[Model, ...], Memory]:
        """One model: the median, or the last model moved by it. Raises: ProtocolError without rows that count alike."""
        blocks = _rows(gathered).split(_BLOCK, 1)  # type: ignore[no-untyped-call]
        middle = torch.cat([_middle(block) for block in blocks])
        if gathered.form == "delta":
            middle = desk.models[0].vector.double() + middle
        return (Model(middle.float(), gathered.frame),), memory

    def tolerates(self) -> str:
        """What follows from a median alone."""
        return (
            "fewer than half of the rows: while fewer than half of the values sent for a parameter are lies, their "
            "median lies between the least and the greatest honest one; nothing is claimed on whether training succeeds"
        )


def _rows(gathered: Gathered) -> Tensor:
    rows, weights = gathered.rows, gathered.weights
    if rows is None or not len(rows):
        raise ProtocolError("aggregate = 'median' needs rows: no median can be read from a sum; use release = 'rows'")
    if gathered.scaled or weights is None or len(weights) != len(rows) or bool((weights != weights[0]).any()):
        raise ProtocolError("aggregate = 'median' counts every client alike; use encode.weights = 'uniform'")
    return rows


def _middle(rows: Tensor) -> Tensor:
    """The medians in float64, where the mean of two floats is exact."""
    low, high = (len(rows) - 1) // 2, len(rows) // 2
    ordered = rows.sort(dim=0).values
    # Zeros of both signs are equal, so their order is the rows' own; adding zero leaves one of them.
    return (ordered[low].double() + ordered[high].double()) / 2 + 0.0
