"""A description's own run for an audit of hidden coordinates, and its rules, which only a scorer may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from croupier.audit.integrity import Ground
from croupier.audit.invert import gradient_of
from croupier.audit.onlooker import Sight, sight, unmoved
from croupier.audit.permuted import holding
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.flow import Memory
from croupier.core.sitting import Drive, Sat, Sitting, Stamp
from croupier.core.update import Layout, Update
from croupier.encode.hidden import HiddenUnits
from croupier.encode.symmetry import Rule, Symmetry, fixed
from croupier.errors import SpecError, Unsuited
from croupier.federate import Round, State, Threat, rounds, run_id
from croupier.learn.data import Records
from croupier.learn.ends import is_felt
from croupier.learn.train import Learner
from croupier.pipeline import Pipeline
from croupier.place.frames import seed_of
from croupier.place.standing import Standing

# One step of plain SGD is inverted, at this rate.
RATE = 0.1


@dataclass
class Once:
    """Drives an epoch's agreement once: from the same coins every setting has the same one. It alone needs no work."""

    drive: Drive
    known: dict[Stamp, Sat] = field(default_factory=dict, repr=False)

    def __call__(self, sitting: Sitting) -> Sat:
        """How it ended."""
        if sitting.bench:
            return self.drive(sitting)
        if sitting.stamp not in self.known:
            self.known[sitting.stamp] = self.drive(sitting)
        return self.known[sitting.stamp]


def still(layout: Layout, shape: Sequence[int]) -> Symmetry:
    """Of uploads in plain order: every axis stays as it is."""
    reason = "uploads are in plain order"
    axes = {part.name: tuple(fixed(size, reason) for size in part.shape) for part in layout.carried}
    return Symmetry(layout, axes, tuple(fixed(size, reason) for size in shape))


def stepped(module: nn.Module, layout: Layout, start: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A model after one step of SGD on these records."""
    gradient = gradient_of(holding(module, start, layout).eval(), x, y)
    after = start.clone()
    after[: len(gradient)] -= RATE * gradient
    return after


@dataclass
class SingleSteps:
    """Training that is one step of SGD on one record of the client's own; `drawn` tells the scorer which."""

    module: nn.Module
    layout: Layout
    shards: Mapping[str, Records]
    coins: Coins
    drawn: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
        """An update for each job."""
        return [self._one(*job) for job in jobs]

    def _one(self, start: Tensor, shard: str, coins: Coins) -> Update:
        records = self.shards[shard]
        at = int(self.coins.child("record", shard, coins.export()).sampler().integers(len(records)))
        x, y = (part.cpu() for part in records.batch(torch.tensor([at])))
        self.drawn[shard] = x
        vector = stepped(self.module, self.layout, start, x, y)
        return Update(vector, self.layout, {"weight": torch.ones(1, dtype=torch.float64)})


@dataclass(frozen=True)
class Course:
    """One seed of a description under one pipeline."""

    ground: Ground
    pipeline: Pipeline
    drive: Drive
    # What clients remembered after each round that was played.
    remembered: list[Mapping[str, Memory]] = field(default_factory=list, repr=False)

    @property
    def first(self) -> str:
        """Who draws the first model."""
        return self.pipeline.encode.first if isinstance(self.pipeline.encode, HiddenUnits) else "open"

    @cached_property
    def symmetry(self) -> Symmetry:
        """Of the public network. Raises: SpecError where the task does not show one."""
        if not isinstance(self.pipeline.encode, HiddenUnits):
            # Nothing moves, so that any network will do, and none need be traced.
            return still(self.ground.made.task.layout, self.ground.made.dataset.shape)
        found = self.ground.made.task.symmetry
        if found is None:
            raise SpecError("this task's training does not show its network, so that nothing in it can be matched")
        if not (symmetry := found()).groups:
            raise SpecError(
                "protocol.encode = 'hidden-units': nothing that clients send of this network can be permuted, so that "
                "nothing is hidden; train more of it, or use --kind source"
            )
        return symmetry

    def played(self, count: int, state: State | None = None, **given: Any) -> list[Round]:
        """So many rounds more, with the server's views; `given` may name another `fit` or a `threat`."""
        task = self.ground.made.task
        task = replace(task, fit=given["fit"]) if "fit" in given else task
        plan = self.ground.setting.plan.model_copy(update={"rounds": count + (state.round if state else 0)})
        done = list(
            rounds(
                self.pipeline, task, plan, self.ground.coins, self.drive, state=state,
                threat=given.get("threat", Threat()), keep={"server": "keep"},
            )
        )  # fmt: skip
        self.remembered.extend(one.state.memories for one in done)
        return done

    def sights(self, done: Sequence[Round]) -> list[Sight]:
        """What the server saw in rounds."""
        return [sight(one.views["server"], self.pipeline) for one in done]

    def steps(self, coins: Coins) -> SingleSteps:
        """Clients that take one step each. Raises: SpecError where their records are not shown, or cannot be found."""
        fit, made = self.ground.made.task.fit, self.ground.made
        if not isinstance(fit, Learner) or made.dataset.worded:
            raise SpecError("records that are no quantities, or that training does not show, are not inverted")
        if not is_felt(made.module, made.dataset.test.batch(torch.arange(1))[0]):
            raise Unsuited("the network's outputs have no gradient in its inputs, by which records are searched for")
        return SingleSteps(made.module, made.task.layout, fit.shards, coins)

    def truth(self, frame: bytes) -> Rule:
        """The rule behind a frame of the rounds played so far: for the scorer, and for what a client tells."""
        if not frame:
            return unmoved(self.symmetry)
        told = Frame.unpack(frame)
        standings = (Standing.of(one) for memories in self.remembered for one in memories.values())
        holder = next((standing for standing in standings if standing.behind(told)), Standing())
        return self.symmetry.rule(seed_of(holder, run_id(self.ground.coins), told), told.round)
