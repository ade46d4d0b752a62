"""Which clients are put together: buckets of like budgets, large enough to hide in, from public facts alone.

It is IntraShuffler's Algorithm 1, made to end. As printed it cannot be built: it says neither which small bucket goes
first nor what the epsilon of a merged bucket is (and merges by the difference of epsilons), and a small bucket that has
no neighbour left keeps its loop going for ever. So there is no literal form of it here.

`release.bucketed` forms them, also for a server that checks what a relay wrote (`place.placement`) and for the noise
of each row that rules weigh by (`place.labels`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from croupier.core.tier import Tier
from croupier.errors import RangeError

Gap = Literal["ratio", "difference"]
# Published noise is rounded up to powers of the eighth root of 2: to 9 percent.
FINE = 8


@dataclass(frozen=True)
class Bucket:
    """Clients, by their places in what was asked about, and the least and the largest epsilon among them."""

    members: tuple[int, ...]
    low: float
    high: float

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.members)


@dataclass(frozen=True)
class Label:
    """What is published of a bucket for weighing it: a mean variance, rounded up, and its least epsilon.

    It is nobody's guarantee: each client keeps its own, whatever bucket it is in.
    """

    noise: float
    epsilon: float


def form(tiers: Sequence[float], least: int, gap: Gap = "ratio") -> tuple[Bucket, ...]:
    """Buckets of at least so many clients, by rising epsilon; one bucket of fewer where all together are fewer.

    At first every epsilon is a bucket. While one is too small and not alone, the smallest (of these the one of least
    epsilon) joins the neighbour that is nearest, then smaller, then of less epsilon. Each step leaves one bucket less.
    """
    if any(not 0 < one < math.inf for one in tiers):
        raise RangeError(f"tiers = {sorted(set(tiers))}: an epsilon is above 0 and finite")
    found = [
        Bucket(tuple(at for at, one in enumerate(tiers) if one == epsilon), epsilon, epsilon)
        for epsilon in sorted(set(tiers))
    ]
    while len(found) > 1 and min(one.size for one in found) < least:
        at = min(range(len(found)), key=lambda place: (found[place].size, found[place].low))
        beside = [place for place in (at - 1, at + 1) if 0 <= place < len(found)]
        to = min(beside, key=lambda place: _nearness(found[at], found[place], gap))
        low, high = sorted((at, to))
        found[low : high + 1] = [_merged(found[low], found[high])]
    return tuple(found)


def label(bucket: Bucket, tiers: Sequence[Tier]) -> Label:
    """What is published of a bucket."""
    mean = math.fsum(tiers[at].sigma ** 2 for at in bucket.members) / bucket.size
    return Label(rounded(mean), bucket.low)


def rounded(variance: float) -> float:
    """A variance rounded up to a power of the eighth root of 2: the grid that published noise lies on."""
    step = math.floor(FINE * math.log2(variance)) - 1
    # A logarithm may be off in its last bit: the grid decides, not the logarithm.
    while 2 ** (step / FINE) < variance:
        step += 1
    return float(2 ** (step / FINE))


def _nearness(one: Bucket, other: Bucket, gap: Gap) -> tuple[float, int, float]:
    """What the neighbour to join is chosen by, the least first: how far apart, how large, of which epsilon."""
    below, above = (one, other) if one.high < other.low else (other, one)
    # A ratio orders as its logarithm does, and a division rounds alike on every machine, which a logarithm need not.
    apart = above.low / below.high if gap == "ratio" else above.low - below.high
    return apart, other.size, other.low


def _merged(one: Bucket, other: Bucket) -> Bucket:
    members = tuple(sorted(one.members + other.members))
    return Bucket(members, min(one.low, other.low), max(one.high, other.high))
