"""One run of a task for an audit: who holds which records, what is withheld, and the truth, which no attack gets.

From each client's records two parts are withheld: a shadow set for the adversary, and records that nobody trains on,
from which members are told apart. `audit.bench` makes a `Stage` for a seed, and every protocol of the audit trains on
it. `audit.questions.source` scores answers by its `Truth`, `audit.questions.reconstruction` and
`audit.traits.auxiliary` take data and model from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.setting import Setting
from croupier.core.coins import Coins
from croupier.errors import SpecError
from croupier.learn.data import Dataset, Windows
from croupier.learn.distort import Distortion
from croupier.learn.ends import check_logits
from croupier.learn.remembered import Remembered
from croupier.learn.split import Split

# Bytes of updates to remember: what does not fit is trained again when it is needed, to the same numbers.
_ROOM = 1 << 30


@dataclass
class Withheld:
    """A split of the data that keeps part of each client's records back.

    `shadows` are the adversary's, `unused` are trained on by nobody, and `training` is what is left to the clients.
    """

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
                    "of; use fewer clients, or set task.split.least to 20 or more; leave a natural owner out"
                )
            parts = order.split([first, second, len(index) - first - second])  # type: ignore[no-untyped-call]
            held = [index[part.sort().values] for part in parts]
            self.shadows[who], self.unused[who], self.training[who] = held
        return self.training


@dataclass(frozen=True)
class Truth:
    """The truth about the records asked about, which no attack is given.

    `owners` has each record's client, by its place among those present, `members` says of each suspect whether it was
    trained on, and `whose` has each suspect's client, by place as well, where that is known.
    """

    owners: Tensor
    members: Tensor
    whose: Tensor | None = None


@dataclass
class Stage:
    """One run's data, model and clients, on which defences play one after another; some records are withheld."""

    setting: Setting
    coins: Coins

    def __post_init__(self) -> None:
        self.held = Withheld(self.setting.split, self.setting.shadow, self.setting.fresh)
        self.made = self.setting.assembled(self.coins, self.held)
        if self.made.dataset.goal == "classify":
            check_logits(self.made.module, self.made.dataset.train, self.setting.model)
        self.task = replace(self.made.task, fit=Remembered(self.made.task.fit, _ROOM))
        self._asked: dict[tuple[Distortion, tuple[str, ...]], tuple[Knowledge, Truth]] = {}

    @property
    def unaskable(self) -> str:
        """Why it cannot be asked whose a record is, or whether it was trained on; nothing where it can."""
        if self.made.dataset.goal == "classify" or not isinstance(self.made.dataset.train, Windows):
            return ""
        return (
            f"task.data = {self.setting.data.use!r}: its records are windows of one series that overlap, so that a "
            "record is in others too, and whose it is cannot be asked; use data of single records, such as 'digits'"
        )

    @property
    def measure(self) -> str:
        """What is measured of the model on test records."""
        return "accuracy" if self.made.dataset.classes else "rmse"

    def about(self, present: tuple[str, ...], noise: Distortion) -> tuple[Knowledge, Truth]:
        """What the adversary knows of the clients of a round, and the truth."""
        if (key := (noise, present)) not in self._asked:
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
        each = zip(clients, pairs, strict=True)
        outside = [_mixed(unused[who], coins.child("out", who))[:many] for who, many in each]
        left = [order[who][many:] for who, many in zip(clients, pairs, strict=True)]
        count = min(self.setting.records, *(len(part) for part in left))
        # In a random order: the place of a record in the list must not tell whose it is.
        shown = torch.from_numpy(coins.child("order").sampler().permutation(count * len(clients)))
        owners = torch.arange(len(clients)).repeat_interleave(count)[shown]
        mixed = torch.from_numpy(coins.child("mixed").sampler().permutation(2 * sum(pairs)))
        members = (torch.arange(2 * sum(pairs)) < sum(pairs))[mixed]
        shadows = tuple(self._shadow(who, noise, coins) for who in clients)
        records = self.made.dataset.train.batch(torch.cat([part[:count] for part in left])[shown])
        suspects = self.made.dataset.train.batch(torch.cat([*inside, *outside])[mixed])
        knowledge = self.setting.knowledge(self.made, records, suspects, clients, shadows)
        return knowledge, Truth(owners, members)

    def _shadow(self, who: str, noise: Distortion, coins: Coins) -> Sample:
        inputs, labels = self.made.dataset.train.batch(self.held.shadows[who])
        return noise(inputs, coins.child("noise", who).fast()), labels


def _mixed(index: Tensor, coins: Coins) -> Tensor:
    return index[torch.from_numpy(coins.sampler().permutation(len(index)))]
