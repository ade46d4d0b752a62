"""IntraShuffler's ways to train: how much noise, how rows are weighed, how the server steps; each as a pipeline.

All tables of utility, which say how well models learn in spite of noise, train through these, so that "equal noise" is
the same value everywhere. `utility`, `utility_table`, `same_model` and `recombination` use them; `attack_settings`,
`attack_figures` and `cost` take the tiers and other constants from here. An arm is one way to train that a table
compares. Two smaller steps of the server are called `quiet`: one that a rule fixes, and one that `calm` computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from croupier.aggregate.mean import Mean
from croupier.aggregate.step import Average, Step
from croupier.encode.floats import Floats
from croupier.learn.fit import Fit
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.relay import Relay
from croupier.privacy.gdp import epsilon_of, mu_of, sigma_for
from croupier.privacy.local import NoNoise
from croupier.privacy.tiers import Tiers
from croupier.release.bucketed import Buckets
from croupier.release.rows import Rows
from croupier_lab.papers.shared.trainings import PublicTask

# How much noise: none, as much as the paper's epsilons need ("stated"), or so much that a noised update has a given
# cosine with the clean one on average.
Noise = Literal["none", "stated", "cosine"]
Weights = Literal["equal", "tier", "bucket"]
By = Literal["variance", "epsilon"]
# The epsilons of the tiers, delta, and the fewest members of a bucket.
TIERS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SMALLEST = 8
# The cosine of noised with clean updates that the paper's Table 1 prints, without denoising.
COSINE = 0.12
PROXIMAL = 0.01


@dataclass(frozen=True)
class ServerRule:
    """An aggregator of the paper's tables: what it changes in local training, and how the server steps.

    `rate` is the server's usual step. `quiet` is a smaller one for noise that drowns the updates; where it is None,
    `calm` computes it from public numbers.
    """

    name: str
    step: str = "average"
    rate: float = 1.0
    quiet: float | None = None
    proximal: float = 0.0

    def fit(self, fit: Fit) -> Fit:
        """Local training under this rule."""
        return fit.model_copy(update={"proximal": self.proximal}) if self.proximal else fit


FEDAVG, FEDPROX = ServerRule("FedAvg"), ServerRule("FedProx", proximal=PROXIMAL)
ADAM, YOGI, ADAGRAD = (
    ServerRule(f"FedOpt: {name}", step, 0.01, 0.001)
    for name, step in (("FedAdam", "adam"), ("FedYogi", "yogi"), ("FedAdagrad", "adagrad"))
)
RULES = (FEDAVG, FEDPROX, ADAM, YOGI, ADAGRAD)


@dataclass(frozen=True)
class NoiseArm:
    """One way to train: noise, weights of rows, and whether the server takes a smaller step (`quiet`)."""

    noise: Noise = "none"
    weights: Weights = "equal"
    by: By = "variance"
    quiet: bool = False
    cosine: float = COSINE

    @property
    def loudness(self) -> str:
        """The noise in words."""
        return {"none": "none", "stated": "stated", "cosine": f"cosine {self.cosine:g}"}[self.noise]

    @property
    def weighed(self) -> str:
        """The weights in words."""
        words = {"variance": "1/variance", "epsilon": "epsilon"}[self.by]
        return {"equal": "equal", "tier": f"{words} of the tier", "bucket": f"{words} of the bucket"}[self.weights]

    @property
    def serves(self) -> str:
        """The protocols of the paper's tables that train exactly as this arm: one training stands for all of them."""
        if self.noise == "none":
            return "no DP"
        return {
            "equal": "Plain FL-DP, Shuffle-DP, IntraShuffler, bucket sums, no bucket",
            "tier": "Plain FL-DP",
            "bucket": "Shuffle-DP in buckets, IntraShuffler, bucket sums",
        }[self.weights]


def sigmas(arm: NoiseArm, known: PublicTask) -> tuple[float, ...]:
    """The deviation of the noise on a coordinate, tier by tier.

    "stated" takes that of the analytic Gaussian mechanism with sensitivity 2 clip. "cosine" multiplies it by one factor
    for all tiers, with which a noised update and a clean one as long as the clip have the cosine `arm.cosine` on
    average.
    """
    if arm.noise == "none":
        return ()
    stated = tuple(sigma_for(one, DELTA, known.clip) for one in TIERS)
    factor = 1.0 if arm.noise == "stated" else _factor(stated, arm.cosine, known)
    return tuple(factor * one for one in stated)


def epsilons(arm: NoiseArm, known: PublicTask) -> tuple[float, ...]:
    """The true epsilon of one participation in each tier."""
    if arm.noise == "stated":
        return TIERS
    return tuple(epsilon_of(mu_of(known.clip, one), DELTA) for one in sigmas(arm, known))


def cosine(sigma: float, known: PublicTask) -> float:
    """The cosine to expect between an update as long as the clip and the same with noise."""
    return 1 / math.sqrt(1 + known.size * (sigma / known.clip) ** 2)


def _factor(stated: Sequence[float], wanted: float, known: PublicTask) -> float:
    low, high = 0.0, 1.0
    while fmean(cosine(high * one, known) for one in stated) > wanted:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        far = fmean(cosine(middle * one, known) for one in stated) < wanted
        low, high = (low, middle) if far else (middle, high)
    return high


def privacy(arm: NoiseArm, known: PublicTask) -> NoNoise | Tiers:
    """The clients' mechanism. Clients are dealt tiers by their names, so a client has the same tier at any noise."""
    if arm.noise == "none":
        return NoNoise()
    return Tiers(clip=known.clip, delta=DELTA, tiers=epsilons(arm, known))


def calm(arm: NoiseArm, known: PublicTask, cohort: int) -> float:
    """The smaller step of a quiet server, from public numbers.

    It is clip² over the sum of clip² and the mean noise's expected squared length. That bounds the share of the signal,
    which is at most as long as the clip. Weights by inverse variance make a mean's noise as small as it can be.
    """
    found = [one**2 for one in sigmas(arm, known)]
    mean = fmean(found) if arm.weights == "equal" else 1 / fmean(1 / one for one in found)
    return known.clip**2 / (known.clip**2 + known.size * mean / cohort)


def rate(arm: NoiseArm, rule: ServerRule, known: PublicTask, cohort: int) -> float:
    """The size of the server's step, usual or quiet."""
    if not arm.quiet:
        return rule.rate
    return rule.quiet if rule.quiet is not None else calm(arm, known, cohort)


def step(arm: NoiseArm, rule: ServerRule, known: PublicTask, cohort: int) -> Step:
    """How the server steps."""
    if rule.step == "average" and not arm.quiet:
        return Average()
    use = "damped" if rule.step == "average" else rule.step
    return Step.parse({"use": use, "lr": rate(arm, rule, known, cohort)})


def pipeline(arm: NoiseArm, rule: ServerRule, known: PublicTask, cohort: int) -> Pipeline:
    """The arm in its plainest form: rows, or buckets where rows are weighed by their bucket."""
    mean = Mean(step=step(arm, rule, known, cohort), by="records" if arm.weights == "equal" else arm.by)
    encode = Floats(form="delta", weights="uniform")
    if arm.weights == "bucket":
        release = Buckets(smallest=min(SMALLEST, cohort))
        return Pipeline(privacy=privacy(arm, known), encode=encode, release=release, aggregate=mean, place=Relay())
    return Pipeline(privacy=privacy(arm, known), encode=encode, release=Rows(), aggregate=mean, place=Direct())
