"""One run of a task for an audit: who holds which records, what is withheld, and the truth, given to no attack."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from croupier.audit.distort import Distortion
from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.setting import Setting
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.engine.task import Fits
from croupier.errors import CroupierError, SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.ends import check_logits
from croupier.learn.flat import frozen_of
from croupier.learn.split import Split


@dataclass
class Withheld:
    """A split that keeps part of each client's records back: its shadow set, and records nobody trains on."""

    split: Split
    shadow: float
    fresh: float
    shadows: dict[str, Tensor] = field(default_factory=dict)
    unused: dict[str, Tensor] = field(default_factory=dict)
    training: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        for who, index in self.split(dataset, coins.child("whole")).items():
            order = torch.from_numpy(coins.child("withheld", who).sampler().permutation(len(index)))
            first, second = (max(2, round(share * len(index))) for share in (self.shadow, self.fresh))
            if len(index) <= first + second + 1:
                raise SpecError(
                    f"task.split: {who} has {len(index)} records, too few to train on and to withhold {first + second} "
                    "of; use fewer clients, or set task.split.least to 20 or more"
                )
            parts = order.split([first, second, len(index) - first - second])  # type: ignore[no-untyped-call]
            held = [index[part.sort().values] for part in parts]
            self.shadows[who], self.unused[who], self.training[who] = held
        return self.training


@dataclass
class Remembered:
    """Training that is not done twice: the same start, records and coins give the same update.

    Defences that differ only in what the server sees train alike, and one training then serves them all.
    """

    fit: Fits
    room: int = 6 << 30
    known: dict[tuple[bytes, str, bytes], Update | CroupierError] = field(default_factory=dict)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        keys = [(hashlib.blake2b(canon.tensor_bytes(job[0])).digest(), job[1], job[2].export()) for job in jobs]
        # All or nothing: which clients train stacked must not depend on what is remembered.
        if all(key in self.known for key in keys):
            return [self.known[key] for key in keys]
        done = self.fit(jobs)
        size = sum(update.vector.nbytes for update in done if isinstance(update, Update))
        if size <= self.room:
            self.room -= size
            self.known.update(zip(keys, done, strict=True))
        return done


@dataclass(frozen=True)
class Truth:
    """Whose each record is, and which suspects are members. Experiments hold it; no attack is given it."""

    owners: Tensor
    members: Tensor


@dataclass
class Stage:
    """One run's data, model and clients, on which defences play one after another; some records are withheld."""

    setting: Setting
    coins: Coins

    def __post_init__(self) -> None:
        self.held = Withheld(self.setting.split, self.setting.shadow, self.setting.fresh)
        self.made = self._assembled()
        if self.made.dataset.goal == "classify":
            check_logits(self.made.module, self.made.dataset.train, self.setting.model)
        self.task = replace(self.made.task, fit=Remembered(self.made.task.fit))
        self._asked: dict[tuple[Distortion, tuple[str, ...]], tuple[Knowledge, Truth]] = {}

    @property
    def unaskable(self) -> str:
        """Why it cannot be asked whose a record is, or whether it was trained on; nothing where it can."""
        if self.made.dataset.goal == "classify" or isinstance(self.made.dataset.train, TensorRecords):
            return ""
        return (
            f"task.data = {self.setting.data.use!r}: its records are windows of one series that overlap, so that a "
            "record is in others too, and whose it is cannot be asked; use data of single records, such as 'digits'"
        )

    @property
    def measure(self) -> str:
        """What is measured of the model on test records."""
        return "accuracy" if self.made.dataset.classes else "rmse"

    def _assembled(self) -> Assembled:
        one = self.setting
        return assemble(
            one.data,
            self.held,
            one.model,
            one.fit,
            self.coins,
            options=TaskOptions(augment=one.augment, root=one.root, together=one.together, loss=one.loss),
            folder=one.folder,
            machine=Hardware(device=one.device, workers=one.workers),
        )

    def quiet(self, present: tuple[str, ...]) -> Coins:
        """The coins of what attacks study before any view."""
        return self.coins.child("study", *present)

    def about(self, present: tuple[str, ...], noise: Distortion) -> tuple[Knowledge, Truth]:
        """What the adversary knows of the clients of a round, and the truth."""
        key = noise, present
        if key not in self._asked:
            self._asked[key] = self._ask(present, noise, self.coins.child("audit", *present))
        return self._asked[key]

    def _ask(self, clients: tuple[str, ...], noise: Distortion, coins: Coins) -> tuple[Knowledge, Truth]:
        """The adversary's knowledge, and the truth that it is not given."""
        training, unused = self.held.training, self.held.unused
        order = {who: _mixed(training[who], coins.child("records", who)) for who in clients}
        some = self.setting.suspects
        pairs = [min(len(training[who]) // 2, len(unused[who])) if some else 0 for who in clients]
        # Suspects first: a record known to be trained on is no suspect any more.
        inside = [order[who][:many] for who, many in zip(clients, pairs, strict=True)]
        outside = [
            _mixed(unused[who], coins.child("out", who))[:many] for who, many in zip(clients, pairs, strict=True)
        ]
        left = [order[who][many:] for who, many in zip(clients, pairs, strict=True)]
        count = min(self.setting.records, *(len(part) for part in left))
        # In a random order: the place of a record in the list must not tell whose it is.
        shown = torch.from_numpy(coins.child("order").sampler().permutation(count * len(clients)))
        owners = torch.arange(len(clients)).repeat_interleave(count)[shown]
        mixed = torch.from_numpy(coins.child("mixed").sampler().permutation(2 * sum(pairs)))
        members = (torch.arange(2 * sum(pairs)) < sum(pairs))[mixed]
        knowledge = Knowledge(
            clients, self.setting.model.plain(), self.setting.fit.plain(), self.made.dataset.classes,
            self._sample(torch.cat([part[:count] for part in left])[shown]),
            tuple(self._shadow(who, noise, coins) for who in clients),
            self._sample(torch.cat([*inside, *outside])[mixed]), frozen_of(self.made.module),
            {"loss": self.setting.loss or self.made.dataset.goal},
        )  # fmt: skip
        return knowledge, Truth(owners, members)

    def _sample(self, index: Tensor) -> Sample:
        return self.made.dataset.train.batch(index)

    def _shadow(self, who: str, noise: Distortion, coins: Coins) -> Sample:
        inputs, labels = self._sample(self.held.shadows[who])
        return noise(inputs, coins.child("noise", who).fast()), labels


def _mixed(index: Tensor, coins: Coins) -> Tensor:
    return index[torch.from_numpy(coins.sampler().permutation(len(index)))]
