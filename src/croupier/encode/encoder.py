"""Encoders: how an update becomes coordinates on the wire, and how the server reads what was released."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.part import Part
from croupier.core.update import NO_LUGGAGE, Form, Gathered, Layout, Modulus, Update
from croupier.errors import SpecError

Brief = Mapping[str, Tensor]
Weights = Literal["uniform", "open", "slot"]


@dataclass(frozen=True)
class Payload:
    """What leaves a client, and what the client notes for itself.

    `noted` (clamped values and the like) stays at home: it depends on private data.
    """

    vector: Tensor = field(repr=False)
    luggage: Mapping[str, Tensor] = field(default_factory=lambda: NO_LUGGAGE, repr=False)
    noted: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Released:
    """What a release let out: rows or sums, who was present, and luggage where nothing is hidden.

    `layout` is needed where coordinates are not all treated alike. `sizes` says how many clients each row is a sum of,
    and `by_size` whether it counts for as many.
    """

    present: tuple[str, ...]
    rows: Tensor | None = None
    sums: Tensor | None = None
    luggage: Mapping[str, Tensor] = field(default_factory=lambda: NO_LUGGAGE)
    ids: tuple[str, ...] | None = None
    layout: Layout | None = None
    sizes: Tensor | None = None
    by_size: bool = False


class Encoder(Part):
    """How an update becomes coordinates.

    `weights`: `uniform` counts every client alike; `open` sends the number of records beside the row, in the clear;
    `slot` multiplies the update by records / cap and sends that factor as one more coordinate, released like the rest.
    """

    verb: ClassVar[str] = "encode"
    # Whether clients must agree on a secret before the first round.
    agrees: ClassVar[bool] = False

    form: Form = "weights"
    weights: Weights = "uniform"
    cap: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _cap_fits(self) -> Self:
        if (self.weights == "slot") != (self.cap is not None):
            raise SpecError(
                f"protocol.encode.cap = {self.cap} with weights = {self.weights!r}: weights = 'slot' needs it (set "
                "protocol.encode.cap to the largest number of records a client may count for), and nothing else does"
            )
        return self

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The type of a coordinate on the wire."""

    @property
    def modulus(self) -> Modulus:
        """What sums are taken modulo; None where coordinates are not residues."""
        return None

    @property
    def unary(self) -> bool:
        """Whether coordinates are residues in unary, as bits."""
        return isinstance(self.modulus, tuple)

    @property
    def scaled(self) -> bool:
        """Whether rows arrive multiplied by their weight."""
        return self.weights == "slot"

    def slots(self, layout: Layout) -> int:
        """How many coordinates travel for a vector of this layout."""
        return layout.size + self.scaled

    def field(self, layout: Layout) -> wire.Field:
        """The vector as it leaves a client."""
        return wire.Field("vector", self.dtype, (self.slots(layout),), share_last=self.scaled)

    def luggage(self, inputs: tuple[int, ...] = ()) -> tuple[wire.Field, ...]:
        """What travels beside a row; `inputs` is the shape of a record."""
        return (wire.Field("weight", "<f8", (1,), positive=True),) if self.weights == "open" else ()

    @abstractmethod
    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """What the client sends."""

    @abstractmethod
    def decode(self, released: Released, brief: Brief) -> Gathered:
        """What the server makes of what was released."""

    def says(self) -> tuple[str, ...]:
        """Lines of the statement: losses and what travels in the clear."""
        how = {
            "uniform": "every client counts alike; numbers of records are not sent",
            "open": "each client's number of records is sent in the clear beside its update",
            "slot": f"each client's number of records (up to {self.cap}) travels as one more released coordinate",
        }
        return (how[self.weights],)

    def warns(self) -> Mapping[str, str]:
        """Lines of the statement with a head of their own: what one might think it gives, and does not."""
        return {}

    def _factor(self, update: Update) -> tuple[float, int]:
        """records / cap, and whether the client's records were more than the cap lets count."""
        if self.cap is None:
            return 1.0, 0
        count = float(update.luggage["weight"][0])
        return min(count / self.cap, 1.0), int(count > self.cap)


def row_weights(encoder: Encoder, released: Released) -> Tensor:
    """One weight a row, for rows that came with theirs beside them or all count alike."""
    count = len(released.present)
    return released.luggage["weight"][:, 0] if encoder.weights == "open" else torch.ones(count, dtype=torch.float64)
