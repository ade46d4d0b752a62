"""What is a client like, and is it the same as before? Asked of all rounds together that an adversary saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit import profiler
from croupier.audit.glimpse import Glimpse, Outside, grouped
from croupier.audit.profiler import Studied
from croupier.audit.seen import seen
from croupier.core.coins import Coins
from croupier.core.update import Gathered, Layout, Slice
from croupier.encode.signs import Signs
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.release.bucketed import BucketSums, Tiered

# What the view that is read here is called among the answers.
SEEN = "seen"


def study(known: Mapping[str, Any], device: str = "cpu") -> Studied | None:
    """Denoisers and surrogates from auxiliary clients (`outside`) for these `levels` of noise; nothing without."""
    if known["outside"] is None:
        return None
    # Many small problems: threads would only wait for each other.
    with threadpool_limits(1):
        outside = Outside(**known["outside"])
        return profiler.study(outside, known["levels"], Coins(known["coins"]), known["denoisers"])


def mount(studied: Studied | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """For each view the rows, chances of classes, clusters and links that the three stages come to.

    `asked` has glimpses by the view's name (`shown`), or `rounds` of views to read, with the public `protocol` and the
    model's `layout`; and `coins`.
    """
    coins = Coins(asked["coins"])
    if "rounds" in asked:
        views, pieces = {SEEN: glimpses(asked)}, False
    else:
        views, pieces = {name: tuple(Glimpse(**one) for one in each) for name, each in asked["shown"].items()}, True
    with threadpool_limits(1):
        return {
            name: profiler.mount(studied, each, coins.child("view", name), pieces) for name, each in views.items()
        }  # fmt: skip


def glimpses(asked: Mapping[str, Any]) -> tuple[Glimpse, ...]:
    """What an adversary's views of all rounds amount to: differences, and who may have made them."""
    pipeline = Pipeline.parse(asked["protocol"])
    layout = Layout(tuple(Slice(**one) for one in asked["layout"]))
    found = []
    for one in asked["rounds"]:
        got = seen(one["views"], asked["protocol"], layout, one["start"])
        found.append(_glimpse(one["number"], got, differences(got, one["start"], _intact(pipeline)), pipeline))
    return tuple(found)


def differences(got: Gathered, start: Tensor, intact: bool = True) -> Tensor:
    """Each row, or the mean behind a sum, as what was learnt from the model that was handed out."""
    if got.weights is None or (got.rows is None and got.sums is None):
        raise SpecError("what was seen holds neither rows nor sums")
    if got.rows is None:
        rows = (got.sums if got.sums is not None else start).double().unsqueeze(0) / got.weights.double().sum()
    else:
        # In pieces, whose weight a row came with is hidden as well. One that was rounded to nothing took its row along.
        by = got.weights.double() if intact or got.ids else got.weights.double().mean().expand(len(got.rows))
        rows = got.rows.double() / by.clamp_min(1e-12).unsqueeze(1) if got.scaled else got.rows.double()
    return (rows - start.double() if got.form == "weights" else rows).float()


def _glimpse(number: int, got: Gathered, rows: Tensor, pipeline: Pipeline) -> Glimpse:
    release, present = pipeline.release, got.ids or got.present

    def sigma(name: str) -> float:
        tier = pipeline.privacy.tier(name)
        # Signs bear no noise that could be taken off.
        return tier.sigma if tier is not None and not isinstance(pipeline.encode, Signs) else 0.0

    if got.ids is not None:
        alone = [(who,) for who in present]
        return grouped(number, rows, alone, [1] * len(rows), sigma, intact=True, named=True)
    if got.rows is None or not isinstance(release, Tiered):
        return grouped(number, rows, [present], [len(rows)], sigma, intact=len(rows) > 1 and _intact(pipeline))
    tiers = [tier for who in present if (tier := pipeline.privacy.tier(who)) is not None]
    members = [tuple(present[i] for i in bucket.members) for bucket in release.buckets(tiers)]
    each = [1 if isinstance(release, BucketSums) else len(who) for who in members]
    return grouped(number, rows, members, each, sigma, intact=_intact(pipeline))


def _intact(pipeline: Pipeline) -> bool:
    return getattr(pipeline.release, "grain", None) == "model"
