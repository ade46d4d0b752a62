"""What the servers of a chain hold: shares of rows, as words of the encoder's width, and how they move.

A release that only moves what clients sent says how (`Release.moved`) and among whom (`Release.mixed_together`). Rows
lie group by group, in the order in which the release lets groups out; which groups there are is public.

Forms that move shares or boxes move them by it, exactly as the release would move the rows; `bit_table` is the same bit
by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Node
from croupier.core.flow import Given
from croupier.core.update import Layout
from croupier.core.wire import Field, Schema, attendance, bitmap
from croupier.encode.encoder import Released
from croupier.errors import IntegrityError, RangeError
from croupier.mpc.mix import Cells, Move, Rows
from croupier.place.placement import Mechanism, read_released, release_tiers

# Shares of numbers are uniform bits, which would be no valid floats: the wire carries them as integers (`_WIRE`), and
# XOR works on unsigned words (`_KINDS`).
_WIRE = {"<f4": "<i4", "<f8": "<i8", "<i4": "<i4", "<i8": "<i8", "|u1": "|u1"}
_KINDS = {"<i4": "<u4", "<i8": "<u8", "|u1": "|u1"}


@dataclass(frozen=True)
class MixTable:
    """Rows of one round: what is encoded, for whom, in which layout."""

    mechanism: Mechanism
    roster: tuple[str, ...]
    layout: Layout

    @classmethod
    def of(cls, mechanism: Mechanism, given: Given) -> MixTable:
        """Of the round that a party is told of."""
        return cls(mechanism, given.roster, given.layout)

    @cached_property
    def field(self) -> Field:
        """A client's row as it would travel in the clear."""
        return self.mechanism.encode.field(self.layout)

    @cached_property
    def cells(self) -> Cells:
        """How many words a row has, and of which type."""
        kind = _KINDS[_WIRE[self.field.dtype]]
        bits = self.field.widths[0] if self.field.widths else 8 * np.dtype(kind).itemsize
        (slots,) = self.field.shape
        return Cells(int(slots), kind, bits, self.field.spare)

    def rows_field(self, side: str = "present") -> Field:
        """Shares of as many rows as `side` has ones, in no more bits than rows have."""
        return self._share((side, *self.field.shape))

    def row_field(self) -> Field:
        """A share of one row."""
        return self._share(self.field.shape)

    def _share(self, shape: tuple[int | str, ...]) -> Field:
        return Field("rows", _WIRE[self.field.dtype], shape, widths=self.field.widths, spare=self.field.spare)

    def groups(self, present: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """Among whom pieces change places, in the order in which groups leave."""
        release = self.mechanism.release
        found = release.mixed_together(len(present), release_tiers(self.mechanism, present))
        return tuple(tuple(present[place] for place in group) for group in found)

    def move(self, present: tuple[str, ...]) -> Move:
        """How the rows of those present, group by group, move as coins say."""
        sizes = [len(group) for group in self.groups(present)]
        return lambda rows, coins: self._each(rows, coins, sizes, back=False)

    def move_back(self, present: tuple[str, ...]) -> Move:
        """How rows move back to where they were before `move`."""
        sizes = [len(group) for group in self.groups(present)]
        return lambda rows, coins: self._each(rows, coins, sizes, back=True)

    def _each(self, rows: Rows, coins: Node, sizes: list[int], *, back: bool) -> Rows:
        release, modulus, out, at = self.mechanism.release, self.mechanism.encode.modulus, np.empty_like(rows), 0
        go = release.moved_back if back else release.moved
        for number, size in enumerate(sizes):
            node = coins.child("bucket", number) if release.tiered else coins
            out[at : at + size] = go(rows[at : at + size], self.layout, modulus, node)
            at += size
        return out

    def words(self, values: Tensor) -> Rows:
        """Numbers, or shares that came over the wire, as words."""
        return values.contiguous().numpy().view(self.cells.kind)

    def shares(self, rows: Rows) -> Tensor:
        """Words as the wire carries shares."""
        return torch.from_numpy(rows.view(_WIRE[self.field.dtype]))

    def numbers(self, rows: Rows) -> Tensor:
        """Words as the numbers that they are."""
        return torch.from_numpy(rows.view(self.field.dtype))

    def released(self, present: tuple[str, ...], rows: Rows) -> Released:
        """What the server has when all masks are gone. Raises: IntegrityError when rows are no client's."""
        up, numbers = Schema((self.field,)), self.numbers(rows)
        try:
            for row in numbers:
                up.check({self.field.name: row})
        except RangeError as error:
            raise IntegrityError(
                f"what came out of the chain is nothing that clients send ({error}); one of them sent it, or a mix "
                "server altered it, and nobody can say who"
            ) from None
        facts = self.mechanism.release.facts(release_tiers(self.mechanism, present))
        body: Mapping[str, Tensor] = {"present": bitmap(self.roster, present), **facts, "rows": numbers}
        return read_released(self.mechanism, self.roster, self.layout, body, ids=False)

    def noise(self, rows: Rows) -> Tensor:
        """Uniform words as numbers to look at: of floats between -1 and 1, because most words would be none."""
        if self.field.dtype in ("<f4", "<f8"):
            return torch.from_numpy(rows.astype(np.float64) / 2.0 ** (self.cells.bits - 1) - 1).float()
        return self.numbers(rows)

    def present_field(self) -> Field:
        """Who is present."""
        return attendance(self.roster)


SEED = wire.Field("seed", "|u1", (32,))


def as_side(field: Field, name: str) -> Field:
    """The same field under another name."""
    return replace(field, name=name)
