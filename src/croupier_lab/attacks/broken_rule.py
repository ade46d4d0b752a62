"""Measure what one client does to the others' model when it breaks the order of hidden units that all agreed on.

Under Tazza clients upload their models with hidden units in one secret order, the rule. `broken_rounds` plays one more
round of a description's own run in which one client uploads in another order, and tells how accurate the model is that
the others get, and whether the aggregation left the client out or put it into a cluster of its own.
`bench.leakage.permuted_pictures` (`croupier bench permutation`) calls it and prints the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal

import numpy as np

from croupier.aggregate.mean import Mean
from croupier.audit.attacks.permutation import unmoved
from croupier.audit.permuted_run import PermutedRun
from croupier.core.coins import Coins
from croupier.core.epoch import Frame, frame_tensor
from croupier.core.flow import Change, Letter
from croupier.core.update import Model
from croupier.core.view import View
from croupier.encode.symmetry import Rule, Symmetry
from croupier.engine.state import Round, State, Threat
from croupier.learn.remembered import Remembered

Lie = Literal["few units", "hidden units", "everything", "frame"]
# The share of its hidden units that a client moves in the lie "few units".
SHARE = 0.25
ALL = "mean of all"
LIES: Mapping[Lie, str] = {
    "few units": "a quarter of its hidden units lie in another order: it answers alike",
    "hidden units": "its hidden units lie in another order: it answers alike",
    "everything": "its inputs and hidden units lie in another order",
    "frame": "it names another frame than the others",
}


def broken_rounds(run: PermutedRun, state: State, coins: Coins) -> Iterator[dict[str, Any]]:
    """One more round for every lie, with one client that breaks the rule.

    Each is played with the description's own aggregation and, where that is not a mean, with the mean of all as well.
    """
    for title, here, begin in _rules(run, state):
        # The lie changes what is sent, not how anybody trains: so every client is trained once and remembered.
        fit = Remembered(run.ground.made.task.fit)
        (honest,) = here.played(1, begin, fit=fit)
        liar = honest.cohort[int(coins.child("who").sampler().integers(len(honest.cohort)))]
        before = received(here, honest, liar)
        for lie in LIES:
            threat = Threat(corrupted={liar: lying(lie, run.symmetry, coins.child(lie))})
            (done,) = here.played(1, begin, fit=fit, threat=threat)
            yield {
                "lie": lie, "rule": title, "honest": before, "accuracy": received(here, done, liar),
                "left_out": liar not in done.present, "alone": _alone(done, liar),
                "honest_alone": _alone(honest, liar),
            }  # fmt: skip


def _rules(run: PermutedRun, state: State) -> list[tuple[str, PermutedRun, State]]:
    """The description's own aggregation, and the mean where that is another, each with the state it starts from."""
    own = run.pipeline.aggregate
    if own.linear:
        return [(ALL, run, state)]
    # The mean continues from one model for all: that of the largest cluster.
    largest = {**state.model.plain(), "recipients": None}
    lone = State(state.round, {**state.memories, "server": {"models": (largest,)}}, state.participations)
    mean = replace(run, pipeline=run.pipeline.model_copy(update={"aggregate": Mean()}))
    return [(own.use, run, state), (ALL, mean, lone)]


def lying(lie: Lie, symmetry: Symmetry, coins: Coins) -> Change:
    """What a client does to its upload: it moves units (or inputs too) once more, or names another frame."""
    moves = symmetry.under(another(lie, symmetry, coins.child("another order")))

    def change(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(bent(letter) if letter.kind == "up" else letter for letter in letters)

    def bent(letter: Letter) -> Letter:
        assert not isinstance(letter.body, bytes)
        if lie == "frame":
            told = Frame.unpack(bytes(letter.body["frame"].tolist()))
            other = Frame(told.number, told.round + 1, told.digest)
            return replace(letter, body={**letter.body, "frame": frame_tensor(other.pack())})
        return replace(letter, body={**letter.body, "vector": moves.apply(letter.body["vector"])})

    return change


def another(lie: Lie, symmetry: Symmetry, coins: Coins) -> Rule:
    """The order that a lie moves an upload into."""
    inputs = {factor.group for axis in symmetry.inputs for block in axis.blocks for factor in block}
    drawn, still = dict(symmetry.draw(coins, 0).of), unmoved(symmetry).of
    for group, order in still.items():
        if lie != "everything" and group in inputs:
            drawn[group] = order
        elif lie == "few units":
            some = coins.child("some", group).sampler().permutation(len(order))[: max(2, round(SHARE * len(order)))]
            drawn[group] = order.copy()
            drawn[group][np.sort(some)] = some
    return Rule(drawn)


def received(run: PermutedRun, done: Round, liar: str) -> float:
    """The mean accuracy of the models that the others of a round are handed next."""
    models = [Model(**plain) for plain in done.state.memories["server"]["models"]]
    others = [name for name in done.cohort if name != liar]
    at = {name: number for number, model in enumerate(models) for name in model.recipients or others}
    known = {number: _accuracy(run, models[number]) for number in {at[name] for name in others}}
    return fmean(known[at[name]] for name in others)


def _alone(done: Round, name: str) -> bool | None:
    """Whether a client is in a cluster of its own; None where the aggregation makes no clusters."""
    groups = done.state.memories["server"]["rule"].get("groups", ())
    return any(tuple(group) == (name,) for group in groups) if groups else None


def _accuracy(run: PermutedRun, model: Model) -> float:
    plain = run.symmetry.invert(model.vector, run.truth(model.frame))
    return dict(run.ground.made.task.evaluate(Model(plain)))["accuracy"]
