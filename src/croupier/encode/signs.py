"""Signs: one bit a coordinate, which way it should move; RAIN's encoding.

The model, and a commitment to the server's reference, are bound into what a client signs (`handed`), so that a server
cannot hand different clients different models unseen. Presets `rain` and `rain-honest` use it: `place.two_servers`
works on shares of the packed bits, `release.scored` says what leaves of them, and `aggregate.signs`, which makes the
reference, takes a step along them.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import canon, wire
from croupier.core.coins import Node
from croupier.core.update import Form, Gathered, Layout, Update
from croupier.encode.encoder import Brief, Encoder, Payload, Released
from croupier.errors import ProtocolError, RangeError, SpecError

# Bytes of the random value that hides a commitment's content.
NONCE = 32


def bits_field(name: str, slots: int) -> wire.Field:
    """A row of bits."""
    return wire.Field(name, "|u1", (slots,), 1, widths=(1,))


def reference_fields(slots: int) -> tuple[wire.Field, ...]:
    """A reference direction as bits, and what opens the commitment to it."""
    return (bits_field("reference", slots), wire.Field("nonce", "|u1", (NONCE,)))


def commitment(reference: Tensor, nonce: Tensor) -> Tensor:
    """What binds a reference before it is shown, and hides it until then."""
    digest = canon.digest(("reference", nonce, reference))
    return torch.frombuffer(bytearray(digest), dtype=torch.uint8)


def handed(model: Tensor, bound: Tensor) -> Tensor:
    """What binds the model that a client was handed, with the commitment beside it."""
    return torch.frombuffer(bytearray(canon.digest(("handed", model, bound))), dtype=torch.uint8)


def bits_of(vector: Tensor, coins: Node | None) -> tuple[Tensor, int]:
    """Signs as bits: 1 for positive, 0 for negative; and how many zeros there were.

    Zeros are tossed by coins, or count as positive without them.
    """
    bits = (vector >= 0).to(torch.uint8)
    none = torch.nonzero(vector == 0)[:, 0]
    if coins is not None and len(none):
        bits[none] = torch.from_numpy(coins.child("zeros").secure().below(2, len(none)).astype("uint8"))
    return bits, len(none)


class Signs(Encoder, use="signs"):
    """1 where a coordinate is to grow, 0 where it is to shrink; where it is to stay, a coin decides.

    With `zeros` "up" it counts as growing, as RAIN's program has it: then all rows agree wherever nothing is learnt (at
    the edges of pictures, say), lie nearer to the reference than chance, and a gate at chance lets everybody in.

    RAIN's equation 5 without its noise, which is `privacy`'s. Sums of signs are weighed: releases that add
    residues cannot take them.
    """

    signs_only: ClassVar[bool] = True

    form: Form = Field("delta", description="always `delta`: whether a coordinate grows or shrinks")
    zeros: Literal["coin", "up"] = Field(
        "coin",
        description="where it does neither a `coin` decides, or it counts as growing (`up`), as the paper's program "
        "has it",
    )

    @model_validator(mode="after")
    def _differences(self) -> Self:
        if self.form != "delta" or self.weights != "uniform":
            raise SpecError(
                f"protocol.encode.form = {self.form!r} with weights = {self.weights!r}: signs are of differences, and "
                "every client counts alike; use form = 'delta' and weights = 'uniform'"
            )
        return self

    @property
    def dtype(self) -> str:
        """A byte in memory, a bit on the wire."""
        return "|u1"

    @property
    def modulus(self) -> int:
        """Two values."""
        return 2

    def field(self, layout: Layout) -> wire.Field:
        """Bits without gaps."""
        return bits_field("vector", self.slots(layout))

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """The bits; how many were tossed is noted for the client. Raises: RangeError on statistics."""
        if measured := [part.name for part in update.layout.carried if part.role == "statistic"]:
            raise RangeError(
                f"{measured[0]} is a running statistic, of which a sign means nothing; use a model without "
                "batch normalisation"
            )
        bits, zeros = bits_of(update.vector, coins if self.zeros == "coin" else None)
        return Payload(bits, {}, {"zeros": zeros})

    def decode(self, released: Released, brief: Brief) -> Gathered:
        """Rows of -1 and 1, or a weighted sum of them."""
        if released.sums is not None:
            total = released.luggage["total"].double()
            return Gathered(released.present, sums=released.sums, weights=total, form=self.form)
        if released.rows is None:
            raise ProtocolError("nothing was released")
        rows = released.rows.float() * 2 - 1
        weights = torch.ones(len(rows), dtype=torch.float64)
        return Gathered(released.present, rows, weights=weights, ids=released.ids, form=self.form)

    def says(self) -> tuple[str, ...]:
        """What is lost."""
        return (*super().says(), "a coordinate takes 1 bit: its sign; how large it is is not sent")
