"""Auxiliary clients: they resemble the clients under attack, are none of them, and their records are the adversary's.

The adversary trains them itself, from the models it was handed, to learn what the updates of clients with a known trait
look like. They are households that take no part in the run, or clients made up of records that nobody trains on.
`audit.traits.findings` and `audit.traits.tiers` make them and let them learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from croupier.audit.attacks.traits.denoise import AuxiliaryUpdates
from croupier.audit.setting import Setting
from croupier.audit.stage import Stage
from croupier.core.coins import Coins
from croupier.core.norm import length
from croupier.core.update import Update
from croupier.engine.task import Task
from croupier.errors import CroupierError, SpecError, Unsuited
from croupier.learn.attributes import Attribute, attributes
from croupier.learn.data import Data, Dataset
from croupier.learn.remembered import Remembered
from croupier.learn.root import NONE
from croupier.learn.split import Natural, Split

# With fewer of them, the spread of their updates says nothing.
LEAST = 4
# So many are made up where there are none; of real ones no more are trained (but all in `audit.traits.tiers`).
MOST = 40
# How uneven the classes of made-up clients are, by turns: from nearly one class to nearly all alike.
ALPHAS = (0.1, 0.5, 2.5)


@dataclass(frozen=True)
class AuxiliaryClients:
    """Their names, how they train, and the attributes of everybody.

    Attributes of auxiliary clients are known to the adversary, those of all others are the truth.

    `common` has, by attribute, the commonest class of the records that made-up clients are made of.
    """

    task: Task
    names: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    common: Mapping[str, int] = field(default_factory=dict)

    def learn_from(self, starts: Mapping[int, Tensor], clip: float, coins: Coins) -> AuxiliaryUpdates:
        """What they learn from the models that were handed out in these rounds, clipped.

        Raises: Unsuited when one cannot train, as from models that noise has spoilt.
        """
        found = []
        for number, start in starts.items():
            done = self.task.fit(
                [(start, self.task.shards[who], coins.child("lesson", number, who)) for who in self.names]
            )
            if wrong := next((one for one in done if isinstance(one, CroupierError)), None):
                raise Unsuited(f"auxiliary clients cannot train from the models of round {number + 1}: {wrong}")
            made = [one.vector - start for one in done if isinstance(one, Update)]
            found.append(torch.stack([clipped(one, clip) for one in made]))
        return AuxiliaryUpdates(
            tuple(starts), torch.stack(found), {key: one.of(self.names) for key, one in self.attributes.items()},
            {key: len(one.classes) for key, one in self.attributes.items()},
        )  # fmt: skip

    def guesses(self, learnt: AuxiliaryUpdates) -> dict[str, set[int]]:
        """Classes to name without a view: the commonest of these clients, and of the records they are made of."""
        return {key: {learnt.majority(key), self.common.get(key, learnt.majority(key))} for key in self.attributes}


@dataclass
class SetAside:
    """A split that sets clients aside for the attacker: owners that are no clients, or else the last quarter."""

    split: Split
    index: Mapping[str, Tensor] = field(default_factory=dict)
    aside: tuple[str, ...] = ()

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        found = dict(self.split(dataset, coins))
        others = [name for name in dataset.owners if name not in found]
        if others and dataset.owner is not None and set(found) <= set(dataset.owners):
            places = {name: at for at, name in enumerate(dataset.owners)}
            found |= {name: (dataset.owner == places[name]).nonzero()[:, 0] for name in others}
            self.aside = tuple(others)
        else:
            self.aside = tuple(sorted(found)[-(len(found) // 4) :])
        if len(self.aside) < LEAST:
            raise SpecError(
                f"task.split: {len(self.aside)} clients are left for the attacker's auxiliary data, and it needs "
                f"{LEAST} or more; use more clients"
            )
        self.index = found
        return found


def with_all_households(data: Data, split: Split) -> tuple[Data, Split]:
    """The data and the split with households that are no clients kept in the data: these are the attacker's."""
    everybody = data.of_everybody()
    return (data, split) if everybody is data else (everybody, Natural(clients=data.many))


@dataclass
class SyntheticClients:
    """Clients made of records that are nobody's training data, each of `size` drawn with replacement.

    `pool` has the records' numbers. Mixes of classes vary around the pool's own, from nearly one class to nearly even.
    """

    pool: Tensor
    size: int
    index: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        if dataset.labels is None:
            raise SpecError(f"task.data = {dataset.name!r}: no attribute of its clients is known; use 'households'")
        classes, counts = torch.unique(dataset.labels[self.pool], return_counts=True)
        by = [self.pool[dataset.labels[self.pool] == one].numpy() for one in classes]
        around = (counts.double() / counts.double().mean()).numpy()
        found = {}
        for number in range(MOST):
            draw = coins.child("made up", number).sampler()
            # A floor, because with little mass all shares may round to nought.
            mix = draw.dirichlet(np.maximum(ALPHAS[number % len(ALPHAS)] * around, 1e-2))
            each = draw.multinomial(self.size, mix)
            drawn = [draw.choice(rows, many) for rows, many in zip(by, each, strict=True)]
            found[f"auxiliary-{number:02}"] = torch.from_numpy(np.sort(np.concatenate(drawn)))
        self.index = found
        return found


def auxiliary_clients(stage: Stage) -> AuxiliaryClients:
    """The auxiliary clients of a task: households that are no clients, or clients made up of all shadow sets.

    Made-up clients mix everybody's shadow records; whose a record is they are not told. Raises: SpecError where there
    can be no such clients.
    """
    return _households(stage) if stage.setting.data.selects_owners else _synthetic(stage)


def _households(stage: Stage) -> AuxiliaryClients:
    data, split = with_all_households(stage.setting.data, stage.setting.split)
    if data is stage.setting.data:
        raise SpecError(
            "task.data.households: all households are clients, and none is left to learn from; set it so that "
            f"{LEAST} or more stay outside"
        )
    held = SetAside(split)
    # What the server keeps for itself is taken out of a series, by whose places days are told.
    task, dataset = assembled(replace(stage.setting, data=data, root=NONE), held, stage.coins)
    aside = held.aside[:MOST]
    return AuxiliaryClients(task, aside, attributes(dataset, held.index, aside))


def _synthetic(stage: Stage) -> AuxiliaryClients:
    sizes = [len(rows) for rows in stage.held.training.values()]
    made = SyntheticClients(torch.cat(list(stage.held.shadows.values())), max(1, round(sum(sizes) / len(sizes))))
    task, dataset = assembled(stage.setting, made, stage.coins)
    (common,) = attributes(dataset, {"pool": made.pool}, ())["dominant"].labels.values()
    everybody = attributes(dataset, {**stage.held.training, **made.index}, ())
    return AuxiliaryClients(task, tuple(made.index), everybody, {"dominant": common})


def assembled(one: Setting, split: SetAside | SyntheticClients, coins: Coins) -> tuple[Task, Dataset]:
    """The setting's task on another split of its data, with a training that remembers its results."""
    made = one.assembled(coins, split)
    return replace(made.task, fit=Remembered(made.task.fit)), made.dataset


def clipped(update: Tensor, clip: float) -> Tensor:
    """An update clipped to this length, as the privacy mechanism does it."""
    size = length(update)
    return update if size <= clip else (update.double() * (clip / size)).float()
