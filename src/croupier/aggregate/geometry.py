"""Rules that keep what lies close together: Krum, Multi-Krum, and the trimmed mean of every coordinate.

All assume that at most f rows lie, and refuse a round when there are too few others for that. Equal scores are decided
by the server's own draw and not by a client's place, which an attacker might choose. A description names them;
`aggregate.clusters` can join a cluster by the trimmed mean, and the laboratory compares all of them with other rules
(`croupier bench clusters`, RAIN's figures).
"""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.aggregate.robust import Assumed, Move, Robust, assumed, drawn_order
from croupier.aggregate.rows import best, chosen, combine, squared_distances
from croupier.core.flow import Memory
from croupier.core.update import Gathered
from croupier.errors import SpecError

# Coordinates that are sorted at once.
_BLOCK = 1 << 16


def krum_scores(rows: Tensor, f: int) -> Tensor:
    """For each row the sum of its squared distances to the n - f - 2 others that are nearest to it."""
    check_krum(len(rows), f)
    apart = squared_distances(rows).fill_diagonal_(torch.inf)
    return apart.sort(dim=1).values[:, : len(rows) - f - 2].sum(1)


def krum(rows: Tensor, f: int, order: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The row of least score, and the weights that say which it is."""
    return multi_krum(rows, f, 1, order)


def multi_krum(rows: Tensor, f: int, m: int, order: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mean of the m rows of least score, and the weights that say which they are."""
    weights = chosen(best(krum_scores(rows, f), m, order), len(rows))
    return combine(rows, weights), weights


def trimmed_mean(rows: Tensor, b: int) -> Tensor:
    """Of every coordinate the mean without its b largest and b smallest values."""
    check_trim(len(rows), b)
    blocks = rows.split(_BLOCK, 1)  # type: ignore[no-untyped-call]
    return torch.cat([block.sort(dim=0).values[b : len(rows) - b].double().mean(0) for block in blocks])


def check_krum(count: int, f: int) -> None:
    """Raises: SpecError unless count > 2f + 2: only then a row's n - f - 2 nearest others cannot all be liars."""
    if count <= 2 * f + 2:
        raise SpecError(
            f"protocol.aggregate.f = {f} of {count} updates: Krum needs more than 2f + 2 of them; "
            f"invite {2 * f + 3} clients, or lower f"
        )


def check_trim(count: int, b: int) -> None:
    """Raises: SpecError when nothing would be left."""
    if 2 * b >= count:
        raise SpecError(
            f"protocol.aggregate.b = {b} of {count} updates: nothing is left without the largest and smallest {b}; "
            f"invite {2 * b + 1} clients, or lower b"
        )


class Krum(Robust, use="krum"):
    """The one update that lies closest to its n - f - 2 nearest others.

    From: Blanchard et al. 2017, with squared distances as printed there, over all weights together.
    """

    f: Assumed = Field(0.2, description="how many may lie: a share of the clients below 0.5, rounded up, or a count")

    def check(self, count: int) -> None:
        """Raises: SpecError unless there are more than 2f + 2 updates."""
        check_krum(count, assumed(self.f, count))

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The chosen row."""
        return Move(*krum(rows, assumed(self.f, len(rows)), drawn_order(desk, len(rows))), memory)

    def tolerates(self) -> str:
        """What a choice among whole updates gives."""
        return (
            f"{_named(self.f)} of the rows: while no more lie, an update far enough from all honest ones is not "
            "chosen; lies close to them can be, and the next model is then a liar's alone"
        )


class MultiKrum(Robust, use="multi-krum"):
    """The mean of the m updates of least Krum score, n - f of them unless `m` is given.

    From: Blanchard et al. 2017, with all scores taken once; not the iterated choice of later work.
    """

    f: Assumed = Field(0.2, description="how many may lie: a share of the clients below 0.5, rounded up, or a count")
    m: PositiveInt | None = Field(None, description="how many of the best updates are averaged; n - `f` unless set")

    def check(self, count: int) -> None:
        """Raises: SpecError unless there are more than 2f + 2 updates, and m of them besides f."""
        f = assumed(self.f, count)
        check_krum(count, f)
        if self.m is not None and self.m > count - f:
            raise SpecError(
                f"protocol.aggregate.m = {self.m}: of {count} updates {f} are assumed to be lies, so that some would "
                f"be averaged; use at most {count - f}, or lower f"
            )

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The mean of the chosen rows."""
        f = assumed(self.f, len(rows))
        return Move(*multi_krum(rows, f, self.m or len(rows) - f, drawn_order(desk, len(rows))), memory)

    def tolerates(self) -> str:
        """What leaving out the worst scores gives."""
        return (
            f"{_named(self.f)} of the rows: while no more lie, an update far enough from all honest ones is left out; "
            "lies close to them are averaged too"
        )


class TrimmedMean(Robust, use="trimmed-mean"):
    """Of every coordinate the mean without its b largest and b smallest values; statistics alike.

    From: Yin et al. 2018. It takes rows in any order, coordinate by coordinate.
    """

    needs = frozenset({"rows"})

    b: Assumed = Field(
        0.2, description="how many values are cut at either end: a share of the clients below 0.5, or a count"
    )

    def check(self, count: int) -> None:
        """Raises: SpecError unless a value is left."""
        check_trim(count, assumed(self.b, count))

    def move(self, rows: Tensor, gathered: Gathered, desk: Desk, memory: Memory) -> Move:
        """The trimmed means."""
        return Move(trimmed_mean(rows, assumed(self.b, len(rows))), None, memory)

    def rest(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        """The trimmed means of the statistics."""
        return trimmed_mean(rows, assumed(self.b, len(rows)))

    def tolerates(self) -> str:
        """What trimming alone gives."""
        return (
            f"{_named(self.b)} of the rows: while no more of the values sent for a parameter are lies, their trimmed "
            "mean lies between the least and the greatest honest one; nothing is claimed on whether training succeeds"
        )


def _named(f: float) -> str:
    """A number of liars as it was given: a count, or a share in percent."""
    return f"{int(f)}" if f >= 1 else f"{f:.0%}"
