"""RNS's Appendix F.8: DP-SGD under RNS, the range of weights (Table 11) and accuracy (Table 12).

It trains only, and mounts no attack. The paper prints neither delta nor the clipping norm it used, nor whether its
epsilon holds for a round or for the run; ours holds for all steps of a client, and every client gets the noise that it
needs. `croupier reproduce rns/table11` and `rns/table12` run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from croupier.core.coins import Coins
from croupier.core.intervals import over_runs
from croupier.core.update import Update
from croupier.engine.federation import Federation
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.engine.task import Fits, Task
from croupier.errors import CroupierError
from croupier.kernels.residues import Rounding
from croupier.learn.assemble import Assembled, Hardware, assemble
from croupier.learn.budget import DELTA, noise_for
from croupier.learn.data import Data
from croupier.learn.datasets import Digits, Mnist
from croupier.learn.dp_fit import DpSgd
from croupier.learn.fit import Sgd
from croupier.learn.models import Mlp, MnistCnn, Network
from croupier.learn.split import Dirichlet
from croupier.learn.train import Learner
from croupier.pipeline import Pipeline
from croupier.systems import plain
from croupier_lab.papers.rns.accuracy import through
from croupier_lab.papers.rns.source_inference_settings import ALIKE, FEWER, PAPER
from croupier_lab.papers.shared.figure import Figure, Means, Scale

Watch = Callable[[str], None]
EPSILONS = (1.0, 2.0, 5.0)
DIGITS = (1, 2, 3, 4, 5)
# Table 11 as printed; and Table 12 by epsilon (None: no DP), for digits 0 (vanilla) to 5.
RANGES: Mapping[float, tuple[float, float]] = {1.0: (-0.438, 0.592), 2.0: (-0.412, 0.573), 5.0: (-0.400, 0.543)}
ACCURACIES: Mapping[float | None, tuple[float, ...]] = {
    None: (0.982, 0.12, 0.9613, 0.98, 0.9807, 0.9812),
    1.0: (0.87, 0.11, 0.70, 0.8351, 0.8595, 0.8644),
    2.0: (0.8846, 0.1148, 0.7167, 0.8472, 0.8732, 0.8807),
    5.0: (0.9021, 0.1165, 0.7594, 0.8756, 0.8983, 0.9012),
}
CALIBRATED = (
    f"each client's noise is the least that keeps all its steps of the run within epsilon at delta = {DELTA:g}, for "
    "one record left out of all sums, the number of records being public; the paper prints neither delta nor what its "
    "epsilon covers"
)
CLIPPED = "gradients are clipped to 1, the norm of the paper's example; learning rate and momentum as without DP"


@dataclass(frozen=True)
class DpSgdSize:
    """How much of everything a scale takes, and what is put in place of what."""

    data: Data
    model: Network
    clients: int
    rounds: int
    epochs: int
    least: int
    lr: float = 0.01
    substitutions: tuple[str, ...] = ()


SIZES: Mapping[Scale, DpSgdSize] = {
    "smoke": DpSgdSize(
        Digits(), Mlp(hidden=(16,)), 3, 1, 3, 100, 0.1,
        ("digits of 8 x 8 pixels and an MLP of 16; 3 clients, 1 round of 3 epochs at the rate 0.1",),
    ),
    "small": DpSgdSize(
        Mnist(train=6000, test=2000), Mlp(hidden=(64,)), 10, 3, 5, 100, 0.01,
        ("an MLP of 64 on 6,000 records, 3 rounds of 5 epochs",),
    ),
    "paper": DpSgdSize(Mnist(), MnistCnn(standardise=True), 10, 10, 10, 20),
}  # fmt: skip


def table11(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch = lambda _: None) -> list[dict[str, Any]]:
    """The range of all weights that any client trained in any round, before they are clamped to be sent."""
    found = []
    for epsilon in EPSILONS:
        seen = [_Seen() for _ in seeds]
        clamped = 0
        for seed, one in zip(seeds, seen, strict=True):
            watch(f"Table 11: seed {seed}, epsilon = {epsilon:g}")
            stage = _Stage.of(scale, means, seed)
            trained = list(stage.play(through(4, stage.size.clients), stage.private(epsilon), one))
            clamped += sum(_clamped(done) for done in trained)
        low, high = min(one.low for one in seen), max(one.high for one in seen)
        printed = RANGES[epsilon]
        found.append(
            {
                "epsilon": epsilon,
                "delta": DELTA,
                "low": low,
                "high": high,
                "outside": sum(one.outside for one in seen),
                "clamped": clamped,
                "values": sum(one.values for one in seen),
                "paper_low": printed[0],
                "paper_high": printed[1],
                "paper_outside": 0,
                "_substitutions": _substitutions(scale),
            }
        )
    return found


def table12(
    scale: Scale,
    means: Means,
    seeds: Sequence[int],
    watch: Watch = lambda _: None,
    rounding: Rounding = "even",
) -> list[dict[str, Any]]:
    """Accuracy of vanilla learning and of RNS with 1 to 5 digits, without DP and for each epsilon.

    `rounding` is ours; "floor" is what the paper's algorithm prints, and shifts the model at every round. All settings
    of a seed share data, first model and draws.
    """
    settings: list[float | None] = [None, *EPSILONS]
    accuracy: dict[tuple[int, float | None], list[float]] = {}
    clamped: dict[tuple[int, float | None], int] = {}
    for seed in seeds:
        stage = _Stage.of(scale, means, seed)
        for epsilon in settings:
            fit = stage.made.task.fit if epsilon is None else stage.private(epsilon)
            for digits in (0, *DIGITS):
                watch(f"Table 12: seed {seed}, {_named(digits)}, {_epsilon_in_words(epsilon)}")
                pipeline = through(digits, stage.size.clients, rounding) if digits else plain("uniform")
                trained = list(stage.play(pipeline, fit))
                key = digits, epsilon
                accuracy.setdefault(key, []).append(trained[-1].metrics["accuracy"])
                clamped[key] = clamped.get(key, 0) + sum(_clamped(done) for done in trained)
    rows = []
    for digits in (0, *DIGITS):
        for epsilon in settings:
            rate = over_runs(accuracy[digits, epsilon])
            usual = accuracy[0, epsilon]
            gap = over_runs([one - base for one, base in zip(accuracy[digits, epsilon], usual, strict=True)])
            rows.append(
                {
                    "setting": _named(digits),
                    "epsilon": epsilon,
                    "accuracy": rate.rate,
                    "low": rate.low,
                    "high": rate.high,
                    # The same seed with no rounding: splits differ more from seed to seed than roundings do.
                    "against_vanilla": gap.rate,
                    "against_low": gap.low,
                    "against_high": gap.high,
                    "clamped": clamped[digits, epsilon],
                    "paper": ACCURACIES[epsilon][digits],
                    "rounding": rounding if digits else None,
                    "_substitutions": _substitutions(scale),
                }
            )
    return rows


def _named(digits: int) -> str:
    return f"RNS, r = {digits}" if digits else "vanilla"


def _epsilon_in_words(epsilon: float | None) -> str:
    return "no DP" if epsilon is None else f"epsilon = {epsilon:g}"


def _substitutions(scale: Scale) -> list[str]:
    return [CALIBRATED, CLIPPED, ALIKE, *SIZES[scale].substitutions]


def _clamped(done: Round) -> int:
    """How many values clients clamped, which only an experiment knows: no party's view but the client's own has it."""
    return sum(noted.get("clamped", 0) for noted in done.noted.values())


@dataclass
class _Seen:
    """The range of all weights that clients trained, which only an experiment sees."""

    low: float = float("inf")
    high: float = float("-inf")
    outside: int = 0
    values: int = 0

    def note(self, update: Update) -> None:
        vector = update.vector
        self.low, self.high = min(self.low, float(vector.min())), max(self.high, float(vector.max()))
        # The paper's range is open: 1 itself lies outside.
        self.outside += int((vector.abs() >= 1).sum())
        self.values += len(vector)


@dataclass(frozen=True)
class _Each:
    """Every client trained by its own learner: how much noise it needs depends on its records."""

    learners: Mapping[str, Learner]
    workers: int

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> list[Update | CroupierError]:
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda job: self.learners[job[1]]([job])[0], jobs))


@dataclass(frozen=True)
class _Watched:
    """A fit whose updates are noted on the way."""

    fit: Fits
    seen: _Seen = field(default_factory=_Seen)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        done = self.fit(jobs)
        for update in done:
            if isinstance(update, Update):
                self.seen.note(update)
        return done


@dataclass(frozen=True)
class _Stage:
    """One seed's data, model and clients."""

    size: DpSgdSize
    means: Means
    coins: Coins
    made: Assembled

    @classmethod
    def of(cls, scale: Scale, means: Means, seed: int) -> _Stage:
        size, coins = SIZES[scale], Coins.from_seed(seed)
        split = Dirichlet(clients=size.clients, alpha=0.1, least=size.least)
        made = assemble(
            size.data,
            split,
            size.model,
            Sgd(lr=size.lr, momentum=0.9, batch=64, epochs=size.epochs),
            coins,
            folder=means.folder,
            machine=Hardware(device=means.device, workers=means.workers),
        )
        return cls(size, means, coins, made)

    def private(self, epsilon: float) -> Fits:
        """The same training under DP-SGD, each client's noise as its records and steps ask for."""
        plainly = self.made.task.fit
        if not isinstance(plainly, Learner) or not isinstance(plainly.fit, Sgd):
            raise AssertionError("a task is assembled with a learner")
        learners = {}
        for shard, records in plainly.shards.items():
            fit = DpSgd(**dict(plainly.fit), clip=1.0)
            noise = noise_for(epsilon, fit.rate(len(records)), self.size.rounds * fit.steps(len(records)))
            learners[shard] = Learner(
                plainly.module, plainly.goal, fit.model_copy(update={"noise": noise}), {shard: records}, plainly.device
            )
        return _Each(learners, self.means.workers)

    def play(self, pipeline: Pipeline, fit: Fits, seen: _Seen | None = None) -> Iterator[Round]:
        """Play all rounds, and drop the views."""
        torch.set_num_threads(1)
        task: Task = replace(self.made.task, fit=fit if seen is None else _Watched(fit, seen))
        for done in rounds(pipeline, task, Federation(rounds=self.size.rounds), self.coins, Local()):
            yield replace(done, views={})


READ = "Epsilon is of one record, for all local steps of its client, at the delta given; accuracies are shares of 1."
FIGURES = (
    Figure(
        "rns/table11", f"{PAPER}, Table 11", "range of weights under DP-SGD", READ, table11, FEWER,
        (CALIBRATED, CLIPPED, ALIKE), bare=True,
    ),
    Figure(
        "rns/table12", f"{PAPER}, Table 12", "accuracy by digits under DP-SGD", READ, table12, FEWER,
        (CALIBRATED, CLIPPED, ALIKE), bare=True,
    ),
)  # fmt: skip
