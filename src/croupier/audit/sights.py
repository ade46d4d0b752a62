"""The views that are compared: what each way of releasing rows shows of one round, by the releases themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from croupier.audit.glimpse import Glimpse
from croupier.audit.track import Noise, Turn
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.release.bucketed import Buckets, BucketSums

View = Literal["rows", "model", "layer", "parameter", "sums"]
VIEWS: tuple[View, ...] = ("rows", "model", "layer", "parameter", "sums")
TITLES: dict[View, str] = {
    "rows": "no shuffling",
    "model": "row shuffling (Shuffle-DP, in buckets)",
    "layer": "layer-wise shuffling",
    "parameter": "IntraShuffler (parameter shuffling)",
    "sums": "bucket sums",
}
# Sums are of integers: so many steps to the clip.
_STEPS = 1 << 24
_MODULUS = 1 << 56


@dataclass(frozen=True)
class Sight:
    """What is seen of a round, and, as truth for the scorer, from which member each coordinate of each row came.

    A row of sums comes from nobody: `sources` is then None. Members are numbered as the round names them.
    """

    seen: Glimpse
    sources: Tensor | None

    @property
    def owners(self) -> Tensor | None:
        """The member from whom most of a row's coordinates came; of several the first."""
        return None if self.sources is None else self.sources.mode(1).values


def sight(view: View, turn: Turn, noise: Noise, smallest: int, layout: Layout, coins: Coins) -> Sight:
    """One round through one release. Raises: ProtocolError when its clients do not fill a bucket."""
    tiers = [noise.tier(who) for who in turn.names]
    sigmas = torch.tensor([noise.sigma(who) for who in turn.names], dtype=torch.float64)
    if view == "rows":
        return _named(turn, sigmas)
    release = BucketSums(smallest=smallest) if view == "sums" else Buckets(grain=view, smallest=smallest)
    buckets = release.buckets(tiers)
    places = [bucket.members for bucket in buckets]
    if isinstance(release, BucketSums):
        whole = (turn.sent.double() * (_STEPS / noise.privacy.clip)).round().long()
        body = release.within(list(whole.remainder(_MODULUS)), layout, _MODULUS, coins, tiers)["rows"]
        sums = torch.where(body >= _MODULUS // 2, body - _MODULUS, body)
        sizes = torch.tensor([bucket.size for bucket in buckets])
        rows = (sums.double() * (noise.privacy.clip / _STEPS) / sizes.unsqueeze(1)).float()
        return Sight(_glimpse(turn, rows, torch.arange(len(rows)), sizes, places, sigmas, False), None)
    rows = release.within(list(turn.sent), layout, None, coins, tiers)["rows"]
    # The same coins move the members' numbers as they moved their values.
    marks = [torch.full_like(turn.sent[0], float(at)) for at in range(len(turn.names))]
    sources = release.within(marks, layout, None, coins, tiers)["rows"].to(torch.int64)
    bucket = torch.cat([torch.full((one.size,), number) for number, one in enumerate(buckets)])
    ones = torch.ones(len(rows), dtype=torch.int64)
    return Sight(_glimpse(turn, rows, bucket, ones, places, sigmas, view == "model"), sources)


def _named(turn: Turn, sigmas: Tensor) -> Sight:
    count, size = turn.sent.shape
    order = torch.arange(count)
    seen = Glimpse(
        turn.number, turn.sent, order, sigmas, torch.ones(count, dtype=torch.int64),
        tuple((who,) for who in turn.names), tuple((float(one),) for one in sigmas), intact=True, named=True,
    )  # fmt: skip
    return Sight(seen, order.unsqueeze(1).expand(count, size))


def _glimpse(
    turn: Turn, rows: Tensor, bucket: Tensor, counts: Tensor, places: Sequence[tuple[int, ...]], sigmas: Tensor,
    intact: bool,
) -> Glimpse:  # fmt: skip
    """A bucketed round; members' tiers are public, so the mean noise of a bucket is known better than its label."""
    noise = torch.stack([sigmas[list(who)].pow(2).mean().sqrt() for who in places])
    return Glimpse(
        turn.number, rows, bucket, noise[bucket], counts, tuple(tuple(turn.names[i] for i in who) for who in places),
        tuple(tuple(float(sigmas[i]) for i in who) for who in places), intact=intact, named=False,
    )  # fmt: skip
