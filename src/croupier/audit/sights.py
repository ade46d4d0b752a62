"""The views that are compared: what each way of releasing rows shows of one round, by the releases themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from croupier.audit.glimpse import Glimpse, grouped
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
    if view == "rows":
        return _named(turn, noise)
    tiers = [noise.tier(who) for who in turn.names]
    release = BucketSums(smallest=smallest) if view == "sums" else Buckets(grain=view, smallest=smallest)
    buckets = release.buckets(tiers)
    members = [tuple(turn.names[i] for i in bucket.members) for bucket in buckets]
    if isinstance(release, BucketSums):
        whole = (turn.sent.double() * (_STEPS / noise.privacy.clip)).round().long()
        body = release.within(list(whole.remainder(_MODULUS)), layout, _MODULUS, coins, tiers)["rows"]
        sums = torch.where(body >= _MODULUS // 2, body - _MODULUS, body)
        sizes = torch.tensor([bucket.size for bucket in buckets])
        rows = (sums.double() * (noise.privacy.clip / _STEPS) / sizes.unsqueeze(1)).float()
        return Sight(grouped(turn.number, rows, members, [1] * len(members), noise.sigma), None)
    rows = release.within(list(turn.sent), layout, None, coins, tiers)["rows"]
    # The same coins move the members' numbers as they moved their values.
    marks = [torch.full_like(turn.sent[0], float(at)) for at in range(len(turn.names))]
    sources = release.within(marks, layout, None, coins, tiers)["rows"].to(torch.int64)
    each = [bucket.size for bucket in buckets]
    return Sight(grouped(turn.number, rows, members, each, noise.sigma, intact=view == "model"), sources)


def _named(turn: Turn, noise: Noise) -> Sight:
    count, size = turn.sent.shape
    members = [(who,) for who in turn.names]
    seen = grouped(turn.number, turn.sent, members, [1] * count, noise.sigma, intact=True, named=True)
    return Sight(seen, torch.arange(count).unsqueeze(1).expand(count, size))
