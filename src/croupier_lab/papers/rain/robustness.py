"""RAIN's figures on accuracy and robustness (3, 4 and 5), run again in the clear.

The paper's figures are pictures without numbers. What stands beside ours was read from the text around them.
`croupier reproduce rain/figure3` (to `rain/figure5`) runs them; `malicious_shares` (Figure 6) and `server_rate` take
sizes and settings from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from croupier.audit.poison import Scaling
from croupier.learn.data import Data
from croupier.learn.datasets import Cifar10, Fashion, Mnist
from croupier.privacy.gdp import composed, epsilon_of, mu_of
from croupier_lab.attacks.poisoning import Dpfl
from croupier_lab.papers.rain.baseline_rules import THIRTEEN
from croupier_lab.papers.rain.clear_rounds import TrainingTerms
from croupier_lab.papers.rain.repeated_runs import ROOT, AttackedRun, RunPlace, RunsOverSeeds, cell, shown
from croupier_lab.papers.rain.rules import (
    FEDAVG,
    HIDDEN,
    LAMBDA,
    LOUD,
    PRINTED,
    ROOT_ONLY,
    SIGNED,
    SIGNSGD,
    UNGATED,
    ClearRule,
)
from croupier_lab.papers.shared.figure import Figure, Means, Scale

Watch = Callable[[str], None]
PAPER = "RAIN (2026)"
CLIP, DELTA = 1.0, 1e-5
EPSILONS = (1.0, 2.0, 5.0, 10.0, 100.0)
# The epsilon at which the paper gives its best accuracy with noise.
USUAL = 10.0


@dataclass(frozen=True)
class RobustnessSize:
    """How much of everything a scale takes; `shares` are those of malicious clients in Figure 6, `says` prints it."""

    clients: int
    hidden: tuple[int, ...]
    train: int | None
    test: int | None
    terms: TrainingTerms
    shares: tuple[float, ...]
    says: str


SIZES: Mapping[Scale, RobustnessSize] = {
    "smoke": RobustnessSize(
        20, (16,), 4000, 1000, TrainingTerms(rounds=20, batch=32, every=5), (0.5, 0.9),
        "smoke: 20 clients, MLP 784-16-10, 4,000 records, 20 rounds, batch 32",
    ),
    "small": RobustnessSize(
        30, (32,), 20_000, 4000, TrainingTerms(rounds=80, batch=32, every=20), (0.1, 0.3, 0.5, 0.7, 0.9),
        "small: 30 clients, MLP 784-32-10, 20,000 records, 80 rounds, batch 32",
    ),
    "paper": RobustnessSize(
        100, (128,), None, None, TrainingTerms(rounds=500, batch=64, every=125),
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), "paper: 100 clients, MLP 784-128-10, 500 rounds, batch 64",
    ),
}  # fmt: skip
SEEDS: Mapping[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
READ = "the paper's figures print no numbers: what is given as the paper's was read from its text"
SUBSTITUTED = (
    READ,
    f"lambda = {LAMBDA}, the artifact's default: the paper gives none",
    f"root set of {ROOT} records that nobody else trains on; the paper does not say how large its is",
    f"server rates {FEDAVG.rate:g} (means of gradients) and {SIGNED:g} (means of signs; {LOUD:g} with noise, which did "
    "best for RAIN): the paper gives none",
    "a perceptron (d = 101,770 at paper scale) for the paper's networks; one minibatch gradient a client and round",
    "IID clients, as Section VII says; Section VI says q = 0.5, which rain/figure6-skewed runs",
    "rules that assume a number of malicious clients are told the true one, as far as they allow",
    *(size.says for size in SIZES.values()),
)
NOISE = (
    f"the paper's epsilon holds for one coordinate and one round: sigma = 4 C / epsilon with C = {CLIP:g}, the least "
    "that its Lemma 1 can mean; the local epsilon of a client over all rounds is given beside it"
)
QUIET = (
    "no local noise unless said: the paper names no epsilon for this figure; as printed, RAIN counts zeros as positive"
)


def noised(terms: TrainingTerms, epsilon: float = USUAL) -> TrainingTerms:
    """The same terms with the noise that the paper's epsilon asks for."""
    return replace(terms, clip=CLIP, sigma=4 * CLIP / epsilon)


def datum(name: str, scale: Scale) -> Data:
    """A dataset at a scale."""
    size = SIZES[scale]
    kinds: Mapping[str, type[Data]] = {"MNIST": Mnist, "Fashion-MNIST": Fashion, "CIFAR-10": Cifar10}
    return kinds[name].parse({"use": kinds[name].use, "train": size.train, "test": size.test})


def place(
    name: str, scale: Scale, means: Means, seeds: Sequence[int], watch: Watch, skew: float | None = None
) -> RunsOverSeeds:
    """Where a dataset's runs are trained, over seeds."""
    size = SIZES[scale]
    there = RunPlace(datum(name, scale), size.clients, size.hidden, means, tuple(seeds), skew)
    return RunsOverSeeds(there, lambda said: watch(f"{name}, {said}"))


def local_epsilon(sigma: float, rounds: int) -> float:
    """The epsilon of a client's updates of all rounds together, any two updates being neighbours."""
    return epsilon_of(composed([mu_of(CLIP, sigma)] * rounds), DELTA)


def _figure3(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    rows = []
    for name in ("MNIST", "Fashion-MNIST"):
        trained = place(name, scale, means, seeds, watch)
        planned = [AttackedRun(rule, SIZES[scale].terms) for rule in (PRINTED, HIDDEN, FEDAVG, SIGNSGD)]
        trained.ahead(planned)
        for attacked in planned:
            rule, done = attacked.rule, trained(attacked)
            marks = [number for number, _ in done[0].curve][1:]
            along = [cell([one.curve[at][1] for one in done]) for at in range(1, 1 + len(marks))]
            rows.append(
                {
                    "data": name, "rule": rule.name, "paper": "like FedAvg" if "RAIN" in rule.name else "-",
                    "rounds": ", ".join(str(mark) for mark in marks), "accuracy": ", ".join(map(shown, along)),
                    "_cells": along, "_rounds": marks,
                }
            )  # fmt: skip
            if rule is SIGNSGD:
                rows[-1]["paper"] = "much slower than FedAvg and RAIN"
    return rows


def _says3(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for data in dict.fromkeys(row["data"] for row in rows):
        end = {row["rule"]: 100 * row["_cells"][-1]["accuracy"] for row in rows if row["data"] == data}
        half = {row["rule"]: 100 * row["_cells"][0]["accuracy"] for row in rows if row["data"] == data}
        gap = end["RAIN as printed"] - end["FedAvg"]
        said.append(
            f"{data}: RAIN as printed ends {gap:+.1f} points from FedAvg (the paper: like it). SignSGD is "
            f"{half['SignSGD'] - half['RAIN as printed']:+.1f} points from RAIN after a quarter of the rounds and "
            f"{end['SignSGD'] - end['RAIN as printed']:+.1f} at the end (the paper: much slower, and worse)."
        )
    return said


def _figure4(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    rows, attack = [], Scaling()
    epsilons = (5.0, USUAL) if scale == "smoke" else EPSILONS
    trained, quiet = place("MNIST", scale, means, seeds, watch), SIZES[scale].terms
    cases = [
        (rule, epsilon, noised(quiet, epsilon) if epsilon else quiet)
        for rule in (PRINTED, UNGATED, HIDDEN)
        for epsilon in (*epsilons, None)
    ]
    trained.ahead(AttackedRun(rule, terms, attack, share) for rule, _, terms in cases for share in (0.0, 0.2))
    for rule, epsilon, terms in cases:
        rows.append(_traded(trained, rule, terms, attack) | {"_epsilon": epsilon})
    return rows


def _traded(trained: RunsOverSeeds, rule: ClearRule, terms: TrainingTerms, attack: Scaling) -> dict[str, Any]:
    alone, beset = trained(AttackedRun(rule, terms)), trained(AttackedRun(rule, terms, attack, 0.2))
    quiet, found = cell([one.accuracy for one in alone]), cell([one.accuracy for one in beset])
    success = cell([1.0 if one.success is None else one.success for one in beset])
    epsilon = 4 * CLIP / terms.sigma if terms.sigma else None
    printed = {10.0: "87.6", 5.0: "over 70; success below 40", 2.0: "over 70; success below 40"}
    return {
        "rule": rule.name, "epsilon_a_coordinate": epsilon, "sigma": terms.sigma,
        "local_epsilon": round(local_epsilon(terms.sigma, terms.rounds), 1) if terms.sigma else None,
        "paper": printed.get(epsilon or 0.0, "-"), "accuracy": shown(quiet), "under_backdoor": shown(found),
        "backdoor_success": shown(success), "idle_rounds": sum(one.idle for one in alone) / len(alone),
        "_quiet": quiet, "_beset": found, "_success": success,
    }  # fmt: skip


def _says4(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for rule in dict.fromkeys(row["rule"] for row in rows):
        own = {row["_epsilon"]: row for row in rows if row["rule"] == rule}
        if USUAL in own:
            got = 100 * own[USUAL]["_quiet"]["accuracy"]
            said.append(
                f"{rule}: {got:.1f} % at epsilon = 10 a coordinate (the paper: 87.6 %), which is a local epsilon of "
                f"{own[USUAL]['local_epsilon']:,.0f} at delta = {DELTA:g} over all rounds."
            )
        tight = [row for epsilon, row in own.items() if epsilon is not None and epsilon <= 5]
        kept = [r for r in tight if r["_beset"]["accuracy"] > 0.7 and r["_success"]["accuracy"] < 0.4]
        said.append(
            f"{rule}: over 70 % accuracy with backdoor success below 40 % at epsilon up to 5: {len(kept)} of "
            f"{len(tight)} settings."
        )
    return said


def _figure5(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[dict[str, Any]]:
    names = {"smoke": ("MNIST",), "small": ("MNIST",), "paper": ("MNIST", "Fashion-MNIST", "CIFAR-10")}[scale]
    terms = replace(SIZES[scale].terms, every=SIZES[scale].terms.rounds)
    private = replace(noised(terms), shuffled=True)
    rows = []
    for name in names:
        trained = place(name, scale, means, seeds, watch)
        rules = (*THIRTEEN, PRINTED, UNGATED, HIDDEN, ROOT_ONLY)
        trained.ahead(AttackedRun(rule, one, Dpfl(), 0.2) for rule in rules for one in (terms, private))
        for rule in rules:
            before, after = (trained(AttackedRun(rule, one, Dpfl(), 0.2)) for one in (terms, private))
            plain, hidden = (cell([one.accuracy for one in done]) for done in (before, after))
            rows.append(
                {
                    "data": name, "rule": rule.name, "paper_before": FIVE.get(rule.name, ("-", "-"))[0],
                    "before": shown(plain), "paper_after": FIVE.get(rule.name, ("-", "-"))[1],
                    "shuffle_dp": shown(hidden), "idle_rounds": sum(one.idle for one in after) / len(after),
                    "_before": plain, "_after": hidden,
                }
            )  # fmt: skip
    return rows


# What the paper's text says of Figure 5: accuracy before and behind Shuffle-DP.
FIVE = {
    "FLAME": ("around 90", "below 45"), "FLOD": ("around 90", "below 45"), "FLTrust": ("-", "below 60"),
    "FoolsGold": ("-", "below 60"),
}  # fmt: skip


def _says5(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    said = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = {row["rule"]: row for row in rows if row["data"] == data}
        after = {name: 100 * row["_after"]["accuracy"] for name, row in own.items()}
        limits = {"FLAME": 45, "FLOD": 45, "FLTrust": 60, "FoolsGold": 60}
        held = ", ".join(
            f"{name} below {limit} %: {'yes' if after[name] < limit else 'no'}, {after[name]:.1f} %"
            for name, limit in limits.items()
        )
        best = max((name for name in after if "RAIN" not in name and name != ROOT_ONLY.name), key=after.__getitem__)
        said.append(f"{data}, behind noise and a shuffle: {held}.")
        said.append(
            f"{data}, behind noise and a shuffle: RAIN as printed has {after[PRINTED.name]:.1f} %, our form "
            f"{after[HIDDEN.name]:.1f} % (without the half gate {after[UNGATED.name]:.1f} %), the best baseline "
            f"({best}) {after[best]:.1f} %, the root set alone, which needs no noise, {after[ROOT_ONLY.name]:.1f} %."
        )
    return said


def _figures() -> Iterator[Figure]:
    yield Figure(
        "rain/figure3", f"{PAPER}, Figure 3", "convergence without attack and noise",
        "Accuracies in per cent after so many rounds, with 95 % intervals over seeds.", _figure3, SEEDS,
        (*SUBSTITUTED, QUIET), _says3,
    )  # fmt: skip
    yield Figure(
        "rain/figure4", f"{PAPER}, Figure 4", "epsilon against accuracy and the success of a backdoor, 20 % malicious",
        "In per cent, with 95 % intervals over seeds: accuracy without attack, under a scaled backdoor, and the share "
        "of triggered test records of other classes that are taken for the target.", _figure4, SEEDS,
        (*SUBSTITUTED, NOISE, "a scaled backdoor (4 x 4 pixels, half of the records, n-fold) for 'attack success'"),
        _says4,
    )  # fmt: skip
    yield Figure(
        "rain/figure5", f"{PAPER}, Figure 5", "thirteen rules under Attack-DPFL at 20 %, before and behind Shuffle-DP",
        "Accuracies in per cent, with 95 % intervals over seeds: with updates as they are and named, and with noise at "
        "epsilon = 10 a coordinate and slots that change owners in every round.", _figure5, SEEDS,
        (*SUBSTITUTED, NOISE, "Attack-DPFL scales label-flipped updates: the paper does not name the poisoning behind"),
        _says5,
    )  # fmt: skip


FIGURES = tuple(_figures())
