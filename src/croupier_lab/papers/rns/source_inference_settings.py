"""Tasks, sizes, defences and printed points that RNS's figures and tables of source inference share.

`papers.rns.source_inference` makes experiments of them; `accuracy`, `dp_sgd` and `inversion` take its tasks, sizes and
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from croupier.audit.setting import Setting
from croupier.engine.federation import Federation
from croupier.learn.data import Data
from croupier.learn.datasets import Activity, Cifar10, Mnist, Newsgroups, Synthetic
from croupier.learn.fit import Sgd
from croupier.learn.models import ActivityCnn, CifarCnn, Mlp, MnistCnn, Network, ResNet18, TextTransformer
from croupier.learn.split import Dirichlet
from croupier.systems import naive, plain, rns, sum_servers
from croupier_lab.papers.shared.figure import PrintedNumber, Scale
from croupier_lab.source_inference.experiment import UNSHUFFLING, Defence

PAPER = "Athanasiou, Jung and Palamidessi, ICLR 2026"
ALIKE = "clients count alike; the paper weighs them by their records"
SPLIT = "every record is dealt out; the attack code that the paper uses drops what exceeds the size of class 0"
HELD = (
    "15 % of each client's records are kept from training, a third of them as the shadow set (two records at least); "
    "no client has fewer than 20 records"
)
EVERYBODY = "the adversary has a shadow set of every client, not only of a target; ties are broken at random"
ROUNDS = "10 rounds at the scale of the paper: its Section 7 says 20 and 100, its Appendix E 10"
ALWAYS = (ALIKE, SPLIT, HELD, EVERYBODY, ROUNDS)
HUNDRED = "CIFAR-10 for CIFAR-100: another dataset, so the paper's numbers do not apply to it"


@dataclass(frozen=True)
class SourceInferenceSize:
    """How much of everything a scale takes; `records`: of each client so many are asked about at most."""

    train: int | None
    test: int | None
    rounds: int
    epochs: int
    records: int


SIZES: Mapping[Scale, SourceInferenceSize] = {
    "smoke": SourceInferenceSize(1200, 500, 1, 1, 20),
    "small": SourceInferenceSize(6000, 2000, 2, 5, 50),
    "paper": SourceInferenceSize(None, None, 10, 10, 100),
}
# Seeds of the figures by scale, and of those that take longer or show less.
SEEDS: Mapping[Scale, int] = {"smoke": 2, "small": 4, "paper": 3}
FEWER: Mapping[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}


def _mnist(size: SourceInferenceSize) -> tuple[Data, Network]:
    return Mnist(train=size.train, test=size.test), MnistCnn(standardise=True)


def _cifar(size: SourceInferenceSize) -> tuple[Data, Network]:
    return Cifar10(train=size.train, test=size.test), CifarCnn(standardise=True)


def _resnet(size: SourceInferenceSize) -> tuple[Data, Network]:
    return Cifar10(train=size.train, test=size.test), ResNet18(standardise=True)


def _activity(size: SourceInferenceSize) -> tuple[Data, Network]:
    return Activity(), ActivityCnn(standardise=True)


def _newsgroups(size: SourceInferenceSize) -> tuple[Data, Network]:
    return Newsgroups(length=64), TextTransformer()


def _synthetic(size: SourceInferenceSize) -> tuple[Data, Network]:
    return Synthetic(records=100_000 if size.train is None else size.train + 2000), Mlp(hidden=(200,))


TASKS = {
    "MNIST/CNN": _mnist, "CIFAR-10/CNN": _cifar, "CIFAR-10/ResNet-18": _resnet, "synthetic/MLP": _synthetic,
    "activity/CNN": _activity, "newsgroups/Transformer": _newsgroups,
}  # fmt: skip


def usual(task: str, scale: Scale, alpha: float = 0.1, clients: int = 10, **changes: Any) -> Setting:
    size = SIZES[scale]
    data, model = TASKS[task](size)
    fit = Sgd(lr=0.01, momentum=0.9, batch=64, epochs=size.epochs)
    plan = Federation(rounds=size.rounds)
    split = Dirichlet(clients=clients, alpha=alpha, least=20)
    return replace(Setting(data, split, model, fit, plan, records=size.records, suspects=False), **changes)


VANILLA = Defence("none", plain("uniform"), ("named", "named+prior"), ())
SHUFFLES = tuple(
    Defence(f"{grain} shuffle", naive(grain), (attacks[0], attacks[-1]), ()) for grain, attacks in UNSHUFFLING.items()
)
FOUR = (VANILLA, *SHUFFLES)
# On a sum: the joint model trained on with each shadow set, alone and joined with the prior.
ON_SUMS = ("tuned", "tuned+prior")


def five(cohort: int) -> tuple[Defence, ...]:
    """No defence, the three naive shuffles, and RNS behind a relay that lets the sum's residues out."""
    return (*FOUR, rns_defence(cohort))


# RNS in the paper's own form, whose counts of ones tell more than the sum; and in the form without a trusted relay.
MORE = (
    Defence("RNS, shuffled bits", rns(10, release="bits"), ("carries", "carries+prior"), ()),
    Defence("RNS, sum servers", sum_servers(10), ON_SUMS, ()),
)


def rns_defence(cohort: int) -> Defence:
    return Defence("RNS", rns(cohort), ON_SUMS, ())


def as_printed(where: str, **rates: float) -> dict[str, PrintedNumber]:
    names = {"none": "none", "rns": "RNS"} | {str(grain): f"{grain} shuffle" for grain in UNSHUFFLING}
    return {names[key]: PrintedNumber(rate, where) for key, rate in rates.items()}


GUESSING = "Section 7.1: random guessing"
FIRST_POINTS = {
    "MNIST/CNN": as_printed("Table 2, vanilla FL", none=0.4501) | as_printed(GUESSING, rns=0.1),
    "CIFAR-10/CNN": as_printed("Table 2, vanilla FL", none=0.5157)
    | as_printed(GUESSING, rns=0.1)
    | as_printed(
        "Table 4, Original; the text reads 28 % for parameters in Figure 1", model=0.45, layer=0.42, parameter=0.27
    ),
    "CIFAR-10/ResNet-18": as_printed("Appendix F.7, for CIFAR-100", none=0.77)
    | as_printed("Section 7.1, for CIFAR-100, about", model=0.78, layer=0.60),
}
