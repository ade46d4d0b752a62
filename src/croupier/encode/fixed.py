"""Fixed point: decimal digits as residues of one power of two, so that sums are exact and tell nothing about order."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core.coins import Node
from croupier.core.update import Gathered, Update
from croupier.encode.encoder import Brief, Encoder, Payload, Released, row_weights
from croupier.errors import IntegrityError, RangeError, SpecError

# Beyond these a scale carries no model: a server that sends one wants a client's values to vanish or to be clamped.
LEAST, MOST = 2.0**-30, 2.0**30


class FixedPoint(Encoder, use="fixed"):
    """`digits` decimals of value / scale, rounded half to even, modulo the power of two that holds the largest sum.

    Values beyond the scale are clamped, and counted for the client itself. The scale is public: the round's brief, or
    `scale`. From: the corrected fixed-point construction for RNS (bound 2 n v + 1, v = 10^digits - 1), one modulus.
    """

    digits: int = Field(4, ge=1, le=9)
    clients: int = Field(ge=1)
    scale: float = Field(1.0, ge=LEAST, le=MOST)

    @property
    def dtype(self) -> str:
        """The smaller of two integer types that holds a residue."""
        return "<i4" if self.modulus <= 1 << 31 else "<i8"

    @property
    def top(self) -> int:
        """The largest integer one client sends."""
        return int(10**self.digits) - 1

    @property
    def modulus(self) -> int:
        """The least power of two above the range of the sum."""
        return 1 << (2 * self.clients * self.top).bit_length()

    @model_validator(mode="after")
    def _sums_fit(self) -> Self:
        if self.modulus > 1 << 62:
            raise SpecError(
                f"protocol.encode.digits = {self.digits} with clients = {self.clients}: sums need more than 62 bits; "
                "use fewer digits"
            )
        return self

    @property
    def gap(self) -> tuple[int, int]:
        """No honest client sends a residue between the largest value, or weight, and the smallest negative one."""
        return self.top + self.scaled, self.modulus - self.top

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """Residues, with what was clamped noted for the client."""
        factor, capped = self._factor(update)
        unit = update.vector.double() / self._scale(brief)
        whole = torch.round(unit.clamp(-1, 1) * factor * 10**self.digits)
        clamped = int(((unit.abs() > 1) | (whole.abs() > self.top)).sum())
        values = whole.clamp(-self.top, self.top).to(torch.int64) % self.modulus
        share = round(factor * 10**self.digits)
        if self.scaled:
            # The weight is no value: it reaches 10^digits itself, and is never negative.
            values = torch.cat([values, torch.tensor([share])])
        beside = {"weight": update.luggage["weight"]} if self.weights == "open" else {}
        kind = torch.int32 if self.dtype == "<i4" else torch.int64
        lost = {"lost_weights": 1} if self.scaled and share == 0 else {}
        return Payload(values.to(kind), beside, {"clamped": clamped, "capped_weights": capped, **lost})

    def decode(self, released: Released, brief: Brief) -> Gathered:
        """Floats again. Raises: IntegrityError when a sum lies outside what the present clients could have sent."""
        residues = released.rows if released.rows is not None else released.sums
        if residues is None:
            raise IntegrityError("nothing was released")
        count = len(released.present)
        reach = count if residues.dim() == 1 else 1
        total = self._weight(residues[..., -1].long(), reach) if self.scaled else None
        values = self._centred(residues[..., :-1] if self.scaled else residues, reach)
        values = values * (self._scale(brief) / 10**self.digits)
        if released.rows is not None:
            weights = row_weights(self, released) if total is None else total
            return Gathered(
                released.present, values.float(), weights=weights, scaled=self.scaled, ids=released.ids, form=self.form
            )
        weights = torch.tensor(float(count), dtype=torch.float64) if total is None else total
        return Gathered(released.present, sums=values, weights=weights, form=self.form)

    def says(self) -> tuple[str, ...]:
        """What the rounding costs."""
        return (
            *super().says(),
            f"each value is rounded to {self.digits} decimal digits of the public scale and clamped beyond it, modulo "
            f"{self.modulus}: with nothing clamped, an unweighted mean is within half a unit of digit {self.digits}, "
            "up to float32; a client alone sees how many values it clamped",
        )

    def _scale(self, brief: Brief) -> float:
        """The round's public scale. Raises: RangeError when it is none: a client must not be made to send nothing."""
        scale = float(brief["scale"][0]) if "scale" in brief else self.scale
        if not LEAST <= scale <= MOST:
            raise RangeError(f"scale = {scale}: a public scale lies between {LEAST:g} and {MOST:g}")
        return scale

    def _centred(self, residues: Tensor, reach: int) -> Tensor:
        values = residues.long()
        values = values - self.modulus * (values >= self.modulus // 2)
        self._within(values.abs(), reach * self.top)
        return values.double()

    def _weight(self, residues: Tensor, reach: int) -> Tensor:
        self._within(residues, reach * 10**self.digits)
        share: Tensor = residues.double() / 10**self.digits
        return share

    def _within(self, values: Tensor, most: int) -> None:
        if bool((values > most).any()):
            raise IntegrityError(f"a released value lies outside ±{most}, which the clients present cannot reach")
