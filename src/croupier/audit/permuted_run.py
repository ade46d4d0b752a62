"""A run for the question `permutation`: its rounds, what the server saw in them, and the true orders.

An encoding such as Tazza's hides from the server in which order a client's hidden units lie. To say how much of that
order an attack recovers, one needs real rounds, exactly what the server saw of them, and for the scorer alone the order
itself (`truth`). `audit.questions.permutation` uses it, and in the laboratory `attacks/permuted_records`,
`attacks/broken_rule` and `bench/leakage/permuted_pictures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from croupier.agree.coordinates import seed_of
from croupier.agree.standing import Standing
from croupier.audit.attacked_training import SeededTask as Ground
from croupier.audit.attacks.permutation import ServerRound, Upload, unmoved
from croupier.audit.seen import read_server
from croupier.core.attempt import Drive
from croupier.core.epoch import Frame, frame_of
from croupier.core.flow import Memory
from croupier.core.view import Kept, View, facts, replay
from croupier.encode.symmetry import Rule, Symmetry
from croupier.engine.loop import Continuation, rounds
from croupier.engine.state import HONEST, Round, State, Threat, run_id
from croupier.engine.task import Fits
from croupier.errors import ProtocolError, SpecError
from croupier.pipeline import Pipeline


@dataclass(frozen=True)
class PermutedRun:
    """One seed of a description (`ground`) under one pipeline, played by `drive`."""

    ground: Ground
    pipeline: Pipeline
    drive: Drive
    # What clients remembered after each round that was played.
    remembered: list[Mapping[str, Memory]] = field(default_factory=list, repr=False)

    @property
    def first(self) -> str:
        """Who draws the first model: "clients", in hidden coordinates, or "open", in plain ones."""
        return "clients" if self.pipeline.encode.clients_start else "open"

    @cached_property
    def symmetry(self) -> Symmetry:
        """How hidden units of the public network can be permuted. Raises: SpecError where the task does not show it."""
        found = self.ground.made.task.symmetry
        if found is None:
            raise SpecError("this task's training does not show its network, so that nothing in it can be matched")
        if not (symmetry := found()).groups:
            raise SpecError(
                "protocol.encode = 'hidden-units': nothing that clients send of this network can be permuted, so that "
                "nothing is hidden; train more of it"
            )
        return symmetry

    def played(
        self, count: int, state: State | None = None, fit: Fits | None = None, threat: Threat = HONEST
    ) -> list[Round]:
        """Play so many rounds more, with the server's views kept; clients train by `fit` where one is given."""
        task = replace(self.ground.made.task, fit=fit or self.ground.made.task.fit)
        plan = self.ground.setting.plan.model_copy(update={"rounds": count + (state.round if state else 0)})
        start, coins = Continuation(state), self.ground.coins
        keep: Mapping[str, Kept] = {"server": "keep"}
        done = list(rounds(self.pipeline, task, plan, coins, self.drive, start=start, threat=threat, keep=keep))
        self.remembered.extend(one.state.memories for one in done)
        return done

    def seen(self, done: Sequence[Round]) -> list[ServerRound]:
        """What the server saw in rounds."""
        return [server_round(one.views["server"], self.pipeline) for one in done]

    def truth(self, frame: bytes) -> Rule:
        """The order of hidden units behind a frame of the rounds played so far.

        For the scorer, and for experiments in which a client tells the server.
        """
        if not frame:
            return unmoved(self.symmetry)
        told = Frame.unpack(frame)
        standings = (Standing.of(one) for memories in self.remembered for one in memories.values())
        holder = next((standing for standing in standings if standing.behind(told)), Standing())
        return self.symmetry.rule(seed_of(holder, run_id(self.ground.coins), told), told.round)


def server_round(view: View, pipeline: Pipeline) -> ServerRound:
    """What a kept view of the server shows: everybody's upload.

    Raises: ProtocolError where it holds no rows with names.
    """
    sent, _ = replay(pipeline.server, view)
    handed = {one.target: one.body for one in sent if one.kind == "model" and not isinstance(one.body, bytes)}
    found = read_server(facts(view), pipeline.plain(), view.given.layout)
    if found.rows is None or found.ids is None:
        raise ProtocolError("this server sees no single updates: there is nothing to bring into order")
    uploads = []
    for name, row in zip(found.ids, found.rows, strict=True):
        model = handed[name]["model"]
        frame = frame_of(handed[name]["frame"]) if "frame" in handed[name] else None
        # A difference lies in the order of the model that was handed out, so that the two can be added.
        vector = model + row if pipeline.encode.form == "delta" else row
        uploads.append(Upload(name, model, frame.pack() if frame else b"", vector))
    return ServerRound(view.given.round, found.frame, tuple(uploads))
