"""A description's own run for an audit of hidden coordinates, and its rules, which only a scorer may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from croupier.audit.integrity import Ground
from croupier.audit.onlooker import Sight, sight, unmoved
from croupier.audit.single import SingleSteps, single_steps, unreadable
from croupier.core.coins import Coins
from croupier.core.epoch import Frame
from croupier.core.flow import Memory
from croupier.core.sitting import Drive, Sat, Sitting, Stamp
from croupier.encode.hidden import HiddenUnits
from croupier.encode.symmetry import Rule, Symmetry
from croupier.errors import SpecError, Unsuited
from croupier.federate import Round, State, Threat, rounds, run_id
from croupier.pipeline import Pipeline
from croupier.place.frames import seed_of
from croupier.place.standing import Standing


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
        found = self.ground.made.task.symmetry
        if found is None:
            raise SpecError("this task's training does not show its network, so that nothing in it can be matched")
        if not (symmetry := found()).groups:
            raise SpecError(
                "protocol.encode = 'hidden-units': nothing that clients send of this network can be permuted, so that "
                "nothing is hidden; train more of it"
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
        made = self.ground.made
        if why := unreadable(made):
            raise Unsuited(why)
        return single_steps(made, coins)

    def truth(self, frame: bytes) -> Rule:
        """The rule behind a frame of the rounds played so far: for the scorer, and for what a client tells."""
        if not frame:
            return unmoved(self.symmetry)
        told = Frame.unpack(frame)
        standings = (Standing.of(one) for memories in self.remembered for one in memories.values())
        holder = next((standing for standing in standings if standing.behind(told)), Standing())
        return self.symmetry.rule(seed_of(holder, run_id(self.ground.coins), told), told.round)
