"""Which attacks malicious clients mount in an audit, and the rules of averaging that stand beside clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.geometry import MultiKrum, TrimmedMean
from croupier.aggregate.mean import Mean
from croupier.aggregate.median import Median
from croupier.aggregate.reference import FLTrust
from croupier.audit.poison import LabelFlip, NoiseInjection, Poison, Scaling
from croupier.audit.setting import Setting
from croupier.learn.datasets import Cifar10

# What rules that assume a number of liars are told.
SHARE = 0.25
NONE, FLIP, NOISE, TRIGGER, REPLACE = "no attack", "label flip", "noise injection", "backdoor", "model replacement"


def mark_of(setting: Setting, factor: float | None = 1.0) -> Scaling:
    """A backdoor whose mark is red where pictures are known to have colours."""
    ink: float | tuple[float, ...] = (1.0, 0.0, 0.0) if isinstance(setting.data, Cifar10) else 1.0
    return Scaling(corner="upper-left", value=ink, factor=factor)


def attacks_of(setting: Setting, shape: Sequence[int]) -> dict[str, tuple[Poison | None, str]]:
    """The attacks on records of this shape, each with what malicious clients do."""
    drawn = "a square of 4 x 4 pixels in the upper left corner"
    if len(shape) < 3:
        drawn = "a 1 in the first 4 numbers of the first 4 steps" if len(shape) == 2 else "a 1 in every fourth feature"
    square = f"half of their records get {drawn} and the class 0"
    return {
        NONE: (None, "everybody is honest"),
        FLIP: (LabelFlip(), "every label y of theirs becomes M - 1 - y"),
        NOISE: (NoiseInjection(scale=0.25), "normal noise of deviation 0.25 is added to every weight they send"),
        TRIGGER: (mark_of(setting), f"{square}; what training gives is sent as it is"),
        REPLACE: (
            mark_of(setting, None),
            f"{square}; what training changed is sent as many times over as there are clients in a round",
        ),
    }


def rules_of(own: Aggregator, cohort: int) -> dict[str, Aggregator]:
    """Clusters of one's own first, then the baselines that fit so many clients, told a quarter of liars."""
    few, unfit = liars(cohort), unfit_of(cohort)
    baselines: dict[str, Aggregator] = {
        "FedAvg": Mean(), "Median": Median(), "Trimmed Mean": TrimmedMean(b=few), "Multi-Krum": MultiKrum(f=few),
        "FLTrust": FLTrust(),
    }  # fmt: skip
    return {"Clusters": own} | {name: part for name, part in baselines.items() if name not in unfit}


def liars(cohort: int) -> int:
    """How many of those invited the baselines are told to be lying."""
    return max(1, math.ceil(SHARE * cohort))


def unfit_of(cohort: int) -> dict[str, str]:
    """Baselines that need more clients a round, each with how many; the others run."""
    few = liars(cohort)
    least = {"Trimmed Mean": 2 * few + 1, "Multi-Krum": 2 * few + 3}
    return {
        name: f"told of {few} liars it needs {many} clients a round, and {cohort} are invited"
        for name, many in least.items()
        if cohort < many
    }
