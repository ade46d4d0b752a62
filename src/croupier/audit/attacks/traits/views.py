"""What an adversary sees of a round, in the form that attacks on traits and links work with.

`read_rounds` makes it from the real views of all rounds, in the attacks' own process (`audit.attacks.traits`) and once
more in `audit.traits.findings`, which holds the truth beside it. `audit.traits.tiers` and the laboratory's
`attacks/tiers` make such views of rows whose senders they know, so that answers can be scored. `pool_rows` puts the
rows of all rounds together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from croupier.audit.seen import begun, seen
from croupier.core.tier import Tier
from croupier.core.update import Gathered, Layout, Slice
from croupier.errors import RangeError, SpecError
from croupier.pipeline import Pipeline
from croupier.release.release import Release


@dataclass(frozen=True)
class RoundView:
    """One round as an adversary sees it: rows, the bucket of each, and who is in which bucket.

    A row stands for one client's noised update, for the mean of `counts` of them, or, shuffled in pieces, for values of
    several. `sigmas` has for each row the root mean square of its members' published deviations; `members` and
    `deviations` (those of a bucket's members, in their order) follow from the roster and public tiers. `intact`: every
    row is one sender's whole update. `named`: and it is known whose.
    """

    number: int
    rows: Tensor
    bucket: Tensor
    sigmas: Tensor
    counts: Tensor
    members: tuple[tuple[str, ...], ...]
    deviations: tuple[tuple[float, ...], ...]
    intact: bool
    named: bool

    def __post_init__(self) -> None:
        count = len(self.rows)
        if not (len(self.bucket) == len(self.sigmas) == len(self.counts) == count):
            raise RangeError(f"round {self.number}: {count} rows need one bucket, deviation and count each")
        if [len(who) for who in self.members] != [len(each) for each in self.deviations]:
            raise RangeError(f"round {self.number}: every member of a bucket has one deviation")

    @property
    def names(self) -> tuple[str, ...]:
        """All who took part, bucket by bucket."""
        return tuple(name for who in self.members for name in who)


def grouped(
    number: int, rows: Tensor, members: Sequence[tuple[str, ...]], many: Sequence[int], sigma: Callable[[str], float],
    *, intact: bool = False, named: bool = False,
) -> RoundView:  # fmt: skip
    """A round by its groups of `members`, in the order of rows: `many` says how many rows each group has.

    A group with one row for several members shows their mean. Members' deviations are public, and so is their mean.
    """
    deviations = tuple(tuple(float(sigma(name)) for name in who) for who in members)
    noise = torch.stack([torch.tensor(one, dtype=torch.float64).pow(2).mean().sqrt() for one in deviations])
    bucket = torch.arange(len(members)).repeat_interleave(torch.tensor(many))
    counts = torch.tensor([len(who) if count == 1 else 1 for who, count in zip(members, many, strict=True)])
    return RoundView(number, rows, bucket, noise[bucket], counts[bucket], tuple(members), deviations, intact, named)


def named_view(number: int, rows: Tensor, names: Sequence[str], sigma: Callable[[str], float]) -> RoundView:
    """A round in which every row came with its sender's name."""
    return grouped(number, rows, [(who,) for who in names], [1] * len(rows), sigma, intact=True, named=True)


def bucket_view(
    number: int, rows: Tensor, names: Sequence[str], release: Release, tiers: Sequence[Tier],
    sigma: Callable[[str], float],
) -> RoundView:  # fmt: skip
    """A round that was released by buckets of like noise, or as one sum a bucket."""
    members = [tuple(names[i] for i in bucket.members) for bucket in release.buckets(tiers)]
    many = [1 if release.grouped else len(who) for who in members]
    return grouped(number, rows, members, many, sigma, intact=release.pieces == "model")


def read_rounds(asked: Mapping[str, Any]) -> tuple[RoundView, ...]:
    """What an adversary's views of all rounds amount to: differences, and who may have made them.

    `asked` has `rounds` of views, with the public `protocol` and the model's `layout`.
    """
    pipeline = Pipeline.parse(asked["protocol"])
    layout = Layout(tuple(Slice(**one) for one in asked["layout"]))
    found = []
    for one in asked["rounds"]:
        got = seen(one["views"], asked["protocol"], layout, one["start"])
        start = begun(one["views"], asked["protocol"], one["start"])
        rows = differences(got, start, pipeline.release.pieces == "model")
        found.append(_read(one["number"], got, rows, pipeline))
    return tuple(found)


def differences(got: Gathered, start: Tensor, intact: bool = True) -> Tensor:
    """Each row, or the mean behind a sum, as what was learnt from the model that was handed out."""
    if got.weights is None or (got.rows is None and got.sums is None):
        raise SpecError("what was seen holds neither rows nor sums")
    if got.rows is None:
        rows = (got.sums if got.sums is not None else start).double().unsqueeze(0) / got.weights.double().sum()
    else:
        # Where pieces are shuffled nobody knows a row's own weight, and all are divided by the mean weight. A weight
        # that was rounded to 0 has made its row 0 as well.
        by = got.weights.double() if intact or got.ids else got.weights.double().mean().expand(len(got.rows))
        rows = got.rows.double() / by.clamp_min(1e-12).unsqueeze(1) if got.scaled else got.rows.double()
    return (rows - start.double() if got.form == "weights" else rows).float()


def _read(number: int, got: Gathered, rows: Tensor, pipeline: Pipeline) -> RoundView:
    release, present = pipeline.release, got.ids or got.present

    def sigma(name: str) -> float:
        tier = pipeline.privacy.tier(name)
        # Signs bear no noise that could be taken off.
        return tier.sigma if tier is not None and not pipeline.encode.signs_only else 0.0

    if got.ids is not None:
        return named_view(number, rows, present, sigma)
    if got.rows is None or not release.tiered:
        whole = len(rows) > 1 and release.pieces == "model"
        return grouped(number, rows, [present], [len(rows)], sigma, intact=whole)
    tiers = [tier for who in present if (tier := pipeline.privacy.tier(who)) is not None]
    return bucket_view(number, rows, present, release, tiers, sigma)


@dataclass(frozen=True)
class PooledRows:
    """The rows of many rounds under one another, each with its round, noise and possible tiers."""

    rows: Tensor
    rounds: Tensor
    sigmas: Tensor
    counts: Tensor
    tiers: tuple[frozenset[float], ...]


def pool_rows(views: Sequence[RoundView]) -> PooledRows:
    """All rounds together.

    The noise of an intact row shows in its size: it is taken for the deviation that fits best. For others it is the
    published one, of a mean that of the mean.
    """
    sigmas = [row_sigmas(one) for one in views]
    tiers = [
        frozenset({float(noise[i])}) if one.named or one.intact else frozenset(one.deviations[int(one.bucket[i])])
        for one, noise in zip(views, sigmas, strict=True)
        for i in range(len(one.rows))
    ]
    rounds = torch.cat([torch.full((len(one.rows),), one.number) for one in views])
    rows, counts = torch.cat([one.rows for one in views]), torch.cat([one.counts for one in views])
    return PooledRows(rows, rounds, torch.cat(sigmas), counts, tuple(tiers))


def row_sigmas(one: RoundView) -> Tensor:
    """The deviation of the noise in each row, as well as it can be told."""
    if not one.intact:
        # The mean of several has less.
        return one.sigmas.double() / one.counts.double().sqrt()
    size = one.rows.double().pow(2).mean(1).sqrt()
    known = [torch.tensor(sorted(set(each)), dtype=torch.float64) for each in one.deviations]
    pairs = zip(size, one.bucket.tolist(), strict=True)
    return torch.stack([known[bucket][(known[bucket] - row).abs().argmin()] for row, bucket in pairs])
