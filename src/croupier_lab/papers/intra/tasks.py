"""What IntraShuffler's tables of utility are trained on here: London's households, people's activities, pictures.

Each function makes a task at the size of a scale. `papers.intra.utility` trains on all of them, and
`papers.intra.recombination` on London's households.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croupier.engine.federation import Federation
from croupier.learn.datasets import Activity, Cifar10, Households
from croupier.learn.fit import Sgd
from croupier.learn.models import ActivityCnn, DenseNet121, Lstm, MobileNetV2, Network, SeriesTransformer
from croupier.learn.split import Dirichlet, Natural
from croupier_lab.papers.shared.figure import Means, Scale
from croupier_lab.papers.shared.trainings import TrainingTask

LSTM, TRANSFORMER = "LSTM", "small Transformer (for TimesFM)"
CNN = "CNN over time"
MOBILENET, DENSENET = "MobileNetV2", "DenseNet-121"
# Local epochs of every task.
EPOCHS = 2


@dataclass(frozen=True)
class UtilitySize:
    """How much of everything a scale takes: clients, auxiliary ones, a round's cohort, rounds, windows' stride."""

    clients: int
    others: int
    cohort: int
    rounds: int
    stride: int


# Windows of half-hourly readings are `stride` readings apart; a stride without a factor in common with 48, the readings
# of a day, visits all hours of the day.
LONDON: Mapping[Scale, UtilitySize] = {
    "smoke": UtilitySize(20, 6, 16, 2, 211),
    "small": UtilitySize(100, 35, 20, 12, 61),
    "paper": UtilitySize(200, 69, 20, 50, 29),
}
PEOPLE: Mapping[Scale, UtilitySize] = {
    "smoke": UtilitySize(8, 2, 8, 1, 1),
    "small": UtilitySize(16, 5, 16, 8, 1),
    "paper": UtilitySize(16, 5, 16, 20, 1),
}
PICTURES: Mapping[Scale, UtilitySize] = {
    "smoke": UtilitySize(8, 2, 8, 1, 1),
    "small": UtilitySize(40, 8, 20, 8, 1),
    "paper": UtilitySize(200, 20, 20, 50, 1),
}
# Pictures to train and to test on at each scale; None: all.
SHOWN: Mapping[Scale, tuple[int | None, int | None]] = {
    "smoke": (120, 60),
    "small": (4800, 1000),
    "paper": (None, None),
}


def london(name: str, scale: Scale, means: Means) -> TrainingTask:
    """Forecasting the next half hour of households, each of which is a client."""
    size = LONDON[scale]
    networks: Mapping[str, Network] = {
        LSTM: Lstm(hidden=32, stacked=means.device != "cpu"), TRANSFORMER: SeriesTransformer(width=32, hidden=64),
    }  # fmt: skip
    fit = Sgd(lr=0.1 if name == LSTM else 0.01, momentum=0.9, epochs=EPOCHS, batch=64)
    plan = Federation(rounds=size.rounds, cohort=size.cohort)
    data = Households(households=size.clients, stride=size.stride)
    everyone = Households(households=size.clients + size.others, stride=size.stride)
    return TrainingTask(data, everyone, Natural(), size.clients, networks[name], fit, plan, means)


def people(scale: Scale, means: Means) -> TrainingTask:
    """Telling what people are doing, each of whom is a client; tested on people that nobody trained on."""
    size = PEOPLE[scale]
    fit = Sgd(lr=0.03, momentum=0.9, epochs=EPOCHS, batch=32)
    plan = Federation(rounds=size.rounds)
    split, network = Natural(clients=size.clients + size.others), ActivityCnn(standardise=True)
    return TrainingTask(Activity(), Activity(), split, size.clients, network, fit, plan, means)


def pictures(name: str, scale: Scale, means: Means) -> TrainingTask:
    """CIFAR-10 among clients with few classes each, with smaller networks below paper scale."""
    size, (train, test) = PICTURES[scale], SHOWN[scale]
    whole = scale == "paper"
    blocks = (6, 12, 24, 16) if whole else (2, 2, 2)
    networks: Mapping[str, Network] = {
        MOBILENET: MobileNetV2(width=1.0 if whole else 0.25, standardise=True, norm="group"),
        DENSENET: DenseNet121(growth=32 if whole else 8, blocks=blocks, standardise=True, norm="group"),
    }
    fit = Sgd(lr=0.02, momentum=0.9, epochs=EPOCHS, batch=32)
    plan = Federation(rounds=size.rounds, cohort=size.cohort)
    data = Cifar10(train=train, test=test)
    split = Dirichlet(clients=size.clients + size.others, alpha=0.5, least=8)
    return TrainingTask(data, data, split, size.clients, networks[name], fit, plan, means)
