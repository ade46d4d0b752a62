"""Poisoning mounted on the real round loop: some clients of a task become malicious."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from croupier.audit.poison import Poison, Scene
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.errors import CroupierError, SpecError
from croupier.federate import Fits, Task, Threat
from croupier.learn.data import Rows
from croupier.learn.train import Learner
from croupier.pipeline import Pipeline
from croupier.place.pair import Pair
from croupier.privacy.local import NoNoise


@dataclass(frozen=True)
class Mechanism:
    """What everybody knows of the clients' local noise; by default there is none."""

    clip: float = math.inf
    sigma: float = 0.0


NOTHING = Mechanism()


def infiltrated(
    pipeline: Pipeline,
    task: Task,
    members: Iterable[str],
    attack: Poison,
    classes: int,
    coins: Coins,
    mechanism: Mechanism = NOTHING,
    recall: Callable[[Fits], Fits] = lambda fit: fit,
) -> tuple[Task, Threat]:
    """The task with poisoned clients, and the threat that lets them skip the local noise.

    `recall` wraps the training on changed records, before updates are rewritten. No reference is handed to the attack:
    a client of the loop sees none before it sends. Raises: SpecError when a member is not enrolled, or when records
    cannot be changed.
    """
    chosen = frozenset(members)
    if unknown := sorted(chosen - set(task.shards)):
        raise SpecError(f"{unknown[0]!r} cannot be malicious: it is not enrolled; choose among {list(task.enrolled)}")
    shards = frozenset(task.shards[name] for name in chosen)
    trained = recall(_changed(task.fit, shards, attack, classes, coins))
    fit = _Infiltrated(trained, shards, attack, coins, mechanism)
    return replace(task, fit=fit), Threat(parties=dict.fromkeys(chosen, _careless(pipeline).client))


def _careless(pipeline: Pipeline) -> Pipeline:
    """The protocol of a client that adds no noise, and does not mind what a malicious server could make of that."""
    place = pipeline.place
    if isinstance(place, Pair):
        place = place.model_copy(update={"entropy": 0.0})
    return pipeline.model_copy(update={"privacy": NoNoise(), "place": place})


def _changed(fit: Fits, shards: frozenset[str], attack: Poison, classes: int, coins: Coins) -> Fits:
    if not attack.changes:
        return fit
    if not isinstance(fit, Learner):
        raise SpecError(f"poison = {attack.use!r} changes records, and this task's training does not show any")
    held = dict(fit.shards)
    for shard in shards:
        records = held[shard]
        if not isinstance(records, Rows):
            raise SpecError(f"poison = {attack.use!r} changes labelled records, not windows of a series")
        # The digest stays: it is what the client says that it holds.
        held[shard] = attack.change(records, classes, coins.child("change", shard).fast())
    return replace(fit, shards=held)


@dataclass(frozen=True)
class _Infiltrated:
    """Trains everybody, then lets the attack rewrite its members' updates; all jobs of a round come together."""

    fit: Fits
    shards: frozenset[str]
    attack: Poison
    coins: Coins
    mechanism: Mechanism

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        done = list(self.fit(jobs))
        trained = {at: one for at, one in enumerate(done) if isinstance(one, Update)}
        bad = [at for at in trained if jobs[at][1] in self.shards]
        if not bad:
            return done
        rows = {at: one.vector - jobs[at][0] for at, one in trained.items()}
        # One node for the round: the first member's coins are of this round alone.
        drawn = self.coins.child("craft", jobs[bad[0]][2].export()).fast()
        for at, row in zip(bad, self.attack(self._scene(rows, bad, len(jobs)), drawn), strict=True):
            done[at] = _sent(trained[at], jobs[at][0] + row)
        return done

    def _scene(self, rows: Mapping[int, Tensor], bad: Sequence[int], clients: int) -> Scene:
        others = [row for at, row in rows.items() if at not in bad]
        benign = torch.stack(others) if others else None
        return Scene(
            torch.stack([rows[at] for at in bad]), benign, clients, self.mechanism.clip, self.mechanism.sigma
        )  # fmt: skip


def _sent(update: Update, vector: Tensor) -> Update | CroupierError:
    try:
        return replace(update, vector=vector)
    except CroupierError as error:
        return error
