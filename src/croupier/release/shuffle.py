"""Naive shuffles: rows leave cut into models, layers or single parameters, each piece permuted among the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.core.coins import Ints, Node
from croupier.core.update import Layout, Modulus
from croupier.core.wire import Field
from croupier.release.release import Release, Shape, blocks, whole

Grain = Literal["model", "layer", "parameter"]
Span = tuple[int, int]


class Shuffle(Release, use="shuffle"):
    """Rows whose pieces are permuted among the clients, each piece by its own uniform permutation.

    From: the shuffles that source-inference Algorithms 2, 3 and 5 attack.
    """

    shape: ClassVar[Shape] = "rows"
    hides: ClassVar[frozenset[str]] = frozenset({"ids"})
    least: ClassVar[int] = 2

    grain: Grain = "parameter"

    @property
    def coarse(self) -> bool:
        """Whole models and layers are such pieces."""
        return self.grain != "parameter"

    @property
    def intact(self) -> bool:
        """Only whole models stay together."""
        return self.grain == "model"

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """As many rows as clients; which is whose is gone."""
        return (Field("rows", dtype, ("present", slots), **whole(modulus)),)

    def __call__(
        self,
        rows: Sequence[Tensor],
        layout: Layout,
        modulus: Modulus,
        coins: Node,
    ) -> Mapping[str, Tensor]:
        """The permuted rows, block by block."""
        out = torch.empty((len(rows), len(rows[0])), dtype=rows[0].dtype)
        shuffle_into(out, rows, self.grain, layout, coins)
        return {"rows": out}

    def reveals(self) -> str:
        """What is left of the rows."""
        return {
            "model": "every client's whole update, as a row without a name",
            "layer": "the values of every layer, as rows without names that differ in order from layer to layer",
            "parameter": "the values of every parameter, as a set: which client sent which is permuted anew each time",
        }[self.grain]


def shuffle_into(out: Tensor, rows: Sequence[Tensor], grain: Grain, layout: Layout, coins: Node) -> None:
    """Write rows whose pieces are permuted among them, block by block."""
    slots = len(rows[0])
    drawn = _draw(grain, len(rows), layout, slots, coins)
    for number, start, stop in blocks(slots):
        batch = np.stack([row[start:stop].numpy() for row in rows])
        if grain == "parameter":
            coins.child("block", number).secure().permute_columns(batch)
        else:
            batch = _moved(batch, start, stop, drawn)
        out[:, start:stop] = torch.from_numpy(batch)


def _draw(grain: Grain, count: int, layout: Layout, slots: int, coins: Node) -> list[tuple[Span, Ints]]:
    """The permutations that span blocks: one for the model, or one a layer; drawn once, before the first block."""
    if grain == "parameter":
        return []
    if grain == "model":
        return [((0, slots), coins.child("model").secure().permutation(count))]
    pieces = dict(layout.layers())
    # A weight that travels as one more slot is a layer of its own: beside a layer it would mark whose that is.
    pieces |= {"the weight slot": [(layout.size, slots)]} if slots > layout.size else {}
    drawn: list[tuple[Span, Ints]] = []
    for name, spans in pieces.items():
        order = coins.child("layer", name).secure().permutation(count)
        drawn += [(span, order) for span in spans]
    return drawn


def _moved(batch: npt.NDArray[Any], start: int, stop: int, drawn: list[tuple[Span, Ints]]) -> npt.NDArray[Any]:
    out = np.empty_like(batch)
    for (first, last), order in drawn:
        lo, hi = max(first, start) - start, min(last, stop) - start
        if lo < hi:
            out[:, lo:hi] = batch[order, lo:hi]
    return out
