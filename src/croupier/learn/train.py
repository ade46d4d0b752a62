"""Training many simulated clients: one after the other, in worker threads, or stacked into one batched model.

`Learner` is what the round loop's work named `fit` comes down to: the start, the shard and the client's coins go in,
one update for each client comes out. The order of jobs and the number of workers change nothing; which clients are
stacked (`learn.batch`) is fixed by the description. A client whose weights are no numbers any more gives an error that
says so, and not an update. `learn.assemble` makes the `Learner` of a task, and attacks train shadow models by one
(`audit.membership`, `audit.unshuffle`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from croupier.core.coins import Coins
from croupier.core.update import Layout, Update
from croupier.errors import CroupierError, RangeError, SpecError
from croupier.kernels.threads import shareable
from croupier.learn.augment import AS_IS, Augment
from croupier.learn.batch import offers_by_hand, train_together
from croupier.learn.data import Records
from croupier.learn.fit import Fit
from croupier.learn.flat import FlatNet, layout_of, loss_of, train_mode
from croupier.learn.models.layers import draw_from

Job = tuple[Tensor, str, Coins]
# Weights of groups that join at most: more leave a processor's caches, and too few groups for other processes.
_JOINED = 1 << 19


def one_of(records: Records, coins: Coins) -> Tensor:
    """The input of one record, drawn at random."""
    at = int(coins.sampler().integers(len(records)))
    return records.batch(torch.tensor([at]))[0][0]


class ClientTrainer:
    """One worker: a network of its own, on which it trains some clients stacked, or one after the other."""

    def __init__(
        self, module: nn.Module, goal: str, fit: Fit, device: str = "cpu", stacked: bool = False,
        augment: Augment = AS_IS, threads: int = 1,
    ) -> None:  # fmt: skip
        self.net = FlatNet(module, device)
        self.goal, self.fit, self.device, self.stacked, self.augment = goal, fit, device, stacked, augment
        self.threads = threads
        self.least = fewest(module)

    def __call__(self, jobs: Sequence[tuple[Tensor, Records, Coins]]) -> list[Tensor]:
        """The vector after each client's training, from its start, its records and its coins."""
        torch.set_num_threads(1)
        if self.stacked:
            work = [(start, records, coins.fast()) for start, records, coins in jobs]
            try:
                return train_together(self.net, self.goal, self.fit, work, threads=self.threads)
            finally:
                torch.set_num_threads(1)
        return [self._alone(*job) for job in jobs]

    def _alone(self, start: Tensor, records: Records, coins: Coins) -> Tensor:
        """One client's training. Batches, dropout and augmentation draw from nodes of their own."""
        net = self.net
        net.load(start)
        train_mode(net.module)
        # Nodes of their own: the order of the batches is the same with and without them.
        draw_from(net.module, coins.child("dropout").fast())
        fresh = coins.child("augment").fast()
        if (private := self.fit.private) is not None:
            from croupier.learn.private import train_privately

            train_privately(net, self.goal, private, records, coins, lambda inputs: self.augment(inputs, fresh))
            return net.vector()
        state = self.fit.start(net.weights)
        for number, index in enumerate(self.fit.batches(len(records), coins.fast(), self.least), 1):
            inputs, targets = records.batch(index.to(self.device))
            net.grads.zero_()
            loss_of(self.goal, net.module(self.augment(inputs, fresh)), targets).backward()  # type: ignore[no-untyped-call]
            self.fit.step(net.weights, self.fit.left(net.grads), state, number)
        return net.vector()


def fewest(module: nn.Module) -> int:
    """The fewest records of a batch: 2 with batch normalisation (one has no spread to normalise by), else 1."""
    return 2 if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules()) else 1


@dataclass(frozen=True)
class Learner:
    """Trains the clients of a cohort.

    `group` is how many small clients train stacked together (1: never; `_joined` may join groups). It belongs to the
    description of the run, not to the machine, because it can change last bits; the number of workers cannot. `alone`:
    nothing else computes beside it, so that threads may wait for each other at every call.
    """

    module: nn.Module
    goal: str
    fit: Fit
    shards: Mapping[str, Records]
    device: str = "cpu"
    workers: int = 1
    group: int = 1
    tick: Callable[[int], None] | None = None
    augment: Augment = AS_IS
    alone: bool = False
    _idle: SimpleQueue[ClientTrainer] = field(default_factory=SimpleQueue, init=False, repr=False)

    def __post_init__(self) -> None:
        if (private := self.fit.private) is not None:
            from croupier.learn.apart import check_apart
            from croupier.learn.private import check_private

            check_private(self.module, private.use)
            if self.shards:
                # One client's records stand for all: their shapes are the same.
                check_apart(self.module, self.goal, private, max(self.shards.values(), key=len), self.device)
        least = fewest(self.module)
        if any(len(shard) < least for shard in self.shards.values()):
            raise SpecError(
                "task.split.least = 1: a client has one record, but task.model normalises over batches, which takes "
                "two; set it to 2 or more"
            )
        trainers, threads = (1, shareable(self.workers)) if self._shared else (self.workers, 1)
        for _ in range(trainers):
            self._idle.put(
                ClientTrainer(self.module, self.goal, self.fit, self.device, self.stacked, self.augment, threads)
            )

    @property
    def _shared(self) -> bool:
        """Whether workers share the calls of one training, and groups of clients come one after the other.

        At every call of a small network's step threads of Python's wait for each other; threads inside a call do not.
        """
        return self.alone and self._by_hand

    @property
    def _by_hand(self) -> bool:
        return self.stacked and self.device == "cpu" and offers_by_hand(self.module, self.goal)

    @cached_property
    def layout(self) -> Layout:
        """What lies where in an update."""
        return layout_of(self.module)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        """An update, or the error that says why there is none, for each job."""
        parts = self.parts(jobs)
        done: dict[int, Update | CroupierError] = {}
        for part, vectors in zip(
            parts, self._map(lambda part: self._train([jobs[i] for i in part]), parts), strict=True
        ):
            done |= {i: self.update(jobs[i], vector) for i, vector in zip(part, vectors, strict=True)}
        return [done[i] for i in range(len(jobs))]

    def sample(self, shard: str, coins: Coins) -> Tensor:
        """The input of one record of a client, as numbers that can travel."""
        return one_of(self.shards[shard], coins).to("cpu", torch.float32)

    def parts(self, jobs: Sequence[tuple[Any, ...]]) -> list[list[int]]:
        """Which jobs train together: equal groups of clients of like size, so that little of a batch is padding."""
        if not self.stacked:
            return [[i] for i in range(len(jobs))]
        records = [int(self._counts[job[1]]) for job in jobs]
        order = sorted(range(len(records)), key=lambda i: -records[i])
        groups = -(-len(order) // self.group)
        parts = [order[len(order) * g // groups : len(order) * (g + 1) // groups] for g in range(groups)]
        return self._joined(parts, records) if self._by_hand else parts

    def _joined(self, parts: list[list[int]], records: Sequence[int]) -> list[list[int]]:
        """The same groups, neighbours as one where no batch becomes wider: fewer calls, and no more padding.

        Who trains together changes last bits, so this hangs on the description alone, as the groups do.
        """
        most = max(self.group, _JOINED // max(1, self.layout.size))
        found = parts[:1]
        for part in parts[1:]:
            alike = min(records[found[-1][0]], records[part[0]]) >= self.fit.batch
            if alike and len(found[-1]) + len(part) <= most:
                found[-1] = [*found[-1], *part]
            else:
                found.append(part)
        return found

    @property
    def stacked(self) -> bool:
        """Whether clients train stacked."""
        return self.group > 1 and self.fit.stacks

    @cached_property
    def _counts(self) -> Mapping[str, Tensor]:
        """On how many records each client trains."""
        return {shard: torch.tensor([float(len(held))], dtype=torch.float64) for shard, held in self.shards.items()}

    def _map(self, fn: Callable[[list[int]], list[Tensor]], parts: list[list[int]]) -> list[list[Tensor]]:
        if self.workers == 1 or len(parts) == 1 or self._shared:
            return [fn(part) for part in parts]
        return list(self._pool.map(fn, parts))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """Kept between rounds: a fresh thread would set up its own buffers for every kernel again."""
        return ThreadPoolExecutor(self.workers)

    def _train(self, jobs: list[Job]) -> list[Tensor]:
        """Some clients' training by one worker that is idle."""
        trainer = self._idle.get()
        try:
            return trainer([(start, self.shards[shard], coins) for start, shard, coins in jobs])
        finally:
            self._idle.put(trainer)
            if self.tick:
                self.tick(len(jobs))

    def update(self, job: tuple[Any, ...], vector: Tensor) -> Update | CroupierError:
        """A trained vector as an update that says on how many records; or the error that it is no number any more."""
        try:
            return Update(vector, self.layout, {"weight": self._counts[job[1]]})
        except RangeError as error:
            return RangeError(f"{error}: training diverged; lower task.fit.lr")
