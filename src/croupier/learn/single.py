"""Training that is one step on one record: the worst case for what a record looks like, and what is inverted.

`audit.questions.reconstruction` plays rounds with it in place of the description's training, and so does the
laboratory for permuted uploads (`croupier bench permutation`). A gradient of one record tells most about it; of a whole
client's training it would be mixed with others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Layout, Update
from croupier.learn.assemble import Assembled
from croupier.learn.data import Records
from croupier.learn.gradients import gradient_of, holding
from croupier.learn.loss import loss_of
from croupier.learn.private import clip_and_noise, clipped

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
    """Training that is one step of SGD on one record of the client's own; `drawn` keeps the first one for the scorer.

    Where clients train on clipped and noised gradients (`private`: clip, and noise in units of it), this one is, too.
    """

    module: nn.Module
    layout: Layout
    shards: Mapping[str, Records]
    coins: Coins
    goal: str = "classify"
    private: tuple[float, float] | None = None
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
            vector = start + self._noised(vector - start, *self.private, node.child("noise"))
        return Update(vector, self.layout, {"weight": torch.ones(1, dtype=torch.float64)})

    def _noised(self, step: Tensor, clip: float, noise: float, coins: Coins) -> Tensor:
        drawn = torch.randn(step.shape, generator=coins.fast())
        return RATE * (clipped(step.unsqueeze(0) / RATE, clip) + noise * clip * drawn)


def single_steps(made: Assembled, coins: Coins) -> SingleSteps:
    """`SingleSteps` in the place of a task's own training, with the same records, loss and clipping."""
    fit: Any = made.task.fit
    return SingleSteps(made.module, made.task.layout, fit.shards, coins, fit.goal, clip_and_noise(fit.fit))
