"""Training that is one step on one record: the worst case for what a record looks like, and what is inverted.

The questions of reconstruction and of hidden coordinates play rounds with it in place of the description's training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from croupier.audit.invert import gradient_of
from croupier.audit.read_record import holding
from croupier.core.coins import Coins
from croupier.core.update import Layout, Update
from croupier.learn.assemble import Assembled
from croupier.learn.data import Records
from croupier.learn.dp_fit import Private
from croupier.learn.ends import is_felt
from croupier.learn.loss import loss_of
from croupier.learn.private import clipped
from croupier.learn.train import Learner

# One step of plain SGD is inverted, at this rate.
RATE = 0.1


def stepped(
    module: nn.Module, layout: Layout, start: Tensor, x: Tensor, y: Tensor, goal: str = "classify"
) -> Tensor:  # fmt: skip
    """A model after one step of SGD on these records."""
    gradient = gradient_of(holding(module, start, layout).eval(), x, y, loss=partial(loss_of, goal))
    after = start.clone()
    after[: len(gradient)] -= RATE * gradient
    return after


@dataclass
class SingleSteps:
    """Training that is one step of SGD on one record of the client's own; `drawn` tells the scorer which came first.

    Where clients train on clipped and noised gradients (`private`), this one is, too.
    """

    module: nn.Module
    layout: Layout
    shards: Mapping[str, Records]
    coins: Coins
    goal: str = "classify"
    private: Private | None = None
    drawn: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
        """An update for each job."""
        return [self._one(*job) for job in jobs]

    def _one(self, start: Tensor, shard: str, coins: Coins) -> Update:
        records, node = self.shards[shard], self.coins.child("record", shard, coins.export())
        at = int(node.sampler().integers(len(records)))
        x, y = (part.cpu() for part in records.batch(torch.tensor([at])))
        self.drawn.setdefault(shard, x)
        vector = stepped(self.module, self.layout, start, x, y, self.goal)
        if self.private is not None:
            vector = start + self._noised(vector - start, self.private, node.child("noise"))
        return Update(vector, self.layout, {"weight": torch.ones(1, dtype=torch.float64)})

    def _noised(self, step: Tensor, fit: Private, coins: Coins) -> Tensor:
        noise = torch.randn(step.shape, generator=coins.fast())
        return RATE * (clipped(step.unsqueeze(0) / RATE, fit.clip) + fit.noise * fit.clip * noise)


def unreadable(made: Assembled) -> str:
    """Why single records are not inverted in this task; nothing where they are."""
    if not isinstance(made.task.fit, Learner) or made.dataset.worded:
        return "records that are no quantities, or that training does not show, are not inverted"
    if not is_felt(made.module, made.dataset.test.batch(torch.arange(1))[0]):
        return "the network's outputs have no gradient in its inputs, by which records are searched for"
    return ""


def single_steps(made: Assembled, coins: Coins) -> SingleSteps:
    """Clients that take one step each, of a task in which their records are shown."""
    fit: Any = made.task.fit
    private = fit.fit if isinstance(fit.fit, Private) else None
    return SingleSteps(made.module, made.task.layout, fit.shards, coins, fit.goal, private)
