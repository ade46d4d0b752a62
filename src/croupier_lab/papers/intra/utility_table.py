"""The board of a table of utility: every task, rule and arm trained once a seed, and a row for each.

A board here is the cells of one table, and no relay. A training takes long, so a board does each only once, some at a
time. A cell that cannot be run is a row that says why. `papers/intra/utility` makes the tables, and `attack_figures`
takes `ABSENT` from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from statistics import fmean
from typing import Any

from croupier.privacy.gdp import composed, epsilon_of, mu_of
from croupier_lab.papers.intra.protocols import DELTA, NoiseArm, ServerRule, epsilons, pipeline, rate, sigmas
from croupier_lab.papers.intra.same_model import differences
from croupier_lab.papers.shared.figure import Means
from croupier_lab.papers.shared.trainings import (
    PublicTask,
    TrainingEnd,
    TrainingTask,
    cell,
    in_processes,
    public,
    shown,
    train,
)

Task = tuple[str, str]
ABSENT = "data not available"
# How often a curve is measured while a training runs.
MARKS = 5


@dataclass(frozen=True)
class UtilityCell:
    """One training of a table: a task (data and model), a rule of the server, and an arm."""

    task: Task
    rule: ServerRule
    arm: NoiseArm


@dataclass(frozen=True)
class Board:
    """The tasks and seeds of a table; each training is done once, `means.processes` at a time."""

    works: Mapping[Task, TrainingTask]
    seeds: tuple[int, ...]
    means: Means
    watch: Callable[[str], None]

    @cached_property
    def known(self) -> Mapping[Task, list[PublicTask]]:
        """What is public before the first round, by task, one for each seed."""
        jobs = [(work, seed) for work in self.works.values() for seed in self.seeds]
        self.watch(f"clips from auxiliary clients: {len(jobs)} tasks")
        found = in_processes(_public, jobs, self.means.processes)
        count = len(self.seeds)
        return {task: found[at * count : (at + 1) * count] for at, task in enumerate(self.works)}

    @cached_property
    def _done(self) -> dict[UtilityCell, list[TrainingEnd]]:
        return {}

    def ahead(self, cells: Iterable[UtilityCell]) -> None:
        """Train all cells that are not trained yet."""
        todo = [one for one in dict.fromkeys(cells) if one not in self._done]
        jobs = [(self._work(one), one, known, seed) for one in todo for known, seed in self._seeded(one)]
        self.watch(f"{len(jobs)} trainings")
        done = in_processes(_train, jobs, self.means.processes)
        count = len(self.seeds)
        self._done.update({one: done[at * count : (at + 1) * count] for at, one in enumerate(todo)})

    def _work(self, one: UtilityCell) -> TrainingTask:
        work = self.works[one.task]
        return replace(work, fit=one.rule.fit(work.fit))

    def _seeded(self, one: UtilityCell) -> Iterable[tuple[PublicTask, int]]:
        return zip(self.known[one.task], self.seeds, strict=True)

    def same(self, task: Task) -> dict[str, float]:
        """How far the models of the ways to release the same noised updates are apart after a few rounds."""
        work = self.works[task]
        self.watch("the same noised updates handed over in every way")
        return differences(work, self.known[task][0], self.seeds[0])

    def row(self, one: UtilityCell, paper: str) -> dict[str, Any]:
        """The row of a cell, with what its sentences need."""
        done, known, work = self._done[one], self.known[one.task], self.works[one.task]
        forecast = work.data.use == "households"
        found, start = cell([ended.last for ended in done]), cell([public.start for public in known])
        # Seed by seed: first models differ more than trainings do.
        moved = cell([ended.last - public.start for ended, public in zip(done, known, strict=True)])
        cohort = work.plan.cohort or work.clients
        style = (4, 1.0) if forecast else (1, 100.0)
        told = row(
            *one.task, one.rule.name, noise=one.arm.loudness, weights=one.arm.weighed, comes_out_as=one.arm.serves,
            server_step=f"{fmean(rate(one.arm, one.rule, public, cohort) for public in known):.2g}",
            ours=shown(found, *style), against_first_model=shown(moved, *style), paper=paper,
        )  # fmt: skip
        facts = {
            "forecast": forecast, "clip": cell([public.clip for public in known]), "size": known[0].size,
            "epsilons": list(epsilons(one.arm, known[0])),
            "sigmas": [sigma / known[0].clip for sigma in sigmas(one.arm, known[0])],
            "spent": _spent(one.arm, known[0], done), "lost": [ended.lost for ended in done if ended.lost],
            "curves": [[_finite(point) for point in ended.curve] for ended in done], "quiet": one.arm.quiet,
            "noise": one.arm.noise, "weights": one.arm.weights, "by": one.arm.by, "cosine": one.arm.cosine,
            "rounds": work.plan.rounds, "naive": fmean(public.naive for public in known),
        }  # fmt: skip
        return {**told, "_cell": found, "_start": start, "_moved": moved, "_facts": facts, "_same": {}}


def row(data: str, model: str, rule: str, **shown: str) -> dict[str, Any]:
    """A row with what it shows, by column; where nothing is given, it says that the data is not available."""
    return {
        "data": data, "model": model, "aggregator": rule, "noise": "-", "weights": "-", "server_step": "-",
        "comes_out_as": "-", "ours": ABSENT, "against_first_model": "-", "paper": "-", **shown,
        "_cell": None, "_start": None, "_moved": None, "_facts": None, "_same": {},
    }  # fmt: skip


def _finite(point: Sequence[float]) -> list[float | None]:
    """A point of a curve for a file; infinity, with which a lost run ends, becomes None."""
    return [value if isfinite(value) else None for value in point]


def _spent(arm: NoiseArm, known: PublicTask, done: Sequence[TrainingEnd]) -> list[float]:
    """The epsilon, tier by tier, of the client that took part most often in any run, over all its participations."""
    most = max((count for ended in done for count in ended.participations.values()), default=0)
    return [epsilon_of(composed([mu_of(known.clip, one)] * most), DELTA) if most else 0.0 for one in sigmas(arm, known)]


def _public(job: tuple[TrainingTask, int]) -> PublicTask:
    return public(*job)


def _train(job: tuple[TrainingTask, UtilityCell, PublicTask, int]) -> TrainingEnd:
    work, one, known, seed = job
    cohort = work.plan.cohort or work.clients
    every = max(1, work.plan.rounds // MARKS)
    return train(work, pipeline(one.arm, one.rule, known, cohort), seed, every)
