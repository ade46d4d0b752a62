"""Whole trainings through the real round loop, once a seed, some of them at a time, and cells of tables over seeds.

IntraShuffler's Tables 3, 4, 6, 8 and 9 (`papers.intra.utility_table`, `papers.intra.recombination`) train by it, and
Tazza's figures take `cell` and `shown` from here. A training is asked for by value, and made in a process of its own
where several run at a time; what comes back is plain numbers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.intervals import over_runs
from croupier.core.norm import length
from croupier.core.update import Model
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.learn.assemble import Assembled, Hardware, TaskOptions, assemble
from croupier.learn.data import Data, Dataset
from croupier.learn.fit import Fit
from croupier.learn.models import Network
from croupier.pipeline import Pipeline
from croupier_lab.papers.shared.figure import Means
from croupier_lab.processes import ask, process_pool

A = TypeVar("A")
B = TypeVar("B")
Deal = Callable[[Dataset, Coins], Mapping[str, Tensor]]


@dataclass(frozen=True)
class First:
    """A split that keeps its first so many clients; or, with `others`, all but those, who never train the model."""

    split: Deal
    count: int
    others: bool = False

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        """Deal records to the clients that are kept. Raises: SpecError when nobody is left."""
        found = list(self.split(dataset, coins).items())
        kept = found[self.count :] if self.others else found[: self.count]
        if not kept:
            raise SpecError(f"task.split: {len(found)} clients, and none beside the first {self.count}; split for more")
        return dict(kept)


@dataclass(frozen=True)
class TrainingTask:
    """What is learnt and by whom; clients of `everyone` after the first `clients` hold auxiliary, public records."""

    data: Data
    everyone: Data
    split: Deal
    clients: int
    model: Network
    fit: Fit
    plan: Federation
    means: Means

    def built(self, coins: Coins, *, others: bool = False) -> Assembled:
        """The task of the clients, or the same one for the others; both start from the same model."""
        data = self.everyone if others else self.data
        split = First(self.split, self.clients, others)
        # A GPU takes as long for one small client as for a cohort of them.
        together = 1 if self.means.device == "cpu" else self.plan.cohort or self.clients
        return assemble(
            data,
            split,
            self.model,
            self.fit,
            coins,
            options=TaskOptions(together=together),
            folder=self.means.folder,
            machine=Hardware(device=self.means.device, workers=1),
        )


@dataclass(frozen=True)
class PublicTask:
    """What everybody may know before the first round of a seed: the clip by a public rule, and the model's size.

    `start` is the first model's measure on the clients' test records, `naive` that of a guess without any model. A
    measure is the error of forecasts or the accuracy of classes.
    """

    clip: float
    size: int
    start: float
    naive: float


def public(work: TrainingTask, seed: int) -> PublicTask:
    """The public facts of a task; the clip is the median length of auxiliary clients' updates of the first model.

    Raises: CroupierError when one of them cannot train.
    """
    coins = Coins.from_seed(seed)
    made = work.built(coins, others=True)
    start = made.task.first.vector
    jobs = [(start, made.task.shards[who], coins.child("public", who)) for who in made.task.enrolled]
    lengths = []
    for done in made.task.fit(jobs):
        if isinstance(done, CroupierError):
            raise done
        lengths.append(length(done.vector - start))
    clients = work.built(coins)
    begun = measure(clients, clients.task.first)
    return PublicTask(statistics.median(lengths), len(start), begun, naive(clients.dataset))


def naive(dataset: Dataset) -> float:
    """The error of saying the last value again, or the accuracy of always saying the test's commonest class."""
    inputs, targets = dataset.test.batch(torch.arange(len(dataset.test)))
    if dataset.goal == "classify":
        return int(targets.bincount().max()) / len(targets)
    return math.sqrt(float((inputs[:, -1] - targets).double().pow(2).mean())) * dataset.unit


def measure(made: Assembled, model: Model) -> float:
    """The error of forecasts in the data's unit, or the accuracy of classes."""
    return dict(made.task.evaluate(model))["rmse" if made.dataset.goal == "forecast" else "accuracy"]


@dataclass(frozen=True)
class TrainingEnd:
    """How a training went: the measure by round; `lost` says why it ended early, if it did."""

    curve: tuple[tuple[int, float], ...]
    participations: Mapping[str, int]
    lost: str = ""

    @property
    def last(self) -> float:
        """The last model's measure."""
        return self.curve[-1][1]


def train(work: TrainingTask, pipeline: Pipeline, seed: int, every: int) -> TrainingEnd:
    """Train once. A ProtocolError ends it as lost, its curve in infinity at the round that failed.

    A last measure that is not finite counts as lost, too.
    """
    coins = Coins.from_seed(seed)
    made = work.built(coins)
    # Measured here and not in every round: that would take as long as training.
    task, curve, counts, number = replace(made.task, evaluate=lambda _: {}), [], {}, 0
    try:
        for done in rounds(pipeline, task, work.plan, coins, Local()):
            counts, number = dict(done.state.participations), done.number + 1
            if number % every == 0 or number == work.plan.rounds:
                curve.append((number, measure(made, done.state.model)))
    except ProtocolError as error:
        return TrainingEnd((*curve, (number + 1, math.inf)), counts, str(error))
    return TrainingEnd(tuple(curve), counts, "" if math.isfinite(curve[-1][1]) else "the measure is not finite")


def in_processes(fn: Callable[[A], B], jobs: Iterable[A], count: int) -> list[B]:
    """Apply a function to every job, so many at a time in processes of their own; results are in the jobs' order."""
    todo = list(jobs)
    if count < 2 or len(todo) < 2:
        return [fn(job) for job in todo]
    with process_pool(min(count, len(todo))) as pool:
        return [done.result() for done in [ask(pool, fn, job) for job in todo]]


def cell(values: Sequence[float]) -> dict[str, Any]:
    """A mean over seeds with its interval, of the finite values, and how many were not finite."""
    kept = [value for value in values if math.isfinite(value)]
    lost = len(values) - len(kept)
    if len(kept) < 2:
        return {"mean": None, "low": None, "high": None, "runs": [*kept], "lost": lost}
    rate = over_runs(kept)
    return {"mean": rate.rate, "low": rate.low, "high": rate.high, "runs": kept, "lost": lost}


def shown(found: Mapping[str, Any], places: int = 3, times: float = 1.0) -> str:
    """A cell as text."""
    lost = f"; {found['lost']} lost" if found["lost"] else ""
    if found["mean"] is None:
        return f"{found['lost']} runs lost" if found["lost"] else "-"
    half = (found["high"] - found["low"]) / 2
    return f"{times * found['mean']:.{places}f} ± {times * half:.{places}f}{lost}"
