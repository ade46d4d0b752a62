"""Shuffles: rows leave cut into models, layers or single parameters, each piece permuted among the clients.

The finer the pieces, the less of a client stays together. Each piece is permuted by its own uniform permutation from
the coins of whoever shuffles: a relay (`place.relay`) or a mix network (`place.chain`), which moves shares by
`Release.moved`. Presets such as `digits-shuffled` name it, and `release.bucketed` shuffles inside each bucket by it.
Such shuffles hide names, but values still tell their senders apart: how well un-shuffling attacks do is the audit's
question `source`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pydantic
import torch
from torch import Tensor

from croupier.core.coins import Choices, Ints, Node
from croupier.core.update import Layout, Modulus
from croupier.core.wire import Field
from croupier.kernels.threads import each
from croupier.release.release import Release, Shape, Table, blocks, whole

Grain = Literal["model", "layer", "parameter"]
Span = tuple[int, int]
Row = npt.NDArray[Any]


class Shuffle(Release, use="shuffle"):
    """Rows whose pieces are permuted among the clients, each piece by its own uniform permutation.

    These are the shuffles that the source-inference paper (RNS) attacks by its Algorithms 2, 3 and 5.
    """

    shape: ClassVar[Shape] = "rows"
    hides: ClassVar[frozenset[str]] = frozenset({"ids"})
    least: ClassVar[int] = 2

    grain: Grain = pydantic.Field(
        "parameter", description="what moves together: a whole `model`, a `layer`, or each `parameter` by itself"
    )

    @property
    def pieces(self) -> Grain:
        """The pieces that `grain` names."""
        return self.grain

    @property
    def coarse(self) -> bool:
        """True for whole models and layers, which have more than one coordinate."""
        return self.grain != "parameter"

    @property
    def intact(self) -> bool:
        """True for whole models only: layers and parameters of one row come from several clients."""
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
        # Made by NumPy, which asks for large pages: touching small ones would take as long as the shuffle.
        out = np.empty((len(rows), len(rows[0])), rows[0].numpy().dtype)
        shuffle_into(out, rows, self.grain, layout, coins)
        return {"rows": torch.from_numpy(out)}

    def moved(self, rows: Table, layout: Layout, modulus: Modulus, coins: Node) -> Table:
        """By the very permutations of the release."""
        out = np.empty_like(rows)
        move_into(out, list(rows), self.grain, layout, coins)
        return out

    def reveals(self) -> str:
        """What is left of the rows."""
        return {
            "model": "every client's whole update, as a row without a name",
            "layer": "the values of every layer, as rows without names that differ in order from layer to layer",
            "parameter": "the values of every parameter, as a set: which client sent which is permuted anew each time",
        }[self.grain]


def shuffle_into(out: Table, rows: Sequence[Tensor], grain: Grain, layout: Layout, coins: Node) -> None:
    """Write rows whose pieces are permuted among them."""
    move_into(out, [row.numpy() for row in rows], grain, layout, coins)


def move_into(out: Table, rows: Sequence[Row], grain: Grain, layout: Layout, coins: Node) -> None:
    """The same for rows of any type of numpy's, which torch may not have: shares of rows, for example."""
    if grain == "parameter":
        _single(rows, out, coins)
    else:
        _pieces(rows, out, _draw(grain, len(rows), layout, out.shape[1], coins))


def _draw(grain: Grain, count: int, layout: Layout, slots: int, coins: Node) -> list[tuple[Span, Ints]]:
    """One permutation for whole models, or one a layer, each with the spans that it moves.

    Unlike those of single parameters they are not drawn for blocks of 2^16 coordinates: a piece may reach over several.
    """
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


def _single(rows: Sequence[Row], out: Table, coins: Node) -> None:
    """Every coordinate by its own permutation."""

    def permute(start: int, stop: int, choices: Choices) -> None:
        for row, target in zip(rows, out, strict=True):
            target[start:stop] = row[start:stop]
        choices.permute_columns(out[:, start:stop])

    # Each block has coins of its own, named here and in order, so that it does not matter when it is done.
    each(
        [
            partial(permute, start, stop, coins.child("block", number).secure())
            for number, start, stop in blocks(out.shape[1])
        ]
    )


def _pieces(rows: Sequence[Row], out: Table, drawn: list[tuple[Span, Ints]]) -> None:
    """Every piece by the permutation that was drawn for it."""
    for (first, last), order in drawn:
        for target, source in zip(out, order.tolist(), strict=True):
            target[first:last] = rows[source][first:last]
