"""`croupier bench tamper`: one bench for four placements, each with its own ways to cheat.

`sums` has the ways to cheat of sum servers and masks, `rain/` those of RAIN's two servers, and `chain` those of mix
servers. This module chooses among them by `--system`.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from croupier_lab.bench.size import BenchSize, Watch, ignore
from croupier_lab.bench.tamper import chain, sums
from croupier_lab.bench.tamper.rain import tampering


class TamperSize(BenchSize):
    """Which placement is tampered with, and how often."""

    system: Literal["sum-servers", "masks", "rain", "chain"] = Field(
        "sum-servers", description="Which placement is tampered with."
    )
    trials: int = Field(10_000, ge=1, description="How many times somebody cheats.")


def describe(size: TamperSize) -> BenchSize:
    """The whole size of what is tried on the chosen placement."""
    if size.system == "rain":
        return tampering.RainTamperSize(trials=size.trials)
    if size.system == "chain":
        return chain.ChainTamperSize(trials=size.trials)
    return sums.SumTamperSize(trials=size.trials)


def measure(size: TamperSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Cheat in all the ways that the bench of this placement has, and count how it ends."""
    if size.system == "rain":
        return tampering.measure(tampering.RainTamperSize(trials=size.trials), seed, watch)
    if size.system == "chain":
        return chain.measure(chain.ChainTamperSize(trials=size.trials), seed, watch)
    return sums.measure(size.system, sums.SumTamperSize(trials=size.trials), seed, watch)


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    shown = {"rain": tampering.show, "chain": chain.show}
    shown.get(found["system"], sums.show)(found)
