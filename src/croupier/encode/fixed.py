"""Fixed point: integers as residues of one power of two, so that sums are exact and tell nothing about order.

The release `sum` and the placements `sum-servers` and `masks` need it: shares are uniform residues of a power of two,
and each travels in that power's bits. Presets such as `rns-servers`, `rns-masks`, `intra-sum` and `flower` name it. How
values become integers is `grid`'s; here is only the modulus, the least power of two that no sum of `clients` can leave.
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.core import wire
from croupier.core.update import Layout
from croupier.encode.encoder import PublicGrid, Released
from croupier.encode.grid import OnGrid
from croupier.errors import IntegrityError
from croupier.kernels import residues, shares


class FixedPoint(OnGrid, use="fixed"):
    """Integers modulo the power of two that holds the largest sum, in no more bits than that.

    n clients that send at most v (`top`) on either side of 0 have 2 n v + 1 possible sums: the bound that a lossless
    form of RNS needs, here with one modulus.
    """

    @property
    def dtype(self) -> str:
        """The smaller of two integer types that holds a residue."""
        return "<i4" if self.modulus <= 1 << 31 else "<i8"

    @property
    def modulus(self) -> int:
        """The least power of two above the range of the sum."""
        return 1 << (2 * self.clients * self.top).bit_length()

    @property
    def bits(self) -> int:
        """Bits of a coordinate on the wire."""
        return (self.modulus - 1).bit_length()

    @property
    def residue_bits(self) -> int:
        """The same: a coordinate is nothing but a residue."""
        return self.bits

    @property
    def gap(self) -> tuple[int, int]:
        """No honest client sends a residue between these two: the largest value, or weight, and the lowest value."""
        return max(self.top, self.unit * self.scaled), self.modulus - self.top

    def public_grid(self) -> PublicGrid | None:
        """With rounding = 'even'; otherwise a value does not go to the nearest point, which proofs rest on."""
        step = self.scale / self.unit
        return PublicGrid(step, step * self.top, self.modulus, self.clients) if self.rounding == "even" else None

    def field(self, layout: Layout) -> wire.Field:
        """Residues without gaps between them."""
        return wire.Field(
            "vector", self.dtype, (self.slots(layout),), self.modulus - 1, self.gap, widths=(self.bits,)
        )  # fmt: skip

    def _rounded(
        self, values: Tensor, grid: residues.Quantiser, draws: residues.Words, last: list[int]
    ) -> tuple[Tensor, int]:
        """Residues at once, without an array of wide integers."""
        numbers, clamped = residues.wrapped(values.numpy(), grid, draws, self.bits, last)
        return torch.from_numpy(numbers), clamped

    def summed(self, released: Released) -> Tensor:
        """Released rows or sums as signed integers. Raises: IntegrityError where there are neither."""
        got = released.rows if released.rows is not None else released.sums
        if got is None:
            raise IntegrityError("nothing was released")
        return self.signed(got)

    def signed(self, residues: Tensor) -> Tensor:
        """The integers nearest to 0; but for weights in the last coordinate, which are never negative."""
        numbers = torch.from_numpy(shares.signed(residues.numpy(), self.bits))
        if self.scaled:
            numbers[..., -1] = residues[..., -1]
        return numbers

    def says(self) -> tuple[str, ...]:
        """The modulus, too."""
        return (*super().says(), f"a coordinate takes {self.bits} bits: sums are taken modulo {self.modulus}")
