"""The work that parties of a round ask for by name (fit, brief, aggregate, ...), and the book of what clients release.

A party yields `Work(name, args)` for whatever takes data, a network or a rule, and a driver runs all work of one name
together. `RoundWork.by_name` has the functions behind all names but `spend`: `engine.loop` hands them to the driver of
a simulation, `service.start` to deployed clients and the server. `spend` is `ReleaseBook`'s in the loop (what counts as
released in a round, however many attempts it takes), and `service.party`'s in a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.agree.before_round import DRAW
from croupier.core.attempt import WorkByName
from croupier.core.coins import Coins
from croupier.core.flow import Memory
from croupier.core.update import Model, Update
from croupier.encode.permuting import Permuting
from croupier.engine.restart import with_events
from croupier.engine.task import Task
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.pipeline import Pipeline
from croupier.privacy.ledger import Event, Ledger

Spend = Callable[[str, Mapping[str, Any]], None]
Jobs = Sequence[tuple[Any, ...]]


def nowhere(client: str, event: Mapping[str, Any]) -> None:
    """Write no release to disk: for a simulation that is never resumed, whose ledgers stay in memory."""


def permuting_of(task: Task) -> Permuting | None:
    """What moves vectors along the network's symmetries, where the task shows its network."""
    return None if task.symmetry is None else Permuting(task.symmetry)


@dataclass
class ReleaseBook:
    """What clients released in a round, over all its attempts, and which clients refused because their budget is spent.

    `written` puts a release on disk before it leaves (`Journal.release`); `senders` are the clients that sent anything.
    """

    written: Spend = nowhere
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    overspent: dict[str, str] = field(default_factory=dict)
    senders: set[str] = field(default_factory=set)

    def spend(self, jobs: Jobs) -> Sequence[None]:
        """Write down releases that are about to leave; one that is sent again is in the book already."""
        for name, event in jobs:
            self.written(name, event)
            self.ledgers[name] = self.ledgers.get(name, Ledger()).add(Event(**event))
        return [None for _ in jobs]

    def kept(self, name: str, memory: Memory) -> Memory:
        """A client's memory, with what it released in this round."""
        return with_events(memory, self.ledgers[name].plain()) if name in self.ledgers else memory


@dataclass
class RoundWork:
    """The functions behind the names of work. Updates are kept, so that a second attempt sends the same update again.

    `most` is how many updates are kept, None for all. In the loop this object lives for one round; a deployed party's
    lives as long as its process and keeps one update, so that the process does not grow from round to round.
    """

    pipeline: Pipeline
    task: Task
    most: int | None = None
    fits: dict[bytes, tuple[Tensor, Update | CroupierError]] = field(default_factory=dict, repr=False)

    def by_name(self) -> WorkByName:
        """All functions by name but `spend`; permuting and drawing models only where the task shows its network."""
        permuting = permuting_of(self.task)
        permute: WorkByName = {} if permuting is None else {"permute": permuting, "permute input": permuting.inputs}
        mine: WorkByName = {
            "fit": self.fit, "brief": self.brief, "aggregate": self.aggregate, "sample": self.sample,
        }  # fmt: skip
        draw: WorkByName = {} if self.task.fresh is None else {DRAW: self.draw}
        return {**mine, **permute, **draw}

    def fit(self, jobs: Jobs) -> Sequence[Update | CroupierError]:
        """Train, but for what was trained before from the same model with the same coins."""
        todo = [job for job in jobs if not self._kept(job)]
        for job, done in zip(todo, self.task.fit(todo) if todo else (), strict=True):
            self.fits[job[2].export()] = job[0], done
        found = [self.fits[job[2].export()][1] for job in jobs]
        for old in () if self.most is None else list(self.fits)[: -self.most]:
            del self.fits[old]
        return found

    def brief(self, jobs: Jobs) -> Sequence[Any]:
        """What the server tells beside its models."""
        return [self.pipeline.aggregate.brief(self._desk(models, own), rule) for models, rule, own in jobs]

    def aggregate(self, jobs: Jobs) -> Sequence[Any]:
        """The next models, or why there are none."""
        return [self._aggregated(got, self._desk(models, own), rule) for got, models, rule, own in jobs]

    def sample(self, jobs: Jobs) -> Sequence[Any]:
        """One record of a client's own."""
        draw = self.task.sample
        return [SpecError("this task has no records to show") if draw is None else draw(*job) for job in jobs]

    def draw(self, jobs: Jobs) -> Sequence[Any]:
        """Weights for the network, from coins that those who agreed share."""
        fresh = self.task.fresh
        return [SpecError("this task draws no models") if fresh is None else fresh(*job) for job in jobs]

    def _kept(self, job: tuple[Any, ...]) -> bool:
        # What was made of another model is no answer to this one.
        known = self.fits.get(job[2].export())
        return known is not None and torch.equal(known[0], job[0])

    def _desk(self, models: tuple[Model, ...], own: Coins) -> Desk:
        task = self.task
        return Desk(models, task.layout, own, task.root, task.features, task.answers, task.inputs)

    def _aggregated(self, gathered: Any, desk: Desk, rule: Memory) -> Any:
        if gathered.form == "delta" and any(model.frame != gathered.frame for model in desk.models):
            return ProtocolError("differences came in other coordinates than the model that they would be added to")
        try:
            return self.pipeline.aggregate(gathered, desk, rule)
        except CroupierError as error:
            return error
