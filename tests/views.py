"""Played rounds with everybody's views, and what clients of them really sent, for tests of what adversaries see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from croupier.aggregate.mean import Mean, Scaled
from croupier.audit.bench import PlayedRounds
from croupier.audit.client_view import handed
from croupier.audit.question import Adversary
from croupier.audit.seen import Views, seen
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Gathered
from croupier.core.view import facts
from croupier.encode.encoder import Released
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Threat
from croupier.engine.task import Task
from croupier.pipeline import Direct, Pipeline
from croupier.release.rows import Rows


def played(
    pipeline: Pipeline, task: Task, coins: Coins, count: int, absent: frozenset[str] = frozenset()
) -> PlayedRounds:
    """Some rounds, as the audit's bench keeps them."""
    threat, plan = Threat(absent=lambda _: absent), Federation(rounds=count, quorum=0.5)
    done = list(rounds(pipeline, task, plan, coins, Local(), threat=threat, keep={"*": "keep"}))
    views = tuple({name: facts(view) for name, view in one.views.items()} for one in done)
    own = tuple({name: view.coins.export() for name, view in one.views.items()} for one in done)
    starts = tuple(handed(by[one.present[0]]) for by, one in zip(views, done, strict=True))
    return PlayedRounds(tuple(replace(one, views={}) for one in done), views, starts, own)


@dataclass(frozen=True)
class Staged:
    """A protocol on a task, and its first rounds."""

    pipeline: Pipeline
    task: Task
    coins: Coins
    absent: frozenset[str] = frozenset()

    @cached_property
    def played(self) -> PlayedRounds:
        """Two rounds: in the second one clients are handed what came of the first."""
        return played(self.pipeline, self.task, self.coins, 2, self.absent)

    @property
    def clients(self) -> tuple[str, ...]:
        """Who took part in the first round."""
        return self.played.rounds[0].present

    @property
    def start(self) -> Tensor:
        """The model that they were handed."""
        return self.played.starts[0]

    def views(self, who: Adversary) -> Views:
        """An adversary's views of the first round, through bytes."""
        found: Views = canon.load(canon.dump(self.played.seen_by(who, 0)))
        return found

    def read(self, who: Adversary) -> Gathered:
        """What it makes of them."""
        return seen(self.views(who), self.pipeline.plain(), self.task.layout, self.start)

    @cached_property
    def trained(self) -> Tensor:
        """What clients learnt, as whole models in plain coordinates."""
        views = self.played.views[0]
        return torch.stack([_first(views[who]["inputs"], "vector")["vector"] for who in self.clients])

    @cached_property
    def sent(self) -> Tensor:
        """What they sent, as whole models: taken from the same clients in rounds that hide nothing."""
        rule = self.pipeline.aggregate if isinstance(self.pipeline.aggregate, Scaled) else Mean()
        bare = self.pipeline.model_copy(update={"release": Rows(), "place": Direct(), "aggregate": rule})
        inputs = played(bare, self.task, self.coins, 1, self.absent).views[0]["server"]["inputs"]
        letters = next(box for box in inputs if isinstance(box, tuple) and box)
        told = [value for value in inputs if isinstance(value, dict) and "scale" in value]
        return torch.stack([self._model(letter["body"], told[0] if told else {}) for letter in letters])

    def _model(self, body: dict[str, Tensor], brief: dict[str, Tensor]) -> Tensor:
        encode, layout = self.pipeline.encode, self.task.layout
        beside = {name: values.unsqueeze(0) for name, values in body.items() if name != "vector"}
        got = encode.decode(Released(("c",), body["vector"].unsqueeze(0), None, beside, layout=layout), brief)
        row = got.sums if got.rows is None else got.rows[0]
        assert row is not None
        assert got.weights is not None
        if encode.scaled:
            row = row / float(got.weights)
        lr = getattr(self.pipeline.aggregate, "lr", 1.0) if encode.use == "signs" else 1.0
        return (lr * row.double() + (self.start.double() if encode.form == "delta" else 0)).float()

    def weighed(self, rows: Tensor) -> Tensor:
        """Their mean, weighed as the protocol weighs clients."""
        weights = torch.ones(len(rows), dtype=torch.float64)
        if self.pipeline.encode.weights != "uniform":
            views = self.played.views[0]
            weights = torch.cat([_first(views[who]["inputs"], "vector")["luggage"]["weight"] for who in self.clients])
        return (weights.unsqueeze(1) * rows.double()).sum(0) / weights.sum()


def _first(inputs: Iterable[Any], key: str) -> Any:
    return next(value for value in inputs if isinstance(value, dict) and key in value)
