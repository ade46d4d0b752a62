"""Plain 32-bit floats: the update's own numbers travel, and nothing is hidden.

The default of `protocol.encode`: it shows an undefended server, and feeds releases that let rows out, shuffled or not.
The last bits of a sum of floats depend on the order of its rows, and would tell it: `pipeline` refuses releases that
add floats up, and `decode` takes no sum. Presets such as `digits` and `intra` name it, audits build the protocols that
they compare with it, and `encode.hidden` derives from it.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from croupier.core.coins import Node
from croupier.core.update import Gathered, Update
from croupier.encode.encoder import Brief, Encoder, Payload, Released, row_weights
from croupier.errors import ProtocolError


class Floats(Encoder, use="floats"):
    """The update's own float32 coordinates.

    With weights = "slot" they are multiplied by the client's share, which travels along as one more coordinate: whoever
    has the whole row can undo that but for the rounding to float32.
    """

    verbatim: ClassVar[bool] = True

    @property
    def dtype(self) -> str:
        """Four bytes."""
        return "<f4"

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """The vector; where its weight travels as one more coordinate, times that weight and with it at the end."""
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
