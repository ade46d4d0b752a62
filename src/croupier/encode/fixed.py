"""Fixed point: decimal digits as residues of one power of two, so that sums are exact and tell nothing about order."""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core.coins import Node
from croupier.core.update import Gathered, Update
from croupier.encode.encoder import Brief, Encoder, Payload, Released, row_weights
from croupier.errors import IntegrityError, SpecError


class FixedPoint(Encoder, use="fixed"):
    """`digits` decimals of value / scale, rounded half to even, modulo the power of two that holds the largest sum.

    Values beyond the scale are clamped, and counted for the client itself. The scale is public: the round's brief, or
    `scale`. From: the corrected fixed-point construction for RNS (bound 2 n v + 1, v = 10^digits - 1), one modulus.
    """

    digits: int = Field(4, ge=1, le=9)
    clients: int = Field(ge=1)
    scale: float = Field(1.0, gt=0)

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
                f"encode.digits = {self.digits} with encode.clients = {self.clients}: sums need more than 62 bits; "
                "use fewer digits"
            )
        return self

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """Residues, with what was clamped noted for the client."""
        factor, capped = self._factor(update)
        unit = update.vector.double() / self._scale(brief)
        clamped = int(((unit * 10**self.digits).round().abs() > self.top).sum())
        whole = torch.round(unit.clamp(-1, 1) * factor * 10**self.digits)
        slots = [whole, torch.tensor([factor * 10**self.digits], dtype=torch.float64).round()][: 1 + self.scaled]
        beside = {"weight": update.luggage["weight"]} if self.weights == "open" else {}
        values = torch.cat(slots).clamp(-self.top, self.top).to(torch.int64)
        kind = torch.int32 if self.dtype == "<i4" else torch.int64
        return Payload((values % self.modulus).to(kind), beside, {"clamped": clamped, "capped_weights": capped})

    def decode(self, released: Released, brief: Brief) -> Gathered:
        """Floats again. Raises: IntegrityError when a sum lies outside what the present clients could have sent."""
        count = len(released.present)
        step = self._scale(brief) / 10**self.digits
        values = self._centred(released.rows if released.rows is not None else released.sums, count)
        total = values[..., -1] / 10**self.digits if self.scaled else None
        values = (values[..., :-1] if self.scaled else values) * step
        if released.rows is not None:
            weights = row_weights(self, released) if total is None else total
            return Gathered(
                released.present,
                values.float(),
                weights=weights,
                scaled=self.scaled,
                ids=released.ids,
                form=self.form,
            )
        weights = torch.tensor(float(count), dtype=torch.float64) if total is None else total
        return Gathered(released.present, sums=values, weights=weights, form=self.form)

    def says(self) -> tuple[str, ...]:
        """What the rounding costs."""
        return (
            *super().says(),
            f"each value is rounded to {self.digits} decimal digits of the public scale, and clamped beyond it: an "
            f"unweighted mean is within half a unit of digit {self.digits}; a client alone sees how many it clamped",
        )

    def _scale(self, brief: Brief) -> float:
        return float(brief["scale"][0]) if "scale" in brief else self.scale

    def _centred(self, residues: Tensor | None, count: int) -> Tensor:
        if residues is None:
            raise IntegrityError("nothing was released")
        half, residues = self.modulus // 2, residues.long()
        values = residues - self.modulus * (residues >= half)
        most = self.top * (count if residues.dim() == 1 else 1)
        if bool((values.abs() > most).any()):
            raise IntegrityError(f"a released value lies outside ±{most}, which {count} honest clients cannot reach")
        return values.double()
