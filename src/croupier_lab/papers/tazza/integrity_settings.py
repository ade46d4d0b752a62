"""Settings of Tazza's integrity experiments: data and networks by scale, rules, attacks, and cells of tables.

`integrity`, `cluster_sweep`, `combined_defences` and `tradeoff_findings` use them, so that "label flip" or "backdoor"
means the same in all figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.clusters import Clusters
from croupier.aggregate.geometry import MultiKrum, TrimmedMean
from croupier.aggregate.mean import Mean
from croupier.aggregate.median import Median
from croupier.aggregate.reference import FLTrust
from croupier.audit.poison import LabelFlip, NoiseInjection, Poison, Scaling
from croupier.audit.setting import Setting
from croupier.engine.federation import Federation
from croupier.learn.data import Data
from croupier.learn.datasets import Cifar10, Ecg, Mnist
from croupier.learn.fit import Adam
from croupier.learn.models import Mixer, Mlp, Network, Rnn, Vit
from croupier.learn.root import Root
from croupier.learn.split import Dirichlet
from croupier_lab.attacks.cluster_purity import purity_by_round
from croupier_lab.attacks.clustered_training import ClusterOutcome
from croupier_lab.papers.shared.figure import Means, Scale
from croupier_lab.papers.shared.trainings import cell, shown

Row = dict[str, Any]
PAPER = "Tazza (2025)"
MNIST, MIXER, VIT, ECG = "MNIST, MLP", "CIFAR-10, Mixer", "CIFAR-10, ViT", "ECG, RNN"
TAZZA, FEDAVG = "Tazza", "FedAvg"
# A quarter of ten clients, rounded up: what rules are told that assume a number of malicious clients.
ASSUMED = 3
RULES: Mapping[str, Aggregator] = {
    TAZZA: Clusters(), FEDAVG: Mean(), "Median": Median(), "Trimmed Mean": TrimmedMean(b=ASSUMED),
    "Multi-Krum": MultiKrum(f=ASSUMED), "FLTrust": FLTrust(),
}  # fmt: skip
FLIP, NOISE, TRIGGER, REPLACE = "label flip", "noise injection", "backdoor", "model replacement"


def backdoor(colours: int = 1, factor: float | None = 1.0) -> Scaling:
    """The backdoor: half of a malicious client's records get the class 0 and a mark, red where there are colours.

    The mark is 4 x 4 pixels in the upper left corner, or as many places of a series (`audit.poison.Scaling`).
    """
    value: float | tuple[float, ...] = (1.0, 0.0, 0.0) if colours == 3 else 1.0
    return Scaling(value=value, corner="upper-left", factor=factor)


def attacks(colours: int = 1) -> dict[str, Poison]:
    """The paper's attacks, and the backdoor whose update is multiplied as well (model replacement)."""
    return {
        FLIP: LabelFlip(), NOISE: NoiseInjection(scale=0.25), TRIGGER: backdoor(colours),
        REPLACE: backdoor(colours, None),
    }  # fmt: skip


@dataclass(frozen=True)
class IntegritySize:
    """What a scale takes: clients, those of a round, rounds, local epochs, records (None: all), networks and cases.

    `cases` are names such as `MNIST`, and `says` is the sentence that results print of the scale.
    """

    clients: int
    cohort: int
    rounds: int
    epochs: int
    train: int | None
    test: int | None
    hidden: tuple[int, ...]
    mixer: Mixer
    vit: Vit
    cases: tuple[str, ...]
    says: str


SIZES: Mapping[Scale, IntegritySize] = {
    "smoke": IntegritySize(
        24, 10, 3, 2, 3600, 500, (32,), Mixer(width=16, across=8, within=32, layers=1, patch=8),
        Vit(width=16, heads=2, layers=1, hidden=32, patch=8), (MNIST,),
        "smoke: 24 clients, 3 rounds of 2 epochs, 3,600 records, MLP 784-32-10",
    ),
    "small": IntegritySize(
        40, 10, 10, 5, 20_000, 2000, (128, 64), Mixer(width=32, across=16, within=64, layers=2),
        Vit(width=32, heads=2, layers=2, hidden=64), (MNIST,),
        "small: 40 clients, 10 rounds, 20,000 records, MLP 784-128-64-10",
    ),
    "paper": IntegritySize(
        100, 10, 50, 5, None, None, (256, 128), Mixer(standardise=True), Vit(standardise=True),
        (MNIST, MIXER, VIT, ECG), "paper: 100 clients, 50 rounds, all records, MLP 784-256-128-10 and the networks' "
        "own sizes (Mixer 569,994 weights)",
    ),
}  # fmt: skip
SEEDS: Mapping[Scale, int] = {"smoke": 3, "small": 3, "paper": 3}
SUBSTITUTED = (
    "DBSCAN's parameters, the probes and the merge are ours (tazza/clusters sweeps them): the paper names none",
    "clients' updates are not permuted here, which changes no answer and no mean",
    f"Trimmed Mean and Multi-Krum assume {ASSUMED} liars a round, FLTrust's server holds 100 records that nobody else "
    "trains on: the paper names neither",
    "who is malicious is drawn for each seed; the number of rounds is ours: the paper names it for Figure 13 alone",
    "label flip: every label y of a malicious client becomes M - 1 - y; the paper flips 'a subset'",
    "CIFAR-10 with a ViT stands in for STL-10; ECG has the patients of the test apart from those of the training",
    *(size.says for size in SIZES.values()),
)


def setting(case: str, scale: Scale, means: Means) -> Setting:
    """The setting of a case: data, clients, network and training."""
    size = SIZES[scale]
    kinds: Mapping[str, tuple[type[Data], Network]] = {
        MNIST: (Mnist, Mlp(hidden=size.hidden)), MIXER: (Cifar10, size.mixer), VIT: (Cifar10, size.vit),
        ECG: (Ecg, Rnn()),
    }  # fmt: skip
    kind, model = kinds[case]
    cut = {"train": size.train, "test": size.test} if "train" in kind.model_fields else {}
    plan = Federation(rounds=means.rounds or size.rounds, cohort=size.cohort)
    # A GPU takes as long for one small client as for a cohort of them.
    together = 1 if means.device == "cpu" else size.cohort
    return Setting(
        kind.parse({"use": kind.use, **cut}), Dirichlet(clients=size.clients, alpha=0.5, least=2), model,
        Adam(lr=1e-3, epochs=size.epochs, batch=64), plan, root=Root(records=100), together=together,
        folder=means.folder, device=means.device, workers=means.workers if means.processes == 1 else 1,
    )  # fmt: skip


def colours(case: str) -> int:
    """How many colours a case's pictures have."""
    return 3 if case in (MIXER, VIT) else 1


def twenty(scale: Scale, means: Means) -> Setting:
    """The setting of Figure 13, in which half of the clients are malicious and all are in every round.

    They are ten and ten, and four and four at smoke scale.
    """
    known = setting(MNIST, scale, means)
    count = {"smoke": 8, "small": 20, "paper": 20}[scale]
    plan = Federation(rounds={"smoke": 3, "small": 10, "paper": 50}[scale])
    return replace(known, split=Dirichlet(clients=count, alpha=0.5, least=2), plan=plan, share=0.5)


def mean_of(values: Sequence[float | None]) -> float:
    """The mean of the known values; not a number where none is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def marks(done: Sequence[ClusterOutcome], sleeps: int = 0) -> dict[str, Any]:
    """The measures of an arm over seeds: see `ClusterOutcome`, and `Purity` for those of clusters.

    Those of clusters are means over the rounds from `sleeps` on, the first in which the malicious attack.
    """
    by = [purity_by_round(ended, sleeps) for ended in done]
    found = {
        "received": cell([ended.received for ended in done]),
        "weighted": cell([ended.weighted for ended in done]),
        "clusters": cell([ended.clusters for ended in done]),
    }
    if done[0].success is not None:
        found["success"] = cell([ended.success or 0.0 for ended in done])
    if by[0]:
        found |= {
            "purity": cell([mean_of([one.all for one in run]) for run in by]),
            "several": cell([mean_of([one.several for one in run]) for run in by]),
            "one": cell([mean_of([one.one for one in run]) for run in by]),
            "groups": cell([mean_of([float(one.groups) for one in run]) for run in by]),
            "together": cell([mean_of([one.together for one in run]) for run in by]),
        }
    return found


def mark_shown(found: Mapping[str, Any], name: str, times: float = 100, places: int = 1) -> str:
    """A measure as text, in per cent unless `times` is given; "-" where it was not measured."""
    return shown(found[name], places, times) if name in found else "-"


def pure(found: Mapping[str, Any]) -> str:
    """The purity as text, and in brackets what a single cluster of all would have."""
    if "purity" not in found:
        return "-"
    return f"{mark_shown(found, 'purity')} ({100 * found['one']['mean']:.0f})"
