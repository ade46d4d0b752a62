"""A description's own run for the question of permutations: rounds, what its server saw, and its rules.

The rules are for the scorer alone (`audit.questions.permutation`), and for what a client tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from croupier.agree.coordinates import seed_of
from croupier.agree.standing import Standing
from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.attacks.permutation import ServerRound, Upload, unmoved
from croupier.audit.seen import read_server
from croupier.core.attempt import Drive
from croupier.core.epoch import Frame
from croupier.core.flow import Memory
from croupier.core.update import Model
from croupier.core.view import View, facts, replay
from croupier.encode.symmetry import Rule, Symmetry
from croupier.engine.loop import Continuation, rounds
from croupier.engine.state import Round, State, Threat, run_id
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline


@dataclass(frozen=True)
class PermutedRun:
    """One seed of a description under one pipeline."""

    ground: Ground
    pipeline: Pipeline
    drive: Drive
    # What clients remembered after each round that was played.
    remembered: list[Mapping[str, Memory]] = field(default_factory=list, repr=False)

    @property
    def first(self) -> str:
        """Who draws the first model."""
        return "clients" if self.pipeline.encode.clients_start else "open"

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
                self.pipeline, task, plan, self.ground.coins, self.drive, start=Continuation(state),
                threat=given.get("threat", Threat()), keep={"server": "keep"},
            )
        )  # fmt: skip
        self.remembered.extend(one.state.memories for one in done)
        return done

    def seen(self, done: Sequence[Round]) -> list[ServerRound]:
        """What the server saw in rounds."""
        return [server_round(one.views["server"], self.pipeline) for one in done]

    def truth(self, frame: bytes) -> Rule:
        """The rule behind a frame of the rounds played so far: for the scorer, and for what a client tells."""
        if not frame:
            return unmoved(self.symmetry)
        told = Frame.unpack(frame)
        standings = (Standing.of(one) for memories in self.remembered for one in memories.values())
        holder = next((standing for standing in standings if standing.behind(told)), Standing())
        return self.symmetry.rule(seed_of(holder, run_id(self.ground.coins), told), told.round)


def server_round(view: View, pipeline: Pipeline) -> ServerRound:
    """What a kept view of the server amounts to. Raises: ProtocolError where it holds no rows with names."""
    sent, _ = replay(pipeline.server, view)
    handed = {
        letter.target: Model(letter.body["model"], _frame(letter.body.get("frame")))
        for letter in sent
        if letter.kind == "model" and not isinstance(letter.body, bytes)
    }
    found = read_server(facts(view), pipeline.plain(), view.given.layout)
    if found.rows is None or found.ids is None:
        raise ProtocolError("this server sees no single updates: there is nothing to bring into order")
    uploads = []
    for name, row in zip(found.ids, found.rows, strict=True):
        model = handed[name]
        # In one order with the model: what comes back is what changed in it.
        vector = model.vector + row if pipeline.encode.form == "delta" else row
        uploads.append(Upload(name, model.vector, model.frame, vector))
    return ServerRound(view.given.round, found.frame, tuple(uploads))


def _frame(told: Tensor | None) -> bytes:
    data = b"" if told is None else bytes(told.tolist())
    return data if any(data) else b""
