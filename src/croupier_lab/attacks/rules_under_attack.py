"""Train aggregation rules against malicious clients on the real round loop, many trainings at once.

An audit's training under attack (`croupier.audit.attacked_training`) has no use for some settings of Tazza's paper:
attackers that behave well at first, clients that train under a defence, and a rule whose server probes models with the
clients' own samples. This adds them. Tazza's figures on integrity (`papers.tazza.integrity`, `combined_defences` and
`cluster_sweep`) run it, and `bench.leakage.cluster_baselines` uses `on_clear_updates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator
from croupier.audit.attacked_training import with_malicious_clients
from croupier.audit.poison import Poison, Scaling
from croupier.audit.setting import Setting
from croupier.core.attempt import Drive
from croupier.core.coins import Coins
from croupier.core.update import Update
from croupier.encode.floats import Floats
from croupier.engine.loop import Continuation, begin, rounds
from croupier.engine.state import Round, Threat
from croupier.engine.task import Fits, Task
from croupier.errors import CroupierError, SpecError
from croupier.learn.data import TensorRecords
from croupier.learn.fit import Fit
from croupier.learn.train import Learner, one_of
from croupier.pipeline import Pipeline
from croupier_lab.attacks.clustered_training import ClusterOutcome, ClusterTask
from croupier_lab.processes import each

Watch = Callable[[str], None]
Probes = Literal["noise", "samples", "trained"]


@dataclass(frozen=True)
class RuleUnderAttack:
    """A rule against an attack, or against none; the malicious follow the protocol for the first `sleeps` rounds.

    `probes` says what inputs a rule that asks models about inputs is shown. With `noise` they are its own. With
    `samples` they are, as in the paper, one record of each client that takes part; updates lie in plain coordinates
    here and so do the samples, because a permutation of both would change no answer. A run of the product has that as
    `probes_from = "samples"`. With `trained` the malicious draw theirs from the changed records that they train on,
    trigger and all, which helps nobody but the server. `fit` is how all clients train where that is not as in the
    setting, for example under a defence; the server trains as the setting says.
    """

    rule: str
    aggregate: Aggregator
    attack: Poison | None = None
    title: str = "no attack"
    sleeps: int = 0
    probes: Probes = "noise"
    fit: Fit | None = None

    def train(self, seeded: ClusterTask, drive: Drive) -> ClusterOutcome:
        """Train from one seed, to the end or until no model is left."""
        task = self.asked(seeded)
        mark = self.attack if isinstance(self.attack, Scaling) else None
        return seeded.measure(self._rounds(seeded, task, drive), begin(task), mark)

    def _rounds(self, seeded: ClusterTask, task: Task, drive: Drive) -> Iterator[Round]:
        pipeline, plan, state = on_clear_updates(self.aggregate), seeded.setting.plan, None
        if self.sleeps:
            early = plan.model_copy(update={"rounds": min(self.sleeps, plan.rounds)})
            for done in rounds(pipeline, task, early, seeded.coins, drive):
                yield done
                state = done.state
        task, threat = self.attacked(seeded, task)
        yield from rounds(pipeline, task, plan, seeded.coins, drive, start=Continuation(state), threat=threat)

    def attacked(self, seeded: ClusterTask, task: Task) -> tuple[Task, Threat]:
        """The task with malicious clients, where there is an attack."""
        if self.attack is None or not seeded.malicious:
            return task, Threat()
        # `Samples` wraps the training, and the attack must change the records of the training inside it.
        inner = task.fit.fit if isinstance(task.fit, Samples) else task.fit
        coins, classes = seeded.coins.child("attack"), seeded.made.dataset.classes
        changed, threat = with_malicious_clients(
            on_clear_updates(self.aggregate), replace(task, fit=inner), seeded.malicious, self.attack, classes, coins
        )
        if not isinstance(task.fit, Samples):
            return changed, threat
        task.fit.fit = changed.fit
        if self.probes == "trained":
            for name in seeded.malicious:
                shard = task.shards[name]
                draw = coins.child("shown", shard).fast()
                task.fit.held[shard] = self.attack.change(task.fit.held[shard], classes, draw)
        return task, threat

    def asked(self, seeded: ClusterTask) -> Task:
        """The task with the probes that its rule is shown, and without measuring accuracy in every round."""
        task = replace(seeded.made.task, evaluate=lambda _: {})
        if self.fit is not None:
            if not isinstance(task.fit, Learner):
                raise SpecError(f"fit = {self.fit.use!r}: this task trains by a function of its own; leave it out")
            task = replace(task, fit=replace(task.fit, fit=self.fit))
        if self.probes == "noise":
            return task
        if task.answers is None or not isinstance(task.fit, Learner):
            raise SpecError("probes = 'samples': the network answers no inputs of numbers")
        held = {shard: rows for shard, rows in task.fit.shards.items() if isinstance(rows, TensorRecords)}
        samples = Samples(task.fit, task.answers, held, seeded.coins.child("samples"))
        return replace(task, fit=samples, answers=samples.answer)


@dataclass
class Samples:
    """Training that also draws the paper's probes: one record of each client of the round.

    The server is shown these where it would have drawn inputs of its own.
    """

    fit: Fits
    ask: Callable[[Tensor, Tensor], Tensor]
    held: dict[str, TensorRecords]
    coins: Coins
    shown: Tensor = field(default_factory=lambda: torch.zeros(0))

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        """Train, and keep a freshly drawn record of each client beside its update."""
        drawn = []
        for _, shard, coins in jobs:
            drawn.append(one_of(self.held[shard], self.coins.child("sample", coins.export())))
        self.shown = torch.stack(drawn)
        return self.fit(jobs)

    def answer(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """What a model makes of the clients' samples, whatever the server drew."""
        return self.ask(vector, self.shown)


def on_clear_updates(rule: Aggregator) -> Pipeline:
    """A pipeline that hands the rule whole updates in the clear, as differences or as weights, whichever it takes."""
    form = "delta" if "delta" in rule.forms else "weights"
    return Pipeline(encode=Floats(form=form, weights="uniform"), aggregate=rule)


def run(
    setting: Setting, arms: Sequence[RuleUnderAttack], seeds: Sequence[int], drive: Drive, watch: Watch,
    processes: int = 1,
) -> list[list[ClusterOutcome]]:  # fmt: skip
    """For each arm its outcomes, seed by seed; `processes` trainings at once, each in a process of its own."""
    jobs = {f"seed {seed}, arm {at}": (setting, arm, seed, drive) for seed in seeds for at, arm in enumerate(arms)}
    done: dict[str, ClusterOutcome] = {}

    def keep(name: str, outcome: ClusterOutcome) -> None:
        _, arm, seed, _ = jobs[name]
        done[name] = outcome
        watch(f"seed {seed}, {arm.title}: {arm.rule}, honest clients receive {outcome.received:.1%}")

    each(_train, jobs, processes, keep)
    found = [done[name] for name in jobs]
    return [found[at :: len(arms)] for at in range(len(arms))]


@lru_cache(maxsize=1)
def _seeded(setting: Setting, seed: int) -> ClusterTask:
    return ClusterTask(setting, seed)


def _train(job: tuple[Setting, RuleUnderAttack, int, Drive]) -> ClusterOutcome:
    setting, arm, seed, drive = job
    return arm.train(_seeded(setting, seed), drive)
