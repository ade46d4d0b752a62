"""Plain 32-bit floats: nothing is lost, nothing is hidden.

The default, and the form in which an undefended server sees updates. Sums of floats depend on their order in the last
bits, so that releases which add rows refuse it.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from croupier.core.coins import Node
from croupier.core.update import Gathered, Update
from croupier.encode.encoder import Brief, Encoder, Payload, Released, row_weights
from croupier.errors import ProtocolError


class Floats(Encoder, use="floats"):
    """The update's own float32 coordinates."""

    verbatim: ClassVar[bool] = True

    @property
    def dtype(self) -> str:
        """Four bytes."""
        return "<f4"

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """The vector, scaled where its weight travels as a slot."""
        beside = {"weight": update.luggage["weight"]} if self.weights == "open" else {}
        if not self.scaled:
            return Payload(update.vector, beside)
        factor, capped = self._factor(update)
        row = torch.cat([update.vector.double() * factor, torch.tensor([factor], dtype=torch.float64)])
        return Payload(row.float(), beside, {"capped_weights": capped})

    def decode(self, released: Released, brief: Brief) -> Gathered:
        """The rows. Raises: ProtocolError on sums, because sums of floats are never released."""
        rows = released.rows
        if rows is None:
            raise ProtocolError("floats arrive as rows, never as sums: the last bits of a float sum tell the order")
        weights = rows[:, -1].double() if self.scaled else row_weights(self, released)
        rows = rows[:, :-1] if self.scaled else rows
        return Gathered(released.present, rows, weights=weights, scaled=self.scaled, ids=released.ids, form=self.form)
