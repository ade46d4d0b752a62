"""The experiment: the only place where truth and guess meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from croupier.audit.blind import Blind
from croupier.audit.knowledge import Knowledge, Sample
from croupier.audit.score import Rate, over_runs
from croupier.core.coins import Coins
from croupier.core.sitting import Drive
from croupier.core.view import facts
from croupier.errors import SpecError
from croupier.federate import Federation, rounds
from croupier.learn.assemble import Assembled, assemble
from croupier.learn.data import Data, Dataset
from croupier.learn.fit import Fit
from croupier.learn.models import Network
from croupier.learn.split import Split
from croupier.pipeline import Pipeline


@dataclass(frozen=True)
class Setting:
    """What is learned, and what the adversary gets beside its view.

    `shadow` is the share of each client's records that is held out of its training and given to the adversary;
    `records` is how many training records of each client it is asked about.
    """

    data: Data
    split: Split
    model: Network
    fit: Fit
    plan: Federation
    shadow: float = 0.05
    records: int = 100
    together: int = 64
    folder: Path | None = None
    workers: int | None = None


@dataclass(frozen=True)
class Defence:
    """A pipeline to attack, and the attacks that fit what its server sees."""

    name: str
    pipeline: Pipeline
    attacks: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """One defence in all runs: how good the model is, what it costs, and how each attack does.

    `success` is by round, `overall` the mean over rounds, `best` the best round, which overstates and is never shown
    alone. `leak` is overall success minus the prior of the same run: the two share their records, so the difference
    is sharper than either.
    """

    name: str
    accuracy: Rate
    bytes_per_client: float
    success: Mapping[str, Mapping[int, Rate]]
    overall: Mapping[str, Rate]
    leak: Mapping[str, Rate]
    best: Mapping[str, Rate]


@dataclass
class _Withheld:
    """A split that keeps part of each client's records back, as its shadow set."""

    split: Split
    share: float
    shadows: dict[str, Tensor] = field(default_factory=dict)
    training: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, dataset: Dataset, coins: Coins) -> Mapping[str, Tensor]:
        for who, index in self.split(dataset, coins.child("whole")).items():
            order = coins.child("withheld", who).sampler().permutation(len(index))
            cut = max(2, round(self.share * len(index)))
            if len(index) <= cut + 1:
                raise SpecError(
                    f"task.split.least: {who} has {len(index)} records, too few to train on and to withhold {cut} of; "
                    "set it to 20 or more"
                )
            self.shadows[who] = index[torch.from_numpy(order[:cut]).sort().values]
            self.training[who] = index[torch.from_numpy(order[cut:]).sort().values]
        return self.training


Watch = Callable[[str], None]


def run(
    setting: Setting, defences: Sequence[Defence], seeds: Sequence[int], drive: Drive, watch: Watch = lambda _: None
) -> list[Outcome]:
    """Train every defence from every seed, and mount its attacks on its server's view of every round."""
    found: dict[str, list[_Run]] = {defence.name: [] for defence in defences}
    with Blind() as blind:
        for seed in seeds:
            for defence in defences:
                watch(f"seed {seed}: {defence.name}")
                found[defence.name].append(_one(setting, defence, Coins.from_seed(seed), drive, blind))
    return [_outcome(name, runs) for name, runs in found.items()]


@dataclass(frozen=True)
class _Run:
    accuracy: float
    bytes: float
    hits: Mapping[str, Mapping[int, float]]


def _one(setting: Setting, defence: Defence, coins: Coins, drive: Drive, blind: Blind) -> _Run:
    held = _Withheld(setting.split, setting.shadow)
    made = assemble(
        setting.data, held, setting.model, setting.fit, coins,
        folder=setting.folder, together=setting.together, workers=setting.workers,
    )  # fmt: skip
    if made.dataset.goal != "classify":
        raise SpecError(f"task.data = {setting.data.use!r}: source inference is defined for classes, not forecasts")
    knowledge, truth = _ask(setting, defence, made, held, coins.child("audit"))
    hits: dict[str, dict[int, float]] = {name: {} for name in ("prior", *defence.attacks)}
    accuracy, sent = 0.0, []
    for done in rounds(defence.pipeline, made.task, setting.plan, coins, drive, keep={"server": "keep"}):
        view = facts(done.views["server"])
        for name, by_round in hits.items():
            node = coins.child("attack", defence.name, name, done.number)
            guesses = blind.guess(name, None if name == "prior" else view, knowledge, node)
            by_round[done.number + 1] = float((guesses == truth).double().mean())
        accuracy = done.metrics["accuracy"]
        sent += [done.traffic.sent[client] for client in done.present]
    return _Run(accuracy, sum(sent) / len(sent), hits)


def _ask(
    setting: Setting, defence: Defence, made: Assembled, held: _Withheld, coins: Coins
) -> tuple[Knowledge, Tensor]:
    """The adversary's knowledge, and the truth that never leaves this function's caller."""
    clients = made.task.enrolled
    count = min(setting.records, *(len(held.training[who]) for who in clients))
    asked = []
    for who in clients:
        drawn = coins.child("records", who).sampler().permutation(len(held.training[who]))[:count]
        asked.append(held.training[who][torch.from_numpy(drawn)])
    # In a random order: the place of a record in the list must not tell whose it is.
    order = torch.from_numpy(coins.child("order").sampler().permutation(count * len(clients)))
    records: Sample = made.dataset.train.batch(torch.cat(asked)[order])
    shadows = tuple(made.dataset.train.batch(held.shadows[who]) for who in clients)
    truth = torch.arange(len(clients)).repeat_interleave(count)[order]
    model: dict[str, Any] = setting.model.plain()
    protocol = defence.pipeline.plain()
    return Knowledge(clients, protocol, model, made.dataset.classes, records, shadows), truth


def _outcome(name: str, runs: Sequence[_Run]) -> Outcome:
    attacks = runs[0].hits
    success = {a: {r: over_runs([run.hits[a][r] for run in runs]) for r in attacks[a]} for a in attacks}
    means = {a: over_runs([_mean(run, a) for run in runs]) for a in attacks}
    leak = {a: over_runs([_mean(run, a) - _mean(run, "prior") for run in runs]) for a in attacks}
    best = {a: max(success[a].values(), key=lambda rate: rate.rate) for a in attacks}
    accuracy = over_runs([run.accuracy for run in runs])
    return Outcome(name, accuracy, sum(run.bytes for run in runs) / len(runs), success, means, leak, best)


def _mean(run: _Run, attack: str) -> float:
    return sum(run.hits[attack].values()) / len(run.hits[attack])
