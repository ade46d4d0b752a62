"""A short trial of a description, for `croupier plan`: what its messages weigh, and how long its work takes here.

The length of a message follows from its schema and from who takes part, not from the numbers in it. So a round's
clients are trained, or a few of them where all would take long, and two rounds are played in which their changes stand
in for everybody's: these send as many bytes as a run's. The seconds of training are scaled up from what was trained,
memory is the most that this process held; both are estimates. `outlook.plan` calls `assembled` and `tried`, and
multiplies by the rounds.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from croupier.core.attempt import Traffic
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.engine.federation import check, check_names
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.task import Fits
from croupier.errors import CroupierError
from croupier.learn.assemble import Assembled, Hardware, assemble
from croupier.learn.train import Learner, fewest
from croupier.spec import Spec

# Seconds. A cohort that trains in `PATIENCE` is trained whole; of a slower one, a part that takes about `SHORT`.
PATIENCE, SHORT = 15.0, 3.0
# The first look at how fast training is: one client, so many records at most.
LOOK = 128
# Stand-ins differ from each other by this share of an update's spread: rules that compare rows must not meet copies.
APART = 0.05


@dataclass(frozen=True)
class TrialRound:
    """One round with stand-ins: its messages, by party, and the seconds of everything but training and testing."""

    traffic: Traffic
    cohort: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Trained:
    """What training a round's clients takes: `seconds`, estimated from so many `clients` that were trained.

    `whole`: they were trained on all their records. `changes` are what training changed, as stand-ins for everybody's.
    """

    seconds: float
    clients: int
    whole: bool
    changes: tuple[Tensor, ...]


@dataclass(frozen=True)
class TrialRun:
    """What was seen: the first round, a later one (None where there is only one), training, testing, and memory."""

    first: TrialRound
    later: TrialRound | None
    trained: Trained
    testing: float
    peak_bytes: int


def assembled(spec: Spec, coins: Coins, folder: Path | None) -> Assembled:
    """The task of a description, checked against its protocol as a run would. Raises: DataError, SpecError."""
    task, machine = spec.task, spec.run
    torch.set_num_threads(1)
    made = assemble(
        task.data,
        task.split,
        task.model,
        task.fit,
        coins,
        options=task.options,
        folder=folder,
        machine=Hardware(device=machine.device, workers=machine.workers),
    )
    check(spec.protocol, len(made.task.enrolled), spec.federation, made.task.offers)
    check_names(spec.protocol, made.task.enrolled, spec.federation)
    invited = spec.federation.cohort or len(made.task.enrolled)
    spec.protocol.place.check_size(spec.protocol, made.task.layout, invited)
    return made


def tried(spec: Spec, made: Assembled, coins: Coins) -> TrialRun:
    """Train a little, play two rounds, test twice. Raises: CroupierError where the run's first rounds would fail."""
    cohort = spec.federation.cohort or len(made.task.enrolled)
    trained = _train(made, cohort, coins.child("trial"))
    # The first test also loads what it needs, which a run does once.
    testing = min(_timed(lambda: made.task.evaluate(made.task.first))[0] for _ in range(2))
    first, *rest = _play(spec, made, trained.changes, coins)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return TrialRun(first, rest[0] if rest else None, trained, testing, peak)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    done = work()
    return time.perf_counter() - begun, done


def _train(made: Assembled, cohort: int, coins: Coins) -> Trained:
    learner, shards = made.task.fit, [made.task.shards[name] for name in made.task.enrolled]
    if not isinstance(learner, Learner):
        return _measured(learner, made, shards[:cohort], coins, 1.0, True)
    learner = replace(learner, tick=None)
    sizes = [len(learner.shards[shard]) for shard in shards]
    # Other clients are invited from round to round: `usual` is how many records a round's clients have on average.
    usual = sum(sizes) * cohort / len(sizes)
    look = _cut(learner, shards[:1], LOOK)
    took = _measured(look, made, shards[:1], coins, 1.0, False).seconds
    seen = min(LOOK, sizes[0])
    if took * usual / seen / min(learner.workers, cohort) <= PATIENCE:
        return _measured(learner, made, shards[:cohort], coins, usual / sum(sizes[:cohort]), True)
    few = shards[: min(cohort, learner.workers)]
    most = max(1, int(seen * SHORT / took))
    part = _cut(learner, few, most)
    scale = usual / sum(min(most, size) for size in sizes[: len(few)])
    return _measured(part, made, few, coins, scale, False)


def _cut(learner: Learner, shards: Sequence[str], most: int) -> Learner:
    """The same training on the first so many records of a few clients."""
    most = max(most, fewest(learner.module))
    held = {shard: learner.shards[shard] for shard in shards}
    return replace(learner, shards={s: part.take(torch.arange(min(most, len(part)))) for s, part in held.items()})


def _measured(
    fit: Fits, made: Assembled, shards: Sequence[str], coins: Coins, scale: float, whole: bool
) -> Trained:  # fmt: skip
    start = made.task.first.vector
    seconds, done = _timed(lambda: fit([(start, shard, coins.child("fit", shard)) for shard in shards]))
    if wrong := next((one for one in done if isinstance(one, CroupierError)), None):
        raise wrong
    return Trained(seconds * scale, len(shards), whole, tuple(update.vector - start for update in done))


def _play(spec: Spec, made: Assembled, changes: Sequence[Tensor], coins: Coins) -> list[TrialRound]:
    """The first two rounds, or the only one, with stand-ins for trained updates and nothing tested."""
    task = replace(made.task, fit=_stand_ins(made, changes, coins.child("stand-ins")), evaluate=lambda model: {})
    played: list[TrialRound] = []
    going = rounds(spec.protocol, task, spec.federation, coins, Local())
    for _ in range(min(2, spec.federation.rounds)):
        seconds, done = _timed(lambda: next(going))
        played.append(TrialRound(done.traffic, done.cohort, seconds))
    return played


def _stand_ins(made: Assembled, changes: Sequence[Tensor], coins: Coins) -> Fits:
    """Training that takes no time: what other clients changed, and a little of its own."""
    learner, layout = made.task.fit, made.task.layout
    shards = learner.shards if isinstance(learner, Learner) else {}

    def fit(jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        done: list[Update | CroupierError] = []
        for number, (start, shard, _) in enumerate(jobs):
            change = changes[number % len(changes)]
            own = torch.randn(change.shape, generator=coins.child("own", shard).fast())
            records = torch.tensor([float(len(shards.get(shard, ())) or 1)], dtype=torch.float64)
            vector = start + change + APART * float(change.std(correction=0)) * own
            done.append(Update(vector, layout, {"weight": records}))
        return done

    return fit
