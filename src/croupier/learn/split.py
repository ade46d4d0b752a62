"""Splits: which client holds which training records.

A simulation must decide who holds what. `natural` takes the owners that a dataset names, and is the honest choice where
there are any; the others deal one pool out, evenly or skewed by labels as papers do. Every draw comes from the run's
coins. No record is dealt twice, and none is left out unless `natural` is asked for some owners only. A description
names a split under `task.split`, and `learn.assemble` calls it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.errors import DataError, SpecError
from croupier.learn.data import Dataset

REDRAWS = 100
Ints = npt.NDArray[np.int64]


class Split(Part):
    """Who holds what."""

    verb = "split"
    # Whether clients are the owners that the data name, and so somebody in particular.
    by_owner: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Client id to the sorted numbers of its training records."""


class Iid(Split, use="iid"):
    """Every client draws from the same distribution; sizes differ by one record at most."""

    clients: PositiveInt = Field(10, description="how many clients")

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Client id to the sorted numbers of its training records. Raises: SpecError when too few."""
        _check_room(dataset, self.clients, 1)
        order = coins.sampler().permutation(len(dataset.train))
        return _named(np.array_split(order, self.clients))


class Dirichlet(Split, use="dirichlet"):
    """Clients differ in their mix of labels: the shares of each class are drawn from Dirichlet(alpha).

    A draw that leaves a client fewer than `least` records is drawn again, at most 100 times. Then records
    move, one by one, from the largest client's largest class to the smallest client: such a split is a little
    more even than the distribution asks for, but no client is left empty.
    """

    clients: PositiveInt = Field(10, description="how many clients")
    # Beyond the upper bound shares are even to the last record already, and the sampler would overflow.
    alpha: float = Field(0.5, gt=0, le=1e6, description="how alike the clients' mixes of classes are: small is uneven")
    least: PositiveInt = Field(1, description="fewest records of a client")

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Client id to the sorted numbers of its training records. Raises: SpecError when that cannot be."""
        labels = _labels(dataset, self.use)
        _check_room(dataset, self.clients, self.least)
        sampler = coins.sampler()
        counts = self._counts(np.bincount(labels, minlength=dataset.classes), sampler)
        return _named(_deal(labels, counts, sampler))

    def _counts(self, sizes: Ints, sampler: np.random.Generator) -> Ints:
        """How many records of each class (row) each client (column) gets."""
        for _ in range(1 + REDRAWS):
            shares = sampler.dirichlet(np.full(self.clients, self.alpha), len(sizes))
            counts = np.stack([apportion(size, share) for size, share in zip(sizes, shares, strict=True)])
            if counts.sum(0).min() >= self.least:
                return counts
        return even_out(counts, self.least)


class QSkew(Split, use="q-skew"):
    """Clients in as many groups as there are classes: a record goes to its class's group with probability q.

    Else it goes to any other group alike, and in its group to any client alike; q = 1 / classes is the same as drawing
    clients at random, and q = 1 gives a client one class. A draw that leaves a client fewer than `least` records is
    treated as in `dirichlet`. This is how Cao et al. 2021 (FLTrust) distribute training data among clients.
    """

    clients: PositiveInt = Field(100, description="how many clients")
    q: float = Field(0.5, ge=0, le=1, description="the chance of a record to go to its class's group of clients")
    least: PositiveInt = Field(1, description="fewest records of a client")

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Client id to the sorted numbers of its training records. Raises: SpecError when that cannot be."""
        labels = _labels(dataset, self.use)
        _check_room(dataset, self.clients, self.least)
        if self.clients < dataset.classes:
            why = f"'q-skew' makes a group of clients for each of the {dataset.classes} classes of {dataset.name!r}"
            raise SpecError(f"task.split.clients = {self.clients}: {why}; use at least {dataset.classes}")
        chances = self._chances(dataset.classes)
        sizes, sampler = np.bincount(labels, minlength=dataset.classes), coins.sampler()
        for _ in range(1 + REDRAWS):
            # Records of one class are alike until they are dealt: how many a client gets is all there is to draw.
            counts = np.stack([sampler.multinomial(size, chance) for size, chance in zip(sizes, chances, strict=True)])
            if counts.sum(0).min() >= self.least:
                break
        return _named(_deal(labels, even_out(counts, self.least), sampler))

    def _chances(self, classes: int) -> npt.NDArray[np.float64]:
        """Where a record of each class (row) goes: to each client (column), whose groups are in order."""
        group = np.arange(self.clients) * classes // self.clients
        members = np.bincount(group, minlength=classes)
        elsewhere = (1 - self.q) / (classes - 1) if classes > 1 else 0.0
        own = self.q if classes > 1 else 1.0
        shares = np.where(group == np.arange(classes)[:, None], own, elsewhere)
        found: npt.NDArray[np.float64] = shares / members[group]
        return found


class Natural(Split, use="natural"):
    """One client for each owner that the dataset names, or for the first `clients` of them."""

    by_owner: ClassVar[bool] = True

    clients: PositiveInt | None = Field(None, description="only the first so many owners")

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Owner to the sorted numbers of its records. Raises: SpecError; DataError when an owner has none."""
        if dataset.owner is None:
            remedy = 'use task.split = "iid" or "dirichlet"'
            raise SpecError(f"task.split = 'natural': {dataset.name!r} does not say who owns a record; {remedy}")
        names = dataset.owners[: self._count(dataset)]
        sizes = torch.bincount(dataset.owner, minlength=len(dataset.owners)).tolist()
        if empty := [name for name, size in zip(names, sizes, strict=False) if not size]:
            raise DataError(f"owner {empty[0]!r} of {dataset.name!r} has no training record; leave it out")
        # A stable sort keeps each owner's records in order, and reads the owners once however many there are.
        order = torch.argsort(dataset.owner, stable=True)
        parts = order.tensor_split(torch.tensor(sizes).cumsum(0)[:-1])
        return dict(zip(names, parts, strict=False))

    def _count(self, dataset: Dataset) -> int:
        known = len(dataset.owners)
        if self.clients is not None and self.clients > known:
            there = f"{dataset.name!r} has {known} owners; use at most that"
            raise SpecError(f"task.split.clients = {self.clients}: {there}")
        return self.clients or known


def apportion(size: int, shares: npt.NDArray[np.float64]) -> Ints:
    """Whole numbers that add up to `size`, by largest remainder."""
    exact = shares * size
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: size - counts.sum()]] += 1
    return counts


def even_out(counts: Ints, least: int) -> Ints:
    """Move records from the largest client's largest class to the smallest client until all have `least`."""
    moved = counts.copy()
    totals = moved.sum(0)
    while totals.min() < least:
        giver, taker = totals.argmax(), totals.argmin()
        label = moved[:, giver].argmax()
        moved[label, [giver, taker]] += (-1, 1)
        totals[[giver, taker]] += (-1, 1)
    return moved


def _deal(labels: Ints, counts: Ints, sampler: np.random.Generator) -> list[Ints]:
    hands: list[list[Ints]] = [[] for _ in range(counts.shape[1])]
    for label, row in enumerate(counts):
        members = sampler.permutation(np.flatnonzero(labels == label))
        for hand, part in zip(hands, np.split(members, row.cumsum()[:-1]), strict=True):
            hand.append(part)
    return [np.concatenate(hand) for hand in hands]


def _named(parts: Iterable[Ints]) -> dict[str, Tensor]:
    """Numbered with leading zeros, so that the order of the names is the order of the numbers."""
    held = [torch.from_numpy(np.sort(part)) for part in parts]
    digits = len(str(len(held) - 1))
    return {f"c{number:0{digits}}": part for number, part in enumerate(held)}


def _labels(dataset: Dataset, use: str) -> Ints:
    if dataset.labels is None:
        why = f"{dataset.name!r} has quantities to learn, and no labels to divide by"
        remedy = 'use task.split = "natural" or "iid"'
        raise SpecError(f"task.split = {use!r}: {why}; {remedy}")
    labels: Ints = dataset.labels.cpu().numpy()
    return labels


def _check_room(dataset: Dataset, clients: int, least: int) -> None:
    size = len(dataset.train)
    if clients * least > size:
        if clients <= size:
            why = f"{dataset.name!r} has {size} training records, too few to give {clients} clients {least} each"
            raise SpecError(f"task.split.least = {least}: {why}; use at most {size // clients}, or fewer clients")
        why = f"{dataset.name!r} has {size} training records, too few to give each client {least}"
        raise SpecError(f"task.split.clients = {clients}: {why}; use at most {size // least} clients")
