"""The integrity experiment: rules against malicious clients on the real round loop, and what honest clients receive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor

from croupier.aggregate.aggregator import Aggregator
from croupier.audit.abreast import each
from croupier.audit.infiltrate import infiltrated
from croupier.audit.poison import Poison, Scaling, fooled
from croupier.audit.purity import Purity, purity
from croupier.audit.setting import Setting
from croupier.audit.stage import Remembered
from croupier.core.coins import Coins
from croupier.core.revive import Shelf, got, put
from croupier.core.sitting import Drive
from croupier.core.update import Model, Update
from croupier.encode.encoder import Encoder
from croupier.encode.floats import Floats
from croupier.encode.permuting import Permuting
from croupier.epochs import plain_of
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.federate import Fits, Round, State, Task, Threat, begin, rounds, run_id
from croupier.learn.assemble import Assembled, assemble
from croupier.learn.data import Rows
from croupier.learn.ends import check_logits
from croupier.learn.fit import Fit
from croupier.learn.train import Learner, one_of
from croupier.pipeline import Pipeline

Watch = Callable[[str], None]
Probes = Literal["noise", "samples", "trained"]
# Inputs that a model is asked about at a time.
_BATCH = 1024


@dataclass(frozen=True)
class Arm:
    """A rule against an attack, or none; the malicious follow the protocol for the first `sleeps` rounds.

    `probes`: a rule that asks models about inputs is shown its own noise, or, as the paper has it, one sample of each
    client that takes part, in whose place nothing stands for the permutation: it changes no answer. In a run that is
    `probes_from = "samples"`; here updates lie in plain coordinates, and so do the samples. With `trained` the
    malicious draw theirs from what they train on, trigger and all, which serves nobody but their judge. `fit`: how all
    clients train where it is not as in the setting, for example under a defence; the server trains as the setting says.
    `protocol`: a whole protocol, in place of its rule on clear updates. `trigger`: a backdoor's, whose success is
    measured though nobody mounts it.
    """

    rule: str
    aggregate: Aggregator
    attack: Poison | None = None
    title: str = "no attack"
    sleeps: int = 0
    probes: Probes = "noise"
    fit: Fit | None = None
    protocol: Pipeline | None = None
    trigger: Scaling | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The protocol, or the rule on whole updates, in the form it takes."""
        if self.protocol is not None:
            return self.protocol
        form = "delta" if "delta" in self.aggregate.forms else "weights"
        encode: Encoder = Floats(form=form, weights="uniform")
        return Pipeline(encode=encode, aggregate=self.aggregate)


@dataclass(frozen=True)
class Turn:
    """A round of clusters: who was grouped with whom, and everybody's label after it."""

    number: int
    groups: tuple[tuple[str, ...], ...]
    labels: Mapping[str, int]


@dataclass(frozen=True)
class Ended:
    """How a training went.

    `received`: the mean over all honest clients of the accuracy of the model that each would get next; `weighted`: the
    same over those that have a cluster; `clusters`: the mean over clusters with an honest client, each counting once,
    as the paper has it. One model for all is one cluster. `success`: the backdoor's, as `received`. `woke`: the first
    round in which the malicious were that. `heard`: how many of their updates came through, over all rounds.
    """

    malicious: tuple[str, ...]
    enrolled: int
    received: float
    weighted: float
    clusters: float
    models: int
    success: float | None = None
    turns: tuple[Turn, ...] = ()
    lost: str = ""
    woke: int = 0
    heard: int = 0

    def purities(self) -> list[Purity]:
        """By round, of those who took part; not of rounds in which everybody was honest."""
        return [purity(turn.groups, self.malicious) for turn in self.turns if turn.number >= self.woke]

    def labelled(self) -> Purity | None:
        """Of everybody's last label."""
        if not self.turns:
            return None
        held: dict[int, list[str]] = {}
        for name, label in self.turns[-1].labels.items():
            held.setdefault(label, []).append(name)
        return purity(list(held.values()), self.malicious)


@dataclass(frozen=True)
class Ground:
    """A task of a seed with its malicious clients, chosen by coins.

    All rules train on the same records: the server's root is kept back whether a rule looks at it or not. `room`: bytes
    of updates to remember of each way to train, for arms that train alike.
    """

    setting: Setting
    seed: int
    room: int = 0
    known: dict[Poison | None, Remembered] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def coins(self) -> Coins:
        """The seed's."""
        return Coins.from_seed(self.seed)

    @cached_property
    def made(self) -> Assembled:
        """The task. Raises: SpecError unless it classifies."""
        one = self.setting
        made = assemble(
            one.data, one.split, one.model, one.fit, self.coins, root=one.root, folder=one.folder,
            together=one.together, device=one.device, workers=one.workers, opaque=one.opaque,
            loss=one.loss, augment=one.augment,
        )  # fmt: skip
        if made.dataset.goal != "classify" or not isinstance(made.dataset.test, Rows):
            raise SpecError(f"task.data = {one.data.use!r}: this audit measures by classes; use data that have some")
        check_logits(made.module, made.dataset.train, one.model)
        return made

    @cached_property
    def malicious(self) -> tuple[str, ...]:
        """Who attacks."""
        everyone = self.made.task.enrolled
        count = round(self.setting.share * len(everyone))
        chosen = self.coins.child("malicious").sampler().choice(len(everyone), count, replace=False)
        return tuple(everyone[at] for at in sorted(chosen.tolist()))

    def play(self, arm: Arm, drive: Drive) -> Ended:
        """Train under an arm, to the end or until no model is left."""
        task, turns, lost, heard = self._asked(arm), [], "", 0
        state = begin(task)
        try:
            for done in self._rounds(arm, task, drive):
                state = done.state
                turns += _turn(done)
                heard += sum(name in self.malicious for name in done.present)
        except ProtocolError as error:
            # Updates that overflow leave a round without its quorum: what was there stays.
            lost = str(error)
        return replace(self._scored(arm, state), turns=tuple(turns), lost=lost, woke=arm.sleeps, heard=heard)

    def _rounds(self, arm: Arm, task: Task, drive: Drive) -> Iterator[Round]:
        plan, state = self.setting.plan, None
        if arm.sleeps:
            early = plan.model_copy(update={"rounds": min(arm.sleeps, plan.rounds)})
            for done in rounds(arm.pipeline, task, early, self.coins, drive):
                yield done
                state = done.state
        task, threat = self._attacked(arm, task)
        yield from rounds(arm.pipeline, task, plan, self.coins, drive, state=state, threat=threat)

    def _attacked(self, arm: Arm, task: Task) -> tuple[Task, Threat]:
        if arm.attack is None or not self.malicious:
            return replace(task, fit=self._recalled(arm, task.fit)), Threat()
        # The seams of a task with samples are inside: records are changed where they are trained on.
        inner = task.fit.fit if isinstance(task.fit, Samples) else task.fit
        coins, classes = self.coins.child("attack"), self.made.dataset.classes
        changed, threat = infiltrated(
            arm.pipeline, replace(task, fit=inner), self.malicious, arm.attack, classes, coins,
            recall=lambda fit: self._recalled(arm, fit),
        )  # fmt: skip
        if isinstance(task.fit, Samples):
            task.fit.fit = changed.fit
            if arm.probes == "trained":
                for name in self.malicious:
                    shard = task.shards[name]
                    draw = coins.child("shown", shard).fast()
                    task.fit.held[shard] = arm.attack.change(task.fit.held[shard], classes, draw)
            return task, threat
        return changed, threat

    def _recalled(self, arm: Arm, fit: Fits) -> Fits:
        """Training that other arms did already is not done again."""
        if not self.room or arm.fit is not None or not isinstance(fit, Learner):
            return fit
        # Who changes no records trains as the honest do.
        key = arm.attack if arm.attack is not None and arm.attack.changes else None
        return self.known.setdefault(key, Remembered(fit, self.room))

    def _asked(self, arm: Arm) -> Task:
        """The task, with what the server's probes are, and without measuring every round."""
        task = replace(self.made.task, evaluate=lambda _: {})
        if arm.fit is not None:
            if not isinstance(task.fit, Learner):
                raise SpecError(f"fit = {arm.fit.use!r}: this task trains by a function of its own; leave it out")
            task = replace(task, fit=replace(task.fit, fit=arm.fit))
        if arm.probes == "noise":
            return task
        if task.answers is None or not isinstance(task.fit, Learner):
            raise SpecError("probes = 'samples': the network answers no inputs of numbers")
        held = {shard: rows for shard, rows in task.fit.shards.items() if isinstance(rows, Rows)}
        samples = Samples(task.fit, task.answers, held, self.coins.child("samples"))
        return replace(task, fit=samples, answers=samples.answer)

    def _scored(self, arm: Arm, state: State) -> Ended:
        models = self._plain(state)
        honest = [name for name in self.made.task.enrolled if name not in self.malicious]
        served = _served(models, honest)
        known = {at: self._accuracy(models[at]) for at in sorted(set(served.values()))}
        own = {at: sum(name in (models[at].recipients or honest) for name in honest) for at in known}
        kept = {at: count for at, count in own.items() if count} or own
        mark = arm.attack if isinstance(arm.attack, Scaling) else arm.trigger
        return Ended(
            self.malicious,
            len(self.made.task.enrolled),
            received=fmean(known[at] for at in served.values()),
            weighted=fmean(known[at] for at, count in kept.items() for _ in range(count)),
            clusters=fmean(known[at] for at in kept),
            models=len(models),
            success=None if mark is None else self._success(mark, models, served),
        )

    def _plain(self, state: State) -> list[Model]:
        """The server's models as clients read them."""
        find = self.made.task.symmetry
        if find is None or not any(model.frame for model in state.models):
            return list(state.models)
        permuting = Permuting(find)
        return [plain_of(model, state.memories, run_id(self.coins), permuting) for model in state.models]

    def _accuracy(self, model: Model) -> float:
        return dict(self.made.task.evaluate(model))["accuracy"]

    def _success(self, attack: Scaling, models: Sequence[Model], served: Mapping[str, int]) -> float:
        test = self.made.dataset.test
        assert isinstance(test, Rows)
        others = (test.y != attack.target).nonzero()[:, 0]
        marked, truth = attack.trigger(test.x[others]), test.y[others]
        rates = {
            at: fooled(self._taken(models[at].vector, marked), truth, attack.target) for at in set(served.values())
        }
        return fmean(rates[at] for at in served.values())

    def _taken(self, vector: Tensor, inputs: Tensor) -> Tensor:
        ask = self.made.task.answers
        assert ask is not None
        parts = range(0, len(inputs), _BATCH)
        return torch.cat([ask(vector, inputs[at : at + _BATCH]).argmax(1) for at in parts])


@dataclass
class Samples:
    """The paper's probes: one record of each client that trains in a round, drawn anew, in place of the server's."""

    fit: Fits
    ask: Callable[[Tensor, Tensor], Tensor]
    held: dict[str, Rows]
    coins: Coins
    shown: Tensor = field(default_factory=lambda: torch.zeros(0))

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        """Train, and note what each client sends beside its update."""
        drawn = []
        for _, shard, coins in jobs:
            drawn.append(one_of(self.held[shard], self.coins.child("sample", coins.export())))
        self.shown = torch.stack(drawn)
        return self.fit(jobs)

    def answer(self, vector: Tensor, inputs: Tensor) -> Tensor:
        """What a model makes of the clients' samples, whatever the server drew."""
        return self.ask(vector, self.shown)


def _served(models: Sequence[Model], clients: Sequence[str]) -> dict[str, int]:
    """Which model each of them would get: its cluster's, or the one with most recipients."""
    own = {name: at for at, model in enumerate(models) for name in model.recipients or ()}
    largest = max(range(len(models)), key=lambda at: len(models[at].recipients or ()))
    return {name: own.get(name, largest) for name in clients}


def _turn(done: Round) -> list[Turn]:
    memory = done.state.memories["server"].get("rule", {})
    return [Turn(done.number, memory["groups"], dict(memory["labels"]))] if "groups" in memory else []


def run(
    setting: Setting, arms: Sequence[Arm], seeds: Sequence[int], drive: Drive, watch: Watch, abreast: int = 1,
    kept: Shelf | None = None,
) -> list[list[Ended]]:  # fmt: skip
    """Every arm from every seed, arm by arm; `abreast` trainings at once, each in a process of its own.

    Trainings that are finished go to `kept`, and what is there is not done again.
    """
    shelf: Shelf = {} if kept is None else kept
    names = parts(seeds, len(arms))
    jobs = dict(zip(names, [(setting, arm, seed, drive) for seed in seeds for arm in arms], strict=True))

    def heard(name: str, ended: Ended) -> None:
        _, arm, seed, _ = jobs[name]
        put(shelf, name, ended)
        watch(f"seed {seed}, {arm.title}: {arm.rule}, honest clients receive {ended.received:.1%}")

    each(_play, {name: job for name, job in jobs.items() if name not in shelf}, abreast, heard)
    found: list[Ended] = [got(shelf, name, Ended) for name in names]
    return [found[at :: len(arms)] for at in range(len(arms))]


def parts(seeds: Sequence[int], arms: int) -> list[str]:
    """What the trainings are called among those that are kept."""
    return [f"seed-{seed}-arm-{at:02}" for seed in seeds for at in range(arms)]


@lru_cache(maxsize=1)
def _ground(setting: Setting, seed: int) -> Ground:
    return Ground(setting, seed)


def _play(job: tuple[Setting, Arm, int, Drive]) -> Ended:
    setting, arm, seed, drive = job
    return _ground(setting, seed).play(arm, drive)
