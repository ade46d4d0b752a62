"""The release that lets out nothing but a sum.

All that a mean needs. Rows must be residues of one modulus, so that the sum is exact and the order of addition does not
show; a sum of fewer than two clients is refused. `place.servers` and `place.masks` compute it on shares, `place.relay`
in the clear; presets such as `digits-sum` and `rns-servers` name it, and `release.bucketed` adds up each bucket by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from croupier.core.coins import Node
from croupier.core.update import Layout, Modulus
from croupier.core.wire import Field
from croupier.errors import ProtocolError
from croupier.release.release import Release, Shape, blocks, whole


class Sum(Release, use="sum"):
    """The sum of each coordinate over the clients, modulo the encoder's modulus."""

    shape: ClassVar[Shape] = "sums"
    hides: ClassVar[frozenset[str]] = frozenset({"ids", "rows"})
    least: ClassVar[int] = 2

    def fields(self, dtype: str, modulus: Modulus, slots: int) -> tuple[Field, ...]:
        """One residue a coordinate."""
        return (Field("sums", dtype, (slots,), **whole(modulus)),)

    def __call__(
        self,
        rows: Sequence[Tensor],
        layout: Layout,
        modulus: Modulus,
        coins: Node,
    ) -> Mapping[str, Tensor]:
        """Add one client's block at a time. Raises: ProtocolError on floats, whose last bits tell the order."""
        if not isinstance(modulus, int) or rows[0].is_floating_point():
            raise ProtocolError("only integers are summed: the last bits of a float sum tell the order")
        total = torch.zeros(len(rows[0]), dtype=torch.int64)
        for _, start, stop in blocks(len(total)):
            part = total[start:stop]
            for row in rows:
                part.add_(row[start:stop]).remainder_(modulus)
        return {"sums": total.to(rows[0].dtype)}

    def reveals(self) -> str:
        """The sum."""
        return "the sum of the encoded updates of the clients present, exact, coordinate by coordinate"
