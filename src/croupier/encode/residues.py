"""Residues in unary: each integer by its residues of small coprime moduli, each residue by as many ones.

This is Algorithm 1 of the source-inference paper (RNS), with the corrections that make it lossless: moduli whose
product is at least 2 n v + 1 (n clients, values up to v), canonical residues (also of negative numbers), m - 1 bits for
modulus m, rounding to the nearest. Bits of many clients can be shuffled and still be added up, because only the number
of ones counts.

The relay may then release the bits shuffled, their counts, or the residues of the sum alone (`release.bits`). Presets
`rns`, `rns-bits`, `rns-chain` and `rns-chain-proofs` use it; `kernels.residues` does the work on bits, and `Counted` is
what the audit's question `carries` reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.update import Layout, Update
from croupier.encode.encoder import Brief, Payload, Released
from croupier.encode.grid import OnGrid
from croupier.encode.moduli import Moduli, cheapest, values_of
from croupier.errors import IntegrityError, SpecError
from croupier.kernels import residues

# A residue's bits fit a word, and a sum's value an integer; the cheapest moduli stay far below both.
_LARGEST = 64
_PRODUCT = 1 << 63
# With fewer bits a number, the spare bits of a row's last byte could hold another one: its length must tell how many.
_FEWEST = 8


@dataclass(frozen=True)
class Counted:
    """The ones that were counted for every parameter (rows) and modulus (columns), as integers.

    A sum needs them only modulo each modulus: what they tell beyond that is what an audit asks. `units` is what 1 is
    worth in each parameter. `clients` were added up, each of whom sends at most `top`.
    """

    ones: Tensor = field(repr=False)
    moduli: tuple[int, ...]
    units: Tensor = field(repr=False)
    clients: int
    top: int


class Residues(OnGrid, use="residues"):
    """Integers as bits that can be shuffled one by one and still be added: their numbers of ones add up.

    `moduli` are the cheapest that keep every sum apart, unless given. Any string of bits is
    some residues, but perhaps of a value out of range: only the sum's range is checked, when it is decoded.
    """

    moduli: tuple[int, ...] | None = Field(
        None, description="coprime numbers, 64 at most; the cheapest that can hold the sum unless given"
    )

    @model_validator(mode="after")
    def _sums_apart(self) -> Self:
        try:
            chosen = self.chosen
        except SpecError as error:
            raise SpecError(f"protocol.encode.{error}; or leave it out, and the cheapest are chosen") from None
        if chosen.bits < _FEWEST:
            raise SpecError(
                f"protocol.encode.steps = {self.steps} with clients = {self.clients}: {chosen.bits} bits a coordinate "
                f"are fewer than the {_FEWEST} that a block of bits needs; use more steps"
            )
        if max(chosen.values) > _LARGEST or chosen.product >= _PRODUCT:
            raise SpecError(
                f"protocol.encode.moduli = {list(chosen.values)}: a modulus is {_LARGEST} at most, and their product "
                "less than 2^63; use fewer or smaller ones"
            )
        return self

    @property
    def chosen(self) -> Moduli:
        """The moduli, checked. Raises: SpecError when sums of so many clients would be confused."""
        bound = values_of(self.clients, self.top)
        return cheapest(bound) if self.moduli is None else Moduli(self.moduli, bound)

    @property
    def dtype(self) -> str:
        """Bytes that hold bits."""
        return "|u1"

    @property
    def modulus(self) -> tuple[int, ...]:
        """The moduli."""
        return self.chosen.values

    @property
    def bits(self) -> int:
        """Bits of a coordinate on the wire."""
        return self.chosen.bits

    def field(self, layout: Layout) -> wire.Field:
        """Packed bits, number by number, modulus by modulus."""
        return wire.bit_rows("vector", (), self.slots(layout), self.modulus)

    def encode(self, update: Update, brief: Brief, coins: Node) -> Payload:
        """Bits, made a cache full at a time."""
        if self.weights != "uniform" or self.excluded:
            return super().encode(update, brief, coins)
        grid = residues.Quantiser(
            self._scales(brief, update.layout).numpy(), self.unit, self.top, 1.0, self.rounding
        )  # fmt: skip
        draws = self._draws(len(update.vector), coins)
        bits, clamped = residues.encode(update.vector.numpy(), grid, draws, self.modulus)
        return Payload(torch.from_numpy(bits), {}, {"clamped": clamped, "capped_weights": 0})

    def _rounded(
        self, values: Tensor, grid: residues.Quantiser, draws: residues.Words, last: list[int]
    ) -> tuple[Tensor, int]:
        """Bits of integers, and of a weight, which may be larger than those."""
        numbers, clamped = residues.whole(values.numpy(), grid, draws)
        bits = residues.spread(np.append(numbers, np.array(last, np.int64)), max([self.top, *last]), self.modulus)
        return torch.from_numpy(bits), clamped

    def summed(self, released: Released) -> Tensor:
        """From bits, counts of ones, or counts modulo each modulus: they all have the same residues."""
        ones = self._ones(released).numpy()
        numbers = torch.from_numpy(residues.join(np.ascontiguousarray(ones), self.modulus))
        if self.scaled:
            numbers[-1] %= self.chosen.product
        return numbers

    def counted(self, released: Released, brief: Brief) -> Counted | None:
        """The counts of ones; None where clients do not count alike, or not every coordinate is sent."""
        layout = released.layout
        if layout is None or self.scaled or self.slots(layout) != layout.size:
            return None
        units = self._scales(brief, layout).expand(layout.size) / self.unit
        return Counted(self._ones(released).long(), self.modulus, units, len(released.present), self.top)

    def _ones(self, released: Released) -> Tensor:
        if released.sums is not None:
            return released.sums
        if released.rows is None:
            raise IntegrityError("nothing was released")
        if released.layout is None:
            raise IntegrityError("bits cannot be counted without the model's layout")
        rows = [row.numpy() for row in released.rows]
        return torch.from_numpy(residues.counts(rows, self.slots(released.layout), self.modulus))

    def says(self) -> tuple[str, ...]:
        """The moduli, too."""
        said = ", ".join(str(m) for m in self.modulus)
        return (*super().says(), f"a coordinate takes {self.bits} bits: residues modulo {said}, in unary")
