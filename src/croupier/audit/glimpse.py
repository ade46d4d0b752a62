"""What an adversary sees of a round in which every client has its own privacy tier, and what it holds besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from croupier.errors import RangeError


@dataclass(frozen=True)
class Glimpse:
    """One round as an adversary sees it: rows, the bucket of each, and who is in which bucket.

    A row stands for one client's noised update, or for the mean of `counts` of them. `sigmas` is the published
    deviation of one client's noise, a row; `members` and `tiers` (the deviations of a bucket's members, in their order)
    follow from the roster and the public tiers. Rows are `intact` where each is one sender's from end to end; `named`
    where row i is that of member i. `model` is the round's number: the start that was handed out in it is known.
    """

    number: int
    rows: Tensor
    bucket: Tensor
    sigmas: Tensor
    counts: Tensor
    members: tuple[tuple[str, ...], ...]
    tiers: tuple[tuple[float, ...], ...]
    intact: bool
    named: bool

    def __post_init__(self) -> None:
        count = len(self.rows)
        if not (len(self.bucket) == len(self.sigmas) == len(self.counts) == count):
            raise RangeError(f"round {self.number}: {count} rows need one bucket, deviation and count each")
        if [len(who) for who in self.members] != [len(each) for each in self.tiers]:
            raise RangeError(f"round {self.number}: every member of a bucket has one tier")

    def plain(self) -> dict[str, Any]:
        """As plain values, to hand to another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def grouped(
    number: int, rows: Tensor, members: Sequence[tuple[str, ...]], each: Sequence[int], sigma: Callable[[str], float],
    *, intact: bool = False, named: bool = False,
) -> Glimpse:  # fmt: skip
    """A round by its groups of `members`, in the order of rows: `each` says how many rows a group has.

    Who has one row for several members sees their mean. Members' tiers are public, so that the mean noise of a group is
    known better than its label.
    """
    tiers = tuple(tuple(float(sigma(name)) for name in who) for who in members)
    noise = torch.stack([torch.tensor(one, dtype=torch.float64).pow(2).mean().sqrt() for one in tiers])
    bucket = torch.arange(len(members)).repeat_interleave(torch.tensor(each))
    counts = torch.tensor([len(who) if many == 1 else 1 for who, many in zip(members, each, strict=True)])
    return Glimpse(number, rows, bucket, noise[bucket], counts[bucket], tuple(members), tiers, intact, named)


@dataclass(frozen=True)
class Outside:
    """Auxiliary clients, who are never among those attacked: what they learn from the same starts, and their labels.

    `updates` has a side for the studied rounds (`numbers`), one for the clients and one for the coordinates; they are
    clipped as the mechanism says and not noised. `labels` names each attribute, with one class a client.
    """

    numbers: tuple[int, ...]
    updates: Tensor
    labels: Mapping[str, Tensor]
    classes: Mapping[str, int]

    def plain(self) -> dict[str, Any]:
        """As plain values, to hand to another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def at(self, number: int) -> int:
        """The place of the latest studied round that is not after this one."""
        known = [place for place, studied in enumerate(self.numbers) if studied <= number]
        if not known:
            raise RangeError(f"round {number}: no auxiliary updates from its start or an earlier one")
        return known[-1]

    def means(self, numbers: Tensor) -> Tensor:
        """The auxiliary clients' mean update for each of these rounds: what is known of a client without any view."""
        averages = self.updates.double().mean(1).float()
        return averages[torch.tensor([self.at(int(number)) for number in numbers])]

    def majority(self, attribute: str) -> int:
        """The commonest class among the auxiliary clients; the lowest of several."""
        return int(torch.bincount(self.labels[attribute], minlength=self.classes[attribute]).argmax())


@dataclass(frozen=True)
class Stack:
    """The rows of many rounds under one another, each with its round, bucket, noise and possible tiers."""

    rows: Tensor
    rounds: Tensor
    buckets: Tensor
    sigmas: Tensor
    counts: Tensor
    tiers: tuple[frozenset[float], ...]


def stacked(glimpses: tuple[Glimpse, ...]) -> Stack:
    """All rounds together. Buckets are numbered on from round to round.

    The noise of an intact row shows in its own size: of its bucket's tiers it is in the one that fits best. Rows
    in pieces, and means, keep the published one.
    """
    rows, rounds, buckets, sigmas, counts, tiers, first = [], [], [], [], [], list[frozenset[float]](), 0
    for one in glimpses:
        noise = scales(one)
        rows.append(one.rows)
        rounds.append(torch.full((len(one.rows),), one.number))
        buckets.append(one.bucket + first)
        sigmas.append(noise)
        counts.append(one.counts)
        sure = one.named or one.intact
        tiers += [
            frozenset({float(noise[i])}) if sure else frozenset(one.tiers[int(one.bucket[i])])
            for i in range(len(one.rows))
        ]
        first += len(one.members)
    return Stack(
        torch.cat(rows), torch.cat(rounds), torch.cat(buckets), torch.cat(sigmas), torch.cat(counts), tuple(tiers)
    )


def scales(one: Glimpse) -> Tensor:
    """The deviation of the noise in each row, as well as it can be told."""
    if not one.intact:
        # The mean of several has less.
        return one.sigmas.double() / one.counts.double().sqrt()
    size = one.rows.double().pow(2).mean(1).sqrt()
    found = []
    for row, bucket in zip(size, one.bucket.tolist(), strict=True):
        known = torch.tensor(sorted(set(one.tiers[bucket])), dtype=torch.float64)
        found.append(known[(known - row).abs().argmin()] if len(known) > 1 else known[0])
    return torch.stack(found)
