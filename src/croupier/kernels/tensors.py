"""Residues in unary on torch tensors, wherever they lie: for updates that are on a GPU and need not leave it first.

The layout and the results are those of `kernels.residues`, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from croupier.kernels.residues import Grid, Moduli, size, widths

# Numbers whose bits are spread out at once; a multiple of 8, so that a part ends on a whole byte.
_PART = 1 << 18


def whole(values: Tensor, grid: Grid, draws: Tensor | None = None) -> tuple[Tensor, int]:
    """Integers on the grid, and how many had to be clamped. `draws` are 32-bit words for rounding at random."""
    share = values.double() / torch.from_numpy(grid.scales).to(values.device)
    scaled = share.clamp(-1, 1) * grid.factor * float(grid.unit)
    if grid.rounding == "even":
        rounded = scaled.round()
    else:
        rounded = torch.floor(scaled if draws is None else scaled + draws.double() / 4294967296.0)
    clamped = int(((share.abs() > 1) | (rounded.abs() > grid.top)).sum())
    return rounded.clamp(-grid.top, grid.top).long(), clamped


def spread(numbers: Tensor, moduli: Moduli) -> Tensor:
    """The bits of numbers, packed."""
    steps = [torch.arange(m - 1, device=numbers.device) for m in moduli]
    powers = 1 << torch.arange(8, device=numbers.device)
    parts = []
    for some in numbers.split(_PART):  # type: ignore[no-untyped-call]
        bits = torch.cat([at < (some % m).unsqueeze(1) for m, at in zip(moduli, steps, strict=True)], 1).reshape(-1)
        bits = torch.nn.functional.pad(bits, (0, -len(bits) % 8))
        parts.append((bits.reshape(-1, 8) * powers).sum(1).to(torch.uint8))
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.uint8, device=numbers.device)


def counts(rows: Sequence[Tensor], count: int, moduli: Moduli) -> Tensor:
    """How many ones each block of the rows has."""
    each, bits = list(widths(moduli)), sum(widths(moduli))
    total = torch.zeros((count, len(moduli)), dtype=torch.int64, device=rows[0].device)
    powers = torch.arange(8, device=rows[0].device)
    for row in rows:
        for start in range(0, count, _PART):
            stop = min(count, start + _PART)
            some = row[start * bits // 8 : size(stop, moduli)]
            spread_out = ((some.unsqueeze(1) >> powers) & 1).reshape(-1)[: (stop - start) * bits].reshape(-1, bits)
            blocks = spread_out.split(each, 1)  # type: ignore[no-untyped-call]
            total[start:stop] += torch.stack([block.sum(1) for block in blocks], 1)
    return total


def join(residues: Tensor, moduli: Moduli) -> Tensor:
    """The numbers nearest to 0 that have these residues, or these counts: in mixed radix, so that nothing overflows."""
    value, base = torch.zeros(len(residues), dtype=torch.int64, device=residues.device), 1
    for j, m in enumerate(moduli):
        value = value + (residues[:, j].long() - value) % m * pow(base, -1, m) % m * base
        base *= m
    return torch.where(value > math.prod(moduli) // 2, value - base, value)
