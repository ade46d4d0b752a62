"""The experiment: the only place where truth and guess meet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from croupier.audit.abreast import each
from croupier.audit.blind import Answer, Panel, Question
from croupier.audit.distort import CLEAN, Distortion
from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.outcome import Outcome, Run, outcome
from croupier.audit.score import area, caught
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.revive import Shelf, got, put
from croupier.core.sitting import Drive
from croupier.core.update import Update
from croupier.core.view import facts
from croupier.errors import CroupierError, SpecError
from croupier.federate import Fits, Round, rounds
from croupier.federation import Federation
from croupier.learn.assemble import Assembled, assemble
from croupier.learn.augment import AS_IS, Augment
from croupier.learn.data import Data, Dataset, Rows
from croupier.learn.ends import check_logits
from croupier.learn.fit import Fit
from croupier.learn.flat import frozen_of
from croupier.learn.models import Network
from croupier.learn.root import NONE, Root
from croupier.learn.split import Split
from croupier.pipeline import Pipeline


@dataclass(frozen=True)
class Setting:
    """What is learned, and what the adversary gets beside its view.

    `shadow` is the share of each client's records that is held out of its training and given to the adversary,
    distorted by `noise`; `fresh` the share that nobody trains on and that members are told from; `records` is how many
    training records of each client it is asked about at most: as many of each as the smallest client can give. Without
    `suspects` nothing is set aside for membership attacks, and more can be asked about.
    """

    data: Data
    split: Split
    model: Network
    fit: Fit
    plan: Federation
    augment: Augment = AS_IS
    shadow: float = 0.05
    noise: Distortion = CLEAN
    fresh: float = 0.1
    records: int = 100
    suspects: bool = True
    together: int = 64
    folder: Path | None = None
    device: str = "cpu"
    workers: int = 1
    root: Root = NONE
    loss: str | None = None


@dataclass(frozen=True)
class Defence:
    """A pipeline to attack, the attacks that fit what its server sees, and what it changes in local training.

    The last attack is the one that a verdict trusts most: it should use all that the adversary has. `control` are
    attacks on other defences, mounted on this one's first round to see whether they work at all.
    """

    name: str
    pipeline: Pipeline
    attacks: tuple[str, ...]
    membership: tuple[str, ...] = ("loss", "lira")
    changes: tuple[tuple[str, Part], ...] = ()
    control: tuple[str, ...] = ()

    def applied(self, setting: Setting) -> Setting:
        """The setting under this defence."""
        changes: dict[str, Any] = dict(self.changes)
        return replace(setting, **changes)


@dataclass
class _Withheld:
    """A split that keeps part of each client's records back: its shadow set, and records nobody trains on."""

    split: Split
    shadow: float
    fresh: float
    shadows: dict[str, Tensor] = field(default_factory=dict)
    unused: dict[str, Tensor] = field(default_factory=dict)
    training: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        for who, index in self.split(dataset, coins.child("whole")).items():
            order = torch.from_numpy(coins.child("withheld", who).sampler().permutation(len(index)))
            first, second = (max(2, round(share * len(index))) for share in (self.shadow, self.fresh))
            if len(index) <= first + second + 1:
                raise SpecError(
                    f"task.split: {who} has {len(index)} records, too few to train on and to withhold {first + second} "
                    "of; use fewer clients, or set task.split.least to 20 or more"
                )
            parts = order.split([first, second, len(index) - first - second])  # type: ignore[no-untyped-call]
            held = [index[part.sort().values] for part in parts]
            self.shadows[who], self.unused[who], self.training[who] = held
        return self.training


@dataclass
class Remembered:
    """Training that is not done twice: the same start, records and coins give the same update.

    Defences that differ only in what the server sees train alike, and one training then serves them all.
    """

    fit: Fits
    room: int = 6 << 30
    known: dict[tuple[bytes, str, bytes], Update | CroupierError] = field(default_factory=dict)

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        keys = [(hashlib.blake2b(canon.tensor_bytes(job[0])).digest(), job[1], job[2].export()) for job in jobs]
        # All or nothing: which clients train stacked must not depend on what is remembered.
        if all(key in self.known for key in keys):
            return [self.known[key] for key in keys]
        done = self.fit(jobs)
        size = sum(update.vector.nbytes for update in done if isinstance(update, Update))
        if size <= self.room:
            self.room -= size
            self.known.update(zip(keys, done, strict=True))
        return done


Watch = Callable[[str], None]


def run(
    setting: Setting,
    defences: Sequence[Defence],
    seeds: Sequence[int],
    drive: Drive,
    watch: Watch = lambda _: None,
    abreast: int = 1,
    kept: Shelf | None = None,
) -> list[Outcome]:
    """Train every defence from every seed, and mount its attacks on its server's view of every round.

    `abreast` seeds run at once, each in its own process; a script that asks for more than one must guard its main part.
    Seeds that are finished go to `kept`, and what is there is not done again.
    """
    shelf: Shelf = {} if kept is None else kept
    left = {part(seed): seed for seed in seeds if part(seed) not in shelf}
    if abreast > 1:
        work = partial(_apart, replace(setting, workers=1), defences, drive)
        each(work, left, abreast, lambda name, runs: put(shelf, name, runs))
    elif left:
        with Panel(setting.workers, setting.device) as panel:
            for name, seed in left.items():
                put(shelf, name, _seeded(setting, defences, seed, drive, panel, watch))
    found: list[list[Run]] = [got(shelf, part(seed), list[Run]) for seed in seeds]
    return [outcome(d.name, [runs[at] for runs in found]) for at, d in enumerate(defences)]


def part(seed: int) -> str:
    """What a seed's result is called among those that are kept."""
    return f"seed-{seed}"


def _seeded(
    setting: Setting, defences: Sequence[Defence], seed: int, drive: Drive, panel: Panel, watch: Watch
) -> list[Run]:
    """All defences from one seed, one after another."""
    stages: dict[Setting, _Stage] = {}
    waiting = []
    for defence in defences:
        watch(f"seed {seed}: {defence.name}")
        chosen = defence.applied(setting)
        # What the adversary's pictures look like changes no training.
        learned = replace(chosen, noise=CLEAN)
        if learned not in stages:
            stages[learned] = _Stage(learned, Coins.from_seed(seed), panel, any(d.membership for d in defences))
        waiting.append(stages[learned].play(defence, chosen.noise, drive))
    return [played() for played in waiting]


def _apart(setting: Setting, defences: Sequence[Defence], drive: Drive, seed: int) -> list[Run]:
    with Panel(1, setting.device) as panel:
        return _seeded(setting, defences, seed, drive, panel, lambda _: None)


@dataclass(frozen=True)
class _Truth:
    """Whose each record is, and which suspects are members. Experiments hold it; no attack is given it."""

    owners: Tensor
    members: Tensor


@dataclass
class _Stage:
    """One run's data, model and clients, on which defences play one after another."""

    setting: Setting
    coins: Coins
    panel: Panel
    membership: bool = True

    def __post_init__(self) -> None:
        self.held = _Withheld(self.setting.split, self.setting.shadow, self.setting.fresh)
        self.made = self._assembled()
        self._check_records()
        self.task = replace(self.made.task, fit=Remembered(self.made.task.fit))
        self.asked: dict[tuple[Distortion, tuple[str, ...]], tuple[Knowledge, _Truth, Future[Answer]]] = {}

    def _check_records(self) -> None:
        """Raises: SpecError when it cannot be asked whose a record is, or what models say of one is no logit."""
        dataset = self.made.dataset
        if dataset.goal == "classify":
            check_logits(self.made.module, dataset.train, self.setting.model)
        elif not isinstance(dataset.train, Rows):
            raise SpecError(
                f"task.data = {self.setting.data.use!r}: its records are windows of one series that overlap, so that a "
                "record is in others too, and whose it is cannot be asked; use data of single records, such as 'digits'"
            )

    def _assembled(self) -> Assembled:
        one = self.setting
        return assemble(
            one.data, self.held, one.model, one.fit, self.coins, folder=one.folder, together=one.together,
            device=one.device, workers=one.workers, augment=one.augment, root=one.root,
            loss=one.loss,
        )  # fmt: skip

    def play(self, defence: Defence, noise: Distortion, drive: Drive) -> Callable[[], Run]:
        """Train under a defence while its attacks run; the answers are there when called."""
        node = self.coins.child("attack", defence.name)
        heard: list[tuple[Round, Future[Answer]]] = []
        for done in rounds(defence.pipeline, self.task, self.setting.plan, self.coins, drive, keep={"server": "keep"}):
            knowledge = self._about(done.present, noise)[0]
            attacks = defence.attacks + (() if heard else defence.control)
            question = Question(
                facts(done.views["server"]), defence.pipeline.plain(), attacks, defence.membership,
                node.child(done.number),
            )  # fmt: skip
            # The server's own work is in its view; here only truth and metrics are kept of the round.
            heard.append((replace(done, views={}), self.panel.ask(knowledge, self._quiet(done.present), question)))
        return lambda: self._scored(heard, noise)

    def _quiet(self, present: tuple[str, ...]) -> Coins:
        return self.coins.child("study", *present)

    def _about(self, present: tuple[str, ...], noise: Distortion) -> tuple[Knowledge, _Truth, Future[Answer]]:
        """What is asked about the clients of a round, the truth, and what the prior answers."""
        key = noise, present
        if key not in self.asked:
            knowledge, truth = self._ask(present, noise, self.coins.child("audit", *present))
            question = Question(None, {}, ("prior",), ("prior",) * self.membership, self.coins.child("prior", *present))
            self.asked[key] = knowledge, truth, self.panel.ask(knowledge, self._quiet(present), question)
        return self.asked[key]

    def _ask(self, clients: tuple[str, ...], noise: Distortion, coins: Coins) -> tuple[Knowledge, _Truth]:
        """The adversary's knowledge, and the truth that it is not given."""
        training, unused = self.held.training, self.held.unused
        order = {who: _mixed(training[who], coins.child("records", who)) for who in clients}
        some = self.setting.suspects
        pairs = [min(len(training[who]) // 2, len(unused[who])) if some else 0 for who in clients]
        # Suspects first: a record known to be trained on is no suspect any more.
        inside = [order[who][:many] for who, many in zip(clients, pairs, strict=True)]
        outside = [
            _mixed(unused[who], coins.child("out", who))[:many] for who, many in zip(clients, pairs, strict=True)
        ]
        left = [order[who][many:] for who, many in zip(clients, pairs, strict=True)]
        count = min(self.setting.records, *(len(part) for part in left))
        # In a random order: the place of a record in the list must not tell whose it is.
        shown = torch.from_numpy(coins.child("order").sampler().permutation(count * len(clients)))
        owners = torch.arange(len(clients)).repeat_interleave(count)[shown]
        mixed = torch.from_numpy(coins.child("mixed").sampler().permutation(2 * sum(pairs)))
        members = (torch.arange(2 * sum(pairs)) < sum(pairs))[mixed]
        knowledge = Knowledge(
            clients, self.setting.model.plain(), self.setting.fit.plain(), self.made.dataset.classes,
            self._sample(torch.cat([part[:count] for part in left])[shown]),
            tuple(self._shadow(who, noise, coins) for who in clients),
            self._sample(torch.cat([*inside, *outside])[mixed]), frozen_of(self.made.module),
            {"loss": self.setting.loss or self.made.dataset.goal},
        )  # fmt: skip
        return knowledge, _Truth(owners, members)

    def _sample(self, index: Tensor) -> Sample:
        return self.made.dataset.train.batch(index)

    def _shadow(self, who: str, noise: Distortion, coins: Coins) -> Sample:
        inputs, labels = self._sample(self.held.shadows[who])
        return noise(inputs, coins.child("noise", who).fast()), labels

    def _scored(self, heard: Sequence[tuple[Round, Future[Answer]]], noise: Distortion) -> Run:
        hits: dict[str, dict[int, float]] = {}
        unsuited = {name: why for _, answer in heard for name, why in answer.result().unsuited.items()}
        for done, answer in heard:
            _, truth, prior = self._about(done.present, noise)
            for name, guesses in {**prior.result().guesses, **answer.result().guesses}.items():
                rate = float((guesses == truth.owners).double().mean())
                hits.setdefault(name, {})[done.number + 1] = rate
        last, answer = heard[-1]
        _, truth, prior = self._about(last.present, noise)
        scores = {**prior.result().scores, **answer.result().scores}
        split = {name: (score[truth.members], score[~truth.members]) for name, score in scores.items()}
        sent = [done.traffic.sent[client] for done, _ in heard for client in done.present]
        measure = "accuracy" if self.made.dataset.classes else "rmse"
        return Run(
            1 / len(last.present), len(truth.owners) // len(last.present),
            {done.number + 1: done.metrics[measure] for done, _ in heard},
            sum(sent) / len(sent), hits, {name: area(*pair) for name, pair in split.items()},
            {name: caught(*pair) for name, pair in split.items()}, unsuited, prior.result().carried,
            measure,
        )  # fmt: skip


def _mixed(index: Tensor, coins: Coins) -> Tensor:
    return index[torch.from_numpy(coins.sampler().permutation(len(index)))]
