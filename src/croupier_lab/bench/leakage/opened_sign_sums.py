"""What opening a weighted sum of sign rows tells of single rows: few levels of weights against distinct ones.

RAIN opens a weighted sum of rows of signs. What that tells depends on how many different weights there are, and this
shows by how much. `croupier.release.opened_sums` computes it exactly. Where there are too many columns to walk them
all, some are drawn here, and `attacks.opened_sums` counts how many columns have the same sum as each.
`croupier bench opened` runs it.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.release.opened_sums import unique_share
from croupier_lab.attacks.opened_sums import count_solutions, even_levels, opened_facts
from croupier_lab.bench.size import BenchSize, Watch, ignore

# Bits of the distinct random weights that the levels are compared with.
RIVALS = (12, 16, 24)
# Columns that are drawn where not all can be walked.
SAMPLED = 200
# Up to so many rows all columns are walked, and up to so many their solutions can be counted.
_WALKED, _COUNTED = 16, 36


class OpenedSumsSize(BenchSize):
    """Rows that count, levels that their weights may have, and how often bits differ from the known direction."""

    clients: int = Field(10, ge=2, le=1000, description="Rows of signs that count.")
    levels: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 2, 4), description="Levels of weights; may be repeated. By default 1, 2 and 4."
    )
    flip: float = Field(0.1, ge=0, le=1, description="How often a bit differs from the known direction.")

    @model_validator(mode="after")
    def _levels_fit(self) -> Self:
        if wrong := [levels for levels in self.levels if not 1 <= levels <= self.clients]:
            raise SpecError(f"levels = {wrong[0]}: {self.clients} rows fill 1 to {self.clients} levels; choose others")
        return self


def measure(size: OpenedSumsSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Exact numbers for each number of levels, with rows spread evenly over them, and shares for distinct weights."""
    coins = Coins.from_seed(seed)
    return {
        "clients": size.clients,
        "flip": size.flip,
        "levels": [{"levels": many} | opened_facts(even_levels(size.clients, many), size.flip) for many in size.levels],
        "distinct": [_distinct(size, bits, coins.child("distinct", bits)) for bits in RIVALS]
        if size.clients <= _COUNTED
        else [],
    }


def _distinct(size: OpenedSumsSize, bits: int, coins: Coins) -> dict[str, Any]:
    """The share of columns with one solution under random distinct weights; over drawn columns where rows are many."""
    weights = [int(weight) + 1 for weight in coins.child("weights").sampler().choice(2**bits - 1, size.clients, False)]
    if size.clients <= _WALKED:
        return {"bits": bits, "unique_columns": unique_share(weights, size.flip), "columns": "all"}
    drawn = coins.child("columns").sampler().random((size.clients, SAMPLED)) >= size.flip
    share = float((count_solutions(weights, drawn.astype(np.int64)) == 1).mean())
    return {"bits": bits, "unique_columns": share, "columns": SAMPLED}


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['clients']} rows, bits that differ from the known direction with chance {found['flip']:g}")
    for row in found["levels"]:
        best = row["best_row"]
        print(
            f"  {row['levels']:3d} levels: {row['unique_columns']:6.1%} of columns open; best row {best['bits']:.4f} "
            f"of {row['most_bits']:.3f} bits a coordinate, guessed right {best['guess']:.1%} (without: "
            f"{row['guess_without']:.1%})"
        )
    for row in found["distinct"]:
        how = "all columns" if row["columns"] == "all" else f"{row['columns']} columns drawn"
        print(f"  distinct weights of {row['bits']} bits: {row['unique_columns']:6.1%} of columns open ({how})")
