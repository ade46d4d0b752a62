"""Root data: the few clean training records that the server keeps for itself, and what it does with them.

Some robust aggregators compare clients with a small clean set of the server's own (FLTrust, RAIN). `task.root` says how
many records it keeps; they are drawn from the same data as the clients', and stand in for records that a real server
would collect itself. Nobody else trains on them, whichever aggregator is chosen, so that aggregators can be compared.

`learn.assemble` draws them and puts `Rooted.fit` and `Rooted.features` into the task. `engine.work` hands both on in
the aggregator's `Desk`, as `fit` (train on them as a client would) and `features` (what a model makes of them). An
aggregator that needs them says so by the words `root` and `forward`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.errors import CroupierError, SpecError
from croupier.learn.augment import Augment
from croupier.learn.data import Dataset, Records
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet
from croupier.learn.split import Ints, apportion
from croupier.learn.train import Learner


class Root(Part):
    """How many training records the server keeps for itself before the others are split among clients.

    They are drawn from each class by its share of the data; with `bias`, that share of them is of class 0 and the rest
    by the other classes' shares. Data without classes are drawn from as they are. Nobody else trains or tests on them.
    Cao et al. 2021 (FLTrust) propose such records, and use 100.
    """

    records: int = Field(
        0,
        ge=0,
        description="how many training records the server keeps for itself, in nobody else's data; 100 do for rules "
        "that need some",
    )
    bias: float | None = Field(
        None, ge=0, le=1, description="the share of them that is of class 0; each class's share of the data unless set"
    )

    def draw(self, dataset: Dataset, coins: Coins) -> tuple[Dataset, Records | None]:
        """What is left to be split, and the server's records, if any. Raises: SpecError when the data have too few."""
        if not self.records:
            return dataset, None
        size = len(dataset.train)
        if self.records >= size:
            why = f"{dataset.name!r} has {size} training records, and clients need some"
            raise SpecError(f"task.root.records = {self.records}: {why}; use fewer, 100 are usual")
        own = self._numbers(dataset, coins.sampler())
        rest = torch.ones(size, dtype=torch.bool)
        rest[own] = False
        others = rest.nonzero()[:, 0]
        left = replace(
            dataset,
            train=dataset.train.take(others),
            labels=None if dataset.labels is None else dataset.labels[others],
            owner=None if dataset.owner is None else dataset.owner[others],
        )
        return left, dataset.train.take(own)

    def _numbers(self, dataset: Dataset, sampler: np.random.Generator) -> Tensor:
        """Which records the server keeps, drawn class by class where there are classes. Raises: SpecError."""
        if dataset.labels is None:
            if self.bias is not None:
                remedy = "leave task.root.bias out"
                raise SpecError(f"task.root.bias = {self.bias}: {dataset.name!r} has no classes; {remedy}")
            return torch.from_numpy(np.sort(sampler.choice(len(dataset.train), self.records, replace=False)))
        labels: Ints = dataset.labels.cpu().numpy()
        sizes = np.bincount(labels, minlength=dataset.classes)
        wanted = self._counts(sizes)
        if short := [label for label, size in enumerate(sizes) if wanted[label] > size]:
            first = f"class {short[0]} has {sizes[short[0]]} records and {wanted[short[0]]} are wanted"
            raise SpecError(f"task.root.records = {self.records}: {first}; use fewer, or another task.root.bias")
        held = [
            sampler.choice(np.flatnonzero(labels == label), count, replace=False) for label, count in enumerate(wanted)
        ]
        return torch.from_numpy(np.sort(np.concatenate(held)))

    def _counts(self, sizes: Ints) -> Ints:
        """How many records of each class."""
        shares = sizes / sizes.sum()
        if self.bias is not None:
            others = 1 - shares[0]
            shares = shares * ((1 - self.bias) / others if others else 0.0)
            shares[0] = self.bias if others else 1.0
        return apportion(self.records, shares)


NONE = Root()


@dataclass(frozen=True)
class Rooted:
    """The server's records in use: a network trains on them as a client's does, and features of a model are read."""

    learner: Learner
    net: FlatNet

    @classmethod
    def of(cls, module: nn.Module, goal: str, fit: Fit, records: Records, device: str, augment: Augment) -> Rooted:
        """With a network of its own. Raises: SpecError when a batch of these records cannot be trained on."""
        try:
            learner = Learner(module, goal, fit, {"root": records}, device, augment=augment)
        except SpecError:
            if len(records) > 1:
                raise
            raise SpecError(
                "task.root.records = 1: task.model normalises over batches, which takes two records; use 100"
            ) from None
        return cls(learner, FlatNet(module, device))

    def fit(self, start: Tensor, coins: Coins) -> Tensor:
        """The model after local training on these records. Raises: RangeError when it diverged."""
        (done,) = self.learner([(start, "root", coins)])
        if isinstance(done, CroupierError):
            raise done
        return done.vector

    def features(self, vector: Tensor) -> Tensor:
        """What the linear layer that is called last is fed for each record; the outputs where there is none.

        Seen by listening to every linear layer: networks need not name theirs.
        """
        records = self.learner.shards["root"]
        fed: list[Tensor] = []
        hooks = [
            part.register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0]))
            for part in self.net.module.modules()
            if isinstance(part, nn.Linear)
        ]
        try:
            self.net.load(vector)
            self.net.module.eval()
            with torch.no_grad():
                outputs = self.net.module(records.batch(torch.arange(len(records), device=self.net.weights.device))[0])
        finally:
            for hook in hooks:
                hook.remove()
        last = fed[-1] if fed and len(fed[-1]) == len(records) else outputs
        return last.detach().reshape(len(records), -1).cpu()
