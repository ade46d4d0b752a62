"""RAIN's Figure 6: accuracy against the share of malicious clients, with the attack that the paper leaves out.

The share goes up to 90 per cent. Beside the paper's attacks stand copies of the reference, which lie nearest to it
and therefore pass RAIN's filter. `croupier reproduce rain/figure6` and `rain/figure6-skewed` run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from croupier.audit.poison import LabelFlip, Poison
from croupier_lab.attacks.poisoning import Copy, Dpfl
from croupier_lab.attacks.rule_poisoning import KrumAttack, TrimAttack
from croupier_lab.drawing.lines import LineStyle, lines
from croupier_lab.papers.rain.baseline_rules import FLAME, FLOD, FLTRUST, KRUM, MEDIAN
from croupier_lab.papers.rain.clear_rounds import TrainingTerms
from croupier_lab.papers.rain.repeated_runs import AttackedRun, RunsOverSeeds, cell, shown
from croupier_lab.papers.rain.robustness import PAPER, QUIET, SEEDS, SIZES, SUBSTITUTED, USUAL, noised, place
from croupier_lab.papers.rain.rules import (
    EQUAL,
    FEDAVG,
    GATED,
    HIDDEN,
    LEVELS,
    PLUS,
    PRINTED,
    ROOT_ONLY,
    SIGNSGD,
    UNGATED,
    ClearRule,
)
from croupier_lab.papers.shared.figure import Figure, Means, Scale

ADAPTIVE = "copy of the reference"
# This attack imitates noised updates, so honest clients add noise here.
NOISY = "Attack-DPFL, noise"
ATTACKS: Mapping[str, Poison] = {
    "Krum attack": KrumAttack(),
    "Trim attack": TrimAttack(),
    "label flip": LabelFlip(),
    NOISY: Dpfl(),
    ADAPTIVE: Copy(),
}
RULES: Mapping[Scale, tuple[ClearRule, ...]] = {
    "smoke": (PRINTED, EQUAL, HIDDEN, FLTRUST, KRUM, MEDIAN, FLOD),
    "small": (PRINTED, UNGATED, PLUS, EQUAL, HIDDEN, FLTRUST, KRUM, MEDIAN, FLOD),
    "paper": (
        PRINTED, GATED, UNGATED, PLUS, EQUAL, LEVELS, HIDDEN, FLTRUST, KRUM, MEDIAN, FLOD, FLAME, SIGNSGD, FEDAVG,
    ),
}  # fmt: skip
# The rules that the paper draws beside its own; FLGuard's rule is FLAME's.
THEIRS = {KRUM.name, MEDIAN.name, FLOD.name, FLAME.name}
# From here on an accuracy counts as the paper's "around 80 %".
AROUND = 0.75


def _rows(
    scale: Scale, means: Means, seeds: Sequence[int], watch: Callable[[str], None], skew: float | None = None
) -> list[dict[str, Any]]:
    trained = place("MNIST", scale, means, seeds, watch, skew)
    lines = [
        (attack, rule)
        for attack in ATTACKS
        for rule in RULES[scale]
        if rule is not HIDDEN or ATTACKS[attack].sees_reference
    ] + [("-", ROOT_ONLY)]
    trained.ahead(attacked for line in lines for attacked in _planned(scale, *line))
    return [_row(trained, attack, rule, _planned(scale, attack, rule)) for attack, rule in lines]


def _planned(scale: Scale, attack: str, rule: ClearRule) -> list[AttackedRun]:
    quiet = SIZES[scale].terms
    terms = noised(quiet) if attack == NOISY else quiet
    return [AttackedRun(rule, terms, ATTACKS.get(attack), share) for share in (0.0, *SIZES[scale].shares)]


def _row(trained: RunsOverSeeds, attack: str, rule: ClearRule, planned: Sequence[AttackedRun]) -> dict[str, Any]:
    cells = []
    for attacked in planned:
        done = trained(attacked)
        idle = sum(one.idle for one in done) / len(done)
        cells.append({"share": attacked.share, **cell([one.accuracy for one in done]), "idle": idle})
    printed = "around 80 at 90 %" if rule is PRINTED and attack != ADAPTIVE else "-"
    printed = "below 20 beyond 50 %" if rule.name in THEIRS and attack != ADAPTIVE else printed
    return {
        "attack": attack, "rule": rule.name, "paper": printed,
        **{f"{one['share']:.0%}": shown(one) for one in cells}, "_cells": cells,
    }  # fmt: skip


def says(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on which of the paper's claims hold here."""
    root = next(row["_cells"][0]["accuracy"] for row in rows if row["rule"] == ROOT_ONLY.name)
    said = [_kept(row) for row in rows if row["rule"] == PRINTED.name]
    beyond = [
        one["accuracy"]
        for row in rows
        if row["rule"] in THEIRS and row["attack"] != ADAPTIVE
        for one in row["_cells"]
        if one["share"] > 0.5
    ]
    low = sum(value < 0.2 for value in beyond)
    said.append(f"Beyond 50 % malicious, {low} of {len(beyond)} cells of the paper's baselines are below 20 %.")
    for name in dict.fromkeys(row["rule"] for row in rows if row["rule"] != ROOT_ONLY.name):
        cells = [one for row in rows if row["rule"] == name for one in row["_cells"] if one["share"]]
        below = sum(one["accuracy"] < root for one in cells)
        said.append(f"{name} ends below the root-only model ({100 * root:.1f} %) in {below} of {len(cells)} cells.")
    return said


def _kept(row: Mapping[str, Any]) -> str:
    worst = row["_cells"][-1]
    holds = "yes" if worst["accuracy"] >= AROUND else "no"
    about = " (not in the paper)" if row["attack"] == ADAPTIVE else ""
    return (
        f"{row['rule']} keeps around 80 % with {100 * worst['share']:.0f} % malicious, {row['attack']}{about}: "
        f"{holds}, {100 * worst['accuracy']:.1f} %."
    )


def _drawn(rows: Sequence[Mapping[str, Any]]) -> str:
    """The picture: a panel for each attack, a line for each rule, and the server's own model across all of them."""
    panels: dict[str, dict[str, list[tuple[str, dict[str, float]]]]] = {}
    for row in rows:
        if row["rule"] != ROOT_ONLY.name and row["attack"] != "-":
            panels.setdefault(row["attack"], {})[row["rule"]] = [
                (f"{one['share']:g}", {"rate": one["accuracy"], "low": one["low"], "high": one["high"]})
                for one in row["_cells"]
            ]
    alone = [row["_cells"][0]["accuracy"] for row in rows if row["rule"] == ROOT_ONLY.name]
    style = LineStyle(priors=False, numbers=True, level=(ROOT_ONLY.name, alone[0]) if alone else None)
    return lines(panels, "Accuracy on MNIST against the share of malicious clients", "malicious clients", style)


READING = (
    "Accuracies in per cent on MNIST by share of malicious clients, with 95 % intervals over seeds. A hidden reference "
    "differs from a public one under the copying attack only, where attackers have the last round's. 'Root only' is "
    "the server's own model, without clients: the zero of the figure."
)
MORE = (
    "Krum and Trim attacks know every honest update; label flipping is y -> 9 - y; the adaptive attack copies the "
    "reference's signs but for the tenth of coordinates where its honest update is largest",
    f"Attack-DPFL stands against noise at epsilon = {USUAL:g} a coordinate (sigma = "
    f"{noised(TrainingTerms()).sigma:g}, clip 1)",
    "0/1 and half gate: the threshold is also below d/2 - 1.5 sqrt(d), MAD has a floor, root batches are drawn anew, "
    "and coordinates that are exactly 0 get a sign by a coin, unless the name says otherwise",
)
FIGURES = (
    Figure(
        "rain/figure6", f"{PAPER}, Figure 6", "accuracy by the share of malicious clients", READING, _rows, SEEDS,
        (*SUBSTITUTED, QUIET, *MORE), says, _drawn,
    ),
    Figure(
        "rain/figure6-skewed", f"{PAPER}, Figure 6", "the same with clients skewed by classes, q = 0.5", READING,
        partial(_rows, skew=0.5), SEEDS, (*SUBSTITUTED, QUIET, *MORE, "clients skewed by q = 0.5"), says, _drawn,
    ),
)  # fmt: skip
