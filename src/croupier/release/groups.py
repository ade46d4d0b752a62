"""Sums over small groups: rows for rules that need several values a coordinate, each hidden among a few clients.

Medians and other robust rules need several values a coordinate, and a sum is one. Between the two lie sums of small
groups, each large enough that one update is hidden among honest others. Any member that sees a group's sum can subtract
its own update, so that in a pair it reads the other's. Pairs, as the source-inference paper (RNS) has them, must
therefore be asked for (`literal`). A description names this release (`protocol.release = "groups"`), and
`papers.rns.source_inference` compares it for that paper (`croupier reproduce`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.update import Layout, Modulus
from croupier.errors import ProtocolError, SpecError
from croupier.release.release import Release, Shape, whole

# Fewer honest clients than these hide nothing: of two, each knows the other's update once it knows their sum.
HONEST = 3


class Groups(Release, use="groups"):
    """Clients are dealt into groups of `size` at random, anew each round; of each group its sum leaves.

    The source-inference paper's Appendix F.9 deals pairs. A member that colludes with the server subtracts itself, so
    that each group must keep `HONEST` honest members besides `colluders`; `literal` waives that and allows groups as
    small as the paper's pairs. Left-over clients join the first groups.
    """

    shape: ClassVar[Shape] = "rows"
    hides: ClassVar[frozenset[str]] = frozenset({"ids"})
    grouped: ClassVar[bool] = True

    size: int = Field(3, ge=2, description="clients in a group")
    colluders: int = Field(
        0, ge=0, description="so many are assumed to tell what they sent; three honest ones must remain in a group"
    )
    literal: bool = Field(False, description="waives that: pairs, as the paper has them")

    @model_validator(mode="after")
    def _hidden(self) -> Self:
        if not self.literal and self.size - self.colluders < HONEST:
            raise SpecError(
                f"protocol.release.size = {self.size} with colluders = {self.colluders}: a group must keep {HONEST} "
                f"honest members; set size to {HONEST + self.colluders} or more, or literal = true for pairs"
            )
        return self

    @property
    def least(self) -> int:  # type: ignore[override]
        """One group, at least."""
        return self.size

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[wire.Field, ...]:
        """How many groups there are, how large each of them is, and its sum.

        No field holds the number of groups. Instead `grouped` has a flag for each client present, of which as many are
        1 as there are groups, and `sizes` and `rows` have an entry for each 1.
        """
        grouped = wire.Field("grouped", "|u1", ("present",), 1)
        return (
            grouped, wire.Field("sizes", "<i4", ("grouped",), (1 << 31) - 1),
            wire.Field("rows", dtype, ("grouped", slots), **whole(modulus)),
        )  # fmt: skip

    def __call__(self, rows: Sequence[Tensor], layout: Layout, modulus: Modulus, coins: Node) -> Mapping[str, Tensor]:
        """Deal, and add. Raises: ProtocolError on floats or when there are too few for one group."""
        if not isinstance(modulus, int) or rows[0].is_floating_point():
            raise ProtocolError("only integers are summed: the last bits of a float sum tell the order")
        if len(rows) < self.size:
            raise ProtocolError(f"{len(rows)} clients do not fill a group of {self.size}")
        order = coins.child("deal").secure().permutation(len(rows))
        groups = np.array_split(order, len(rows) // self.size)
        sums = [torch.stack([rows[i] for i in group]).long().sum(0) % modulus for group in groups]
        grouped = torch.tensor([number < len(groups) for number in range(len(rows))], dtype=torch.uint8)
        return {
            "grouped": grouped,
            "sizes": torch.tensor([len(group) for group in groups], dtype=torch.int32),
            "rows": torch.stack(sums).to(rows[0].dtype),
        }

    def reveals(self) -> str:
        """Sums over few clients each."""
        return (
            f"the sums of random groups of {self.size} or more clients, anew each round, without their names. Over "
            "rounds they can tell more about a client: nothing is claimed for that"
        )
