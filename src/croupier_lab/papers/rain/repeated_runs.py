"""Trainings in the clear over seeds: one dataset, many rules and attacks, each trained once a seed.

RAIN's Figures 3 to 6 (`robustness`, `malicious_shares`) and its rate (`server_rate`) ask for runs by value. Equal ones
are trained once, in as many processes as the command line allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from croupier.audit.poison import Poison
from croupier.core.intervals import over_runs
from croupier.learn.data import Data
from croupier.learn.split import Iid, QSkew, Split
from croupier_lab.papers.rain.clear_rounds import ClearRun, ClearTask, TrainingTerms, play
from croupier_lab.papers.rain.rules import ClearRule
from croupier_lab.papers.shared.figure import Means
from croupier_lab.processes import ask, process_pool

# Records that the server keeps for itself.
ROOT = 100


@dataclass(frozen=True)
class AttackedRun:
    """A training to be done: a rule against a share of clients that attack."""

    rule: ClearRule
    terms: TrainingTerms
    attack: Poison | None = None
    share: float = 0.0

    @property
    def alike(self) -> AttackedRun:
        """The run that stands for all those that come out the same."""
        attack, share = (None, 0.0) if self.rule.alone or not self.share else (self.attack, self.share)
        # To an attack that does not look, a hidden reference is like a public one.
        blind = attack is None or not attack.sees_reference
        rule = replace(self.rule, name="", shows="never" if blind else self.rule.shows)
        return AttackedRun(rule, self.terms, attack, share)

    @property
    def says(self) -> str:
        """What is told to those who watch."""
        against = f"{self.attack.use} {self.share:.0%}" if self.attack and self.share else "no attack"
        return f"{against}: {self.rule.name}"


@dataclass(frozen=True)
class RunPlace:
    """Where runs are trained: data, clients, network and seeds."""

    data: Data
    clients: int
    hidden: tuple[int, ...]
    means: Means
    seeds: tuple[int, ...]
    skew: float | None = None

    @cached_property
    def grounds(self) -> list[ClearTask]:
        """The task of each seed."""
        loaded = self.data.load(self.means.folder)
        split: Split = Iid(clients=self.clients)
        if self.skew is not None:
            split = QSkew(clients=self.clients, q=self.skew, least=2)
        return [ClearTask.of(loaded, split, self.hidden, seed, ROOT, self.means.device) for seed in self.seeds]

    def train_once(self, attacked: AttackedRun, number: int) -> ClearRun:
        """Train the run on the task with that number."""
        return play(self.grounds[number], attacked.rule, attacked.terms, attacked.attack, attacked.share)


@dataclass(frozen=True)
class RunsOverSeeds:
    """The runs of one place, each trained when it is first asked for, and then kept."""

    place: RunPlace
    watch: Callable[[str], None]

    @cached_property
    def _known(self) -> dict[AttackedRun, list[ClearRun]]:
        return {}

    def ahead(self, planned: Iterable[AttackedRun]) -> None:
        """Train these now where several processes are allowed; results do not depend on how many."""
        todo = [attacked for attacked in dict.fromkeys(one.alike for one in planned) if attacked not in self._known]
        processes, count = self.place.means.processes, len(self.place.seeds)
        if processes < 2 or not todo:
            return
        jobs = [(attacked, number) for attacked in todo for number in range(count)]
        with process_pool(processes, _enter, (self.place,)) as pool:
            done = [trained.result() for trained in [ask(pool, _train_once, job) for job in jobs]]
        self._known.update({attacked: done[at * count : (at + 1) * count] for at, attacked in enumerate(todo)})

    def __call__(self, attacked: AttackedRun) -> list[ClearRun]:
        """The results of a run, one for each seed; trained now, if not before."""
        if attacked.alike not in self._known:
            self.watch(attacked.says)
            self._known[attacked.alike] = [
                self.place.train_once(attacked, number) for number in range(len(self.place.seeds))
            ]
        return self._known[attacked.alike]


_HERE: list[RunPlace] = []


def _enter(place: RunPlace) -> None:
    # Many processes share the cores.
    torch.set_num_threads(1)
    _HERE.append(place)


def _train_once(job: tuple[AttackedRun, int]) -> ClearRun:
    return _HERE[-1].train_once(*job)


def cell(values: Sequence[float]) -> dict[str, Any]:
    """A mean over seeds with its interval."""
    rate = over_runs(values)
    return {"accuracy": rate.rate, "low": rate.low, "high": rate.high, "runs": list(values)}


def shown(found: Mapping[str, Any]) -> str:
    """A cell in per cent."""
    return f"{100 * found['accuracy']:.1f} ± {50 * (found['high'] - found['low']):.1f}"
