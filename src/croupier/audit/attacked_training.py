"""Training under attack on the real round loop: some clients are malicious, and the others' models are measured.

An attack of `audit.poison` must meet the very protocol that is audited, with its door, its limits and its aggregator.
So `with_malicious_clients` changes only what malicious clients train on and what they send, and lets them skip the
local noise; `SeededTask.train` plays the rounds and measures the models that honest clients would get.
`audit.questions.poisoning` trains through it, and `audit.questions.permutation` and `audit.permuted_run` take the task
of a seed from it. In the laboratory `attacks/rules_under_attack`, `attacks/clustered_training` and
`bench/leakage/permuted_pictures` use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from statistics import fmean
from typing import Any

import torch

from croupier.agree.epochs import plain_of
from croupier.audit.poison import Poison, PoisonInputs, Scaling, backdoor_success
from croupier.audit.setting import Setting
from croupier.core.attempt import Drive
from croupier.core.coins import Coins
from croupier.core.update import Model, Update
from croupier.engine.loop import begin, rounds
from croupier.engine.state import HONEST, Round, State, Threat, run_id
from croupier.engine.task import Fits, Task
from croupier.engine.work import permuting_of
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.learn.assemble import Assembled
from croupier.learn.data import TensorRecords, Windows
from croupier.learn.ends import check_logits
from croupier.learn.remembered import Remembered
from croupier.learn.train import Learner
from croupier.pipeline import Pipeline
from croupier.privacy.local import NoNoise

# Inputs that a model is asked about at a time.
_BATCH = 1024
# Bytes of updates to remember of each way to train: protocols that differ only in what the server sees train once.
# There are three ways (honest records, flipped labels, a trigger), and the audit's own training beside them.
_ROOM = 1 << 28


def with_malicious_clients(
    pipeline: Pipeline, task: Task, members: Iterable[str], attack: Poison, classes: int, coins: Coins,
    recall: Callable[[Fits], Fits] = lambda fit: fit,
) -> tuple[Task, Threat]:  # fmt: skip
    """The task with poisoned clients, and the threat that lets them skip the local noise.

    `recall` wraps the training on changed records, before updates are rewritten. No reference is handed to the attack.
    Raises: SpecError when a member is not enrolled, or when records cannot be changed.
    """
    chosen = frozenset(members)
    if unknown := sorted(chosen - set(task.shards)):
        raise SpecError(f"{unknown[0]!r} cannot be malicious: it is not enrolled; choose among {list(task.enrolled)}")
    shards = frozenset(task.shards[name] for name in chosen)
    fit = _rewritten(recall(_changed(task.fit, shards, attack, classes, coins)), shards, attack, coins)
    careless = pipeline.model_copy(update={"privacy": NoNoise(), "place": pipeline.place.without_noise()})
    return replace(task, fit=fit), Threat(parties=dict.fromkeys(chosen, careless.client))


def _changed(fit: Fits, shards: frozenset[str], attack: Poison, classes: int, coins: Coins) -> Fits:
    """Training on records as the attack changes them."""
    if not attack.changes:
        return fit
    if not isinstance(fit, Learner):
        raise SpecError(f"poison = {attack.use!r} changes records, and this task's training does not show any")
    held = dict(fit.shards)
    for shard in shards:
        if isinstance(held[shard], Windows):
            raise SpecError(f"poison = {attack.use!r} changes labelled records, not windows of a series")
        records = TensorRecords(*held[shard].batch(torch.arange(len(held[shard]))))
        # The digest stays: it is what the client says that it holds.
        held[shard] = attack.change(records, classes, coins.child("change", shard).fast())
    return replace(fit, shards=held)


def _rewritten(fit: Fits, shards: frozenset[str], attack: Poison, coins: Coins) -> Fits:
    """Trains everybody, then lets the attack rewrite its members' updates; all jobs of a round come together."""

    def poisoned(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        done = list(fit(jobs))
        trained = {at: one for at, one in enumerate(done) if isinstance(one, Update)}
        bad = [at for at in trained if jobs[at][1] in shards]
        if not bad:
            return done
        rows = {at: one.vector - jobs[at][0] for at, one in trained.items()}
        others = [row for at, row in rows.items() if at not in bad]
        benign = torch.stack(others) if others else None
        inputs = PoisonInputs(torch.stack([rows[at] for at in bad]), benign, len(jobs))
        # One node for the round: the first member's coins are of this round alone.
        drawn = coins.child("craft", jobs[bad[0]][2].export()).fast()
        for at, row in zip(bad, attack(inputs, drawn), strict=True):
            try:
                done[at] = replace(trained[at], vector=jobs[at][0] + row)
            except CroupierError as error:
                done[at] = error
        return done

    return poisoned


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training went.

    `malicious` names the clients that attacked, and `models` counts the server's models at the end (several where it
    has clusters). `received` is the mean over all honest clients of the accuracy of the model that each would get next;
    `success` is the same of the backdoor. `accepted` counts the updates of malicious clients that came through. `lost`
    is why a training ended early.
    """

    malicious: tuple[str, ...]
    received: float
    models: int
    success: float | None = None
    lost: str = ""
    accepted: int = 0


@dataclass(frozen=True)
class SeededTask:
    """The task of one seed with its malicious clients, whom coins of the seed choose.

    All protocols of an audit must train on the same records. Where one of them needs records of the server's own,
    `audit.questions.poisoning` therefore sets `setting.root` for all of them.
    """

    setting: Setting
    seed: int
    remembered: dict[Poison | None, Remembered] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def coins(self) -> Coins:
        """The seed's."""
        return Coins.from_seed(self.seed)

    @cached_property
    def made(self) -> Assembled:
        """The task. Raises: SpecError unless it classifies."""
        one = self.setting
        made = one.assembled(self.coins)
        if made.dataset.goal != "classify" or isinstance(made.dataset.test, Windows):
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

    @property
    def honest(self) -> list[str]:
        """The others."""
        return [name for name in self.made.task.enrolled if name not in self.malicious]

    def train(
        self, pipeline: Pipeline, drive: Drive, attack: Poison | None = None, trigger: Scaling | None = None
    ) -> TrainingOutcome:
        """Train under an attack, or none; `trigger`: a backdoor's, measured though nobody mounts it."""
        # Without measuring every round.
        task, threat = replace(self.made.task, evaluate=lambda _: {}), HONEST
        # Who changes no records trains as the honest do, and training that was done already is not done again.
        recall = partial(self._recalled, _trained_as(attack))
        if attack is None or not self.malicious:
            task = replace(task, fit=recall(task.fit))
        else:
            classes, coins = self.made.dataset.classes, self.coins.child("attack")
            task, threat = with_malicious_clients(pipeline, task, self.malicious, attack, classes, coins, recall)
        played = rounds(pipeline, task, self.setting.plan, self.coins, drive, threat=threat)
        return self.measure(played, begin(task), attack if isinstance(attack, Scaling) else trigger)

    def _recalled(self, key: Poison | None, fit: Fits) -> Fits:
        return self.remembered.setdefault(key, Remembered(fit, _ROOM)) if isinstance(fit, Learner) else fit

    def measure(self, played: Iterable[Round], state: State, trigger: Scaling | None) -> TrainingOutcome:
        """Play rounds to the end or until no model is left, and look at what honest clients would get then."""
        lost, accepted = "", 0
        try:
            for done in played:
                state = done.state
                accepted += sum(name in self.malicious for name in done.present)
        except ProtocolError as error:
            # Updates that overflow leave a round without its quorum: what was there stays.
            lost = str(error)
        models = self.plain_models(state)
        served = served_models(models, self.honest).values()
        known = {at: dict(self.made.task.evaluate(models[at]))["accuracy"] for at in sorted(set(served))}
        received, success = fmean(known[at] for at in served), None
        if trigger is not None:
            marked = {at: self._success(trigger, models[at]) for at in set(served)}
            success = fmean(marked[at] for at in served)
        return TrainingOutcome(self.malicious, received, len(models), success, lost, accepted)

    def plain_models(self, state: State) -> list[Model]:
        """The server's models as clients read them."""
        permuting, run = permuting_of(self.made.task), run_id(self.coins)
        if permuting is None:
            return list(state.models)
        return [plain_of(model, state.memories, run, permuting) for model in state.models]

    def _success(self, attack: Scaling, model: Model) -> float:
        """How often marked test records of other classes are taken for the target."""
        test, ask = self.made.dataset.test, self.made.task.answers
        assert ask is not None
        inputs, truth = test.batch(torch.arange(len(test)))
        parts = torch.split(attack.trigger(inputs), _BATCH)
        answers = torch.cat([ask(model.vector, part).argmax(1) for part in parts])
        return backdoor_success(answers, truth, attack.target)


def _trained_as(attack: Poison | None) -> Poison | None:
    """What tells trainings apart: by what factor an update is multiplied changes no record."""
    if attack is None or not attack.changes:
        return None
    return attack.model_copy(update={"factor": None}) if isinstance(attack, Scaling) else attack


def served_models(models: Sequence[Model], clients: Sequence[str]) -> dict[str, int]:
    """Which model each of them would get: its cluster's, or the one with most recipients."""
    own = {name: at for at, model in enumerate(models) for name in model.recipients or ()}
    largest = max(range(len(models)), key=lambda at: len(models[at].recipients or ()))
    return {name: own.get(name, largest) for name in clients}
