"""RAIN's server rate, tuned before a run on nothing but the server's root records.

The paper gives no rate, and one tuned on test records would flatter the rule. So the root records play a whole
federation: a part is held out to score, and the others are both the practice server's root and what practice clients,
as many as the run will have, draw their records from, with replacement. Some practice clients flip their labels. Every
rate trains as many rounds as the run will, without attack and under it. Test records have no part in the choice; how
the rates do on them is measured after it. `croupier reproduce rain/rate` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from croupier.aggregate.signs import SignTrust
from croupier.audit.poison import LabelFlip
from croupier.learn.data import TensorRecords
from croupier_lab.papers.rain.clear_rounds import ClearTask, TrainingTerms
from croupier_lab.papers.rain.repeated_runs import ROOT, AttackedRun, RunPlace, RunsOverSeeds, cell, shown
from croupier_lab.papers.rain.robustness import PAPER, QUIET, datum
from croupier_lab.papers.rain.rules import EQUAL
from croupier_lab.papers.shared.figure import Figure, Means, Scale

Watch = Callable[[str], None]
# Accuracies by rate, scene (a share of clients that attack) and seed.
Runs = dict[float, list[list[float]]]
RATES = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02)
# Shares of clients that flip their labels; 0 is no attack.
SHARES = (0.0, 0.5, 0.9)
# So many parts of the root records are held out in turn.
FOLDS = 5


@dataclass(frozen=True)
class ServerRateSize:
    """How much of everything a scale takes."""

    clients: int
    hidden: tuple[int, ...]
    terms: TrainingTerms
    says: str


SIZES: Mapping[Scale, ServerRateSize] = {
    "smoke": ServerRateSize(
        10, (16,), TrainingTerms(20, 32, 20), "smoke: 10 clients, MLP 784-16-10, 4,000 records, 20 rounds, batch 32"
    ),
    "small": ServerRateSize(
        30, (32,), TrainingTerms(80, 32, 80), "small: 30 clients, MLP 784-32-10, 20,000 records, 80 rounds, batch 32"
    ),
    "paper": ServerRateSize(
        100, (128,), TrainingTerms(300, 64, 300), "paper: 100 clients, MLP 784-128-10, 300 rounds, batch 64"
    ),
}
SEEDS: Mapping[Scale, int] = {"smoke": 2, "small": 3, "paper": 5}


def practice(ground: ClearTask, fold: int) -> ClearTask:
    """A federation of a task's root records alone, with one part of them held out as its test records.

    Server and clients share the other parts: apart from each other they would be too few to learn from.
    """
    coins = ground.coins.child("practice", fold)
    held = ground.root[fold::FOLDS]
    own = torch.cat([ground.root[at::FOLDS] for at in range(FOLDS) if at != fold])
    drawn = torch.from_numpy(coins.child("clients").sampler().integers(len(own), size=(len(ground.shards), len(own))))
    # A record has one owner, who may change it: every client gets copies of its own.
    index = torch.cat([own, own[drawn.flatten().to(own.device)]])
    places = torch.arange(len(index), device=index.device)
    shards = places[len(own) :].view(len(ground.shards), -1).unbind()
    return replace(
        ground, train=_taken(ground.train, index), test=_taken(ground.train, held), shards=shards,
        root=places[: len(own)], coins=coins,
    )  # fmt: skip


def _taken(rows: TensorRecords, index: torch.Tensor) -> TensorRecords:
    return TensorRecords(rows.x[index], rows.y[index])


class Practice(RunPlace):
    """The practice federations of a place's servers; each number stands for a seed and a held-out part."""

    @cached_property
    def grounds(self) -> list[ClearTask]:
        """The tasks, one for each seed and part, by the number seed * FOLDS + part."""
        known = tuple(dict.fromkeys(code // FOLDS for code in self.seeds))
        real = dict(zip(known, RunPlace(self.data, self.clients, self.hidden, self.means, known).grounds, strict=True))
        return [practice(real[code // FOLDS], code % FOLDS) for code in self.seeds]


def best(scores: Mapping[float, Sequence[float]]) -> float:
    """The rate whose worst score is highest; of equal ones the higher mean, then the smaller rate."""
    return max(scores, key=lambda rate: (min(scores[rate]), sum(scores[rate]), -rate))


def _planned(rate: float, terms: TrainingTerms) -> list[AttackedRun]:
    return [AttackedRun(replace(EQUAL, rate=rate), terms, LabelFlip() if share else None, share) for share in SHARES]


def _fought(kind: type[RunPlace], scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> Runs:
    """Accuracies by rate, scene and seed; of a seed with several parts their mean."""
    size, parts = SIZES[scale], FOLDS if kind is Practice else 1
    codes = tuple(seed * parts + part for seed in seeds for part in range(parts))
    trained = RunsOverSeeds(kind(datum("MNIST", scale), size.clients, size.hidden, means, codes), watch)
    trained.ahead(attacked for rate in RATES for attacked in _planned(rate, size.terms))
    found: Runs = {}
    for rate in RATES:
        done = [[one.accuracy for one in trained(attacked)] for attacked in _planned(rate, size.terms)]
        found[rate] = [[_mean(one[at : at + parts]) for at in range(0, len(one), parts)] for one in done]
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rows(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    roots = _fought(Practice, scale, means, seeds, lambda said: watch(f"root records, {said}"))
    chosen = best({rate: [_mean(one) for one in found] for rate, found in roots.items()})
    alone = [best({rate: [one[at] for one in found] for rate, found in roots.items()}) for at in range(len(seeds))]
    # Only now, with the choice made, are test records looked at.
    tests = _fought(RunPlace, scale, means, seeds, lambda said: watch(f"test records, {said}"))
    return [
        {
            "rate": rate, "chosen": "yes" if rate == chosen else "", "seeds_that_would": alone.count(rate),
            **_shown("root", roots[rate]), **_shown("test", tests[rate]),
            "_root": [_mean(one) for one in roots[rate]], "_test": [_mean(one) for one in tests[rate]],
        }
        for rate in RATES
    ]  # fmt: skip


def _shown(kind: str, found: Sequence[Sequence[float]]) -> dict[str, str]:
    return {f"{kind}_{_name(share)}": shown(cell(one)) for share, one in zip(SHARES, found, strict=True)}


def _name(share: float) -> str:
    return f"{share:.0%}" if share else "clean"


def _says(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    chosen = next(row for row in rows if row["chosen"])
    said = [
        f"Chosen on root records alone: {chosen['rate']:g} (worst of {len(SHARES)} scenes "
        f"{100 * min(chosen['_root']):.1f} %). The default of aggregate = 'sign-trust' is {SignTrust().lr:g}."
    ]
    for row in rows:
        if row["rate"] in (chosen["rate"], 0.01):
            found = ", ".join(f"{_name(s)} {100 * row['_test'][at]:.1f} %" for at, s in enumerate(SHARES))
            said.append(f"Afterwards, on test records, rate {row['rate']:g}: {found}.")
    return said


FIGURES = (
    Figure(
        "rain/rate", f"{PAPER}, which gives no rate", "the server's rate, tuned on root records, clean and attacked",
        "Accuracies in per cent, with 95 % intervals over seeds. 'root': on held-out root records, in a practice "
        "federation of the other root records; the rate whose worst scene does best is chosen. 'test': on test records "
        "in the real one, measured after the choice. Scenes: no attack, and shares of clients that flip labels.",
        _rows, SEEDS,
        (
            f"root set of {ROOT} records, in {FOLDS} parts that are held out in turn; the others are the practice "
            "server's, and its clients draw from them with replacement",
            QUIET, *(size.says for size in SIZES.values()),
        ),
        _says,
    ),
)  # fmt: skip
