"""Bouts over seeds: one dataset, many rules and attacks, each fought once, some of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from croupier.audit.abreast import ask, hands
from croupier.audit.poison import Poison
from croupier.audit.score import over_runs
from croupier.learn.data import Data
from croupier.learn.split import Iid, QSkew, Split
from croupier_lab.papers.arena import Ended, Ground, Terms, play
from croupier_lab.papers.entry import Means
from croupier_lab.papers.rules import Rule

ROOT = 100


@dataclass(frozen=True)
class Bout:
    """A rule against a share of clients that attack."""

    rule: Rule
    terms: Terms
    attack: Poison | None = None
    share: float = 0.0

    @property
    def alike(self) -> Bout:
        """What stands for all bouts that come out the same."""
        attack, share = (None, 0.0) if self.rule.alone or not self.share else (self.attack, self.share)
        # To an attack that does not look, a hidden reference is like a public one.
        blind = attack is None or not attack.looks
        rule = replace(self.rule, name="", shows="never" if blind else self.rule.shows)
        return Bout(rule, self.terms, attack, share)

    @property
    def says(self) -> str:
        """For those who watch."""
        against = f"{self.attack.use} {self.share:.0%}" if self.attack and self.share else "no attack"
        return f"{against}: {self.rule.name}"


@dataclass(frozen=True)
class Place:
    """Where bouts are fought: data, clients, network and seeds."""

    data: Data
    clients: int
    hidden: tuple[int, ...]
    means: Means
    seeds: tuple[int, ...]
    skew: float | None = None

    @cached_property
    def grounds(self) -> list[Ground]:
        """A ground a seed."""
        loaded = self.data.load(self.means.folder)
        split: Split = Iid(clients=self.clients)
        if self.skew is not None:
            split = QSkew(clients=self.clients, q=self.skew, least=2)
        return [Ground.of(loaded, split, self.hidden, seed, ROOT, self.means.device) for seed in self.seeds]

    def fight(self, bout: Bout, number: int) -> Ended:
        """The bout with the seed of that number."""
        return play(self.grounds[number], bout.rule, bout.terms, bout.attack, bout.share)


@dataclass(frozen=True)
class Fought:
    """Bouts of a place that were fought, and those still to come."""

    place: Place
    watch: Callable[[str], None]

    @cached_property
    def _known(self) -> dict[Bout, list[Ended]]:
        return {}

    def ahead(self, bouts: Iterable[Bout]) -> None:
        """Fight these now, `abreast` at a time; their results do not depend on how many that is."""
        todo = [bout for bout in dict.fromkeys(one.alike for one in bouts) if bout not in self._known]
        abreast, count = self.place.means.abreast, len(self.place.seeds)
        if abreast < 2 or not todo:
            return
        jobs = [(bout, number) for bout in todo for number in range(count)]
        with hands(abreast, _enter, (self.place,)) as pool:
            done = [fought.result() for fought in [ask(pool, _fight, job) for job in jobs]]
        self._known.update({bout: done[at * count : (at + 1) * count] for at, bout in enumerate(todo)})

    def __call__(self, bout: Bout) -> list[Ended]:
        """The bout, once a seed."""
        if bout.alike not in self._known:
            self.watch(bout.says)
            self._known[bout.alike] = [self.place.fight(bout, number) for number in range(len(self.place.seeds))]
        return self._known[bout.alike]


_HERE: list[Place] = []


def _enter(place: Place) -> None:
    # Many processes share the cores.
    torch.set_num_threads(1)
    _HERE.append(place)


def _fight(job: tuple[Bout, int]) -> Ended:
    return _HERE[-1].fight(*job)


def cell(values: Sequence[float]) -> dict[str, Any]:
    """A mean over seeds with its interval."""
    rate = over_runs(values)
    return {"accuracy": rate.rate, "low": rate.low, "high": rate.high, "runs": list(values)}


def shown(found: Mapping[str, Any]) -> str:
    """In per cent."""
    return f"{100 * found['accuracy']:.1f} ± {50 * (found['high'] - found['low']):.1f}"
