"""Tazza's Figures 10 and 12: rules under attack with a confidentiality defence mounted, and what that defence hides.

Other rules than Tazza's leave updates readable, so the paper puts a confidentiality defence in front of them. Here each
pair is trained under attack on the same task as Tazza itself. What a defence hides is measured apart, by inverting
single uploads on the networks of Table 2. `integrity` makes the rows of both figures of it, and `tradeoff_findings`
their sentences and pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from croupier.engine.local import Local
from croupier.learn.fit import Adam
from croupier_lab.attacks.clustered_training import ClusterOutcome
from croupier_lab.attacks.rules_under_attack import RuleUnderAttack, run
from croupier_lab.papers.shared.figure import Means, Scale
from croupier_lab.papers.shared.trainings import shown
from croupier_lab.papers.tazza import inversion as tazza_confidential
from croupier_lab.papers.tazza.confidentiality_defences import (
    LPIPS,
    MATCHED,
    MIDDLE,
    NOISE,
    NONE,
    PRUNING,
    UNKNOWN,
    Shield,
)
from croupier_lab.papers.tazza.integrity_settings import (
    ECG,
    FEDAVG,
    MIXER,
    MNIST,
    RULES,
    SIZES,
    TAZZA,
    VIT,
    Row,
    attacks,
    colours,
    mark_shown,
    marks,
    pure,
    setting,
)

Watch = Callable[[str], None]
# At most so many records are inverted where that takes a search, which takes as long as a training.
SEARCHED = 10
# The cases of Table 2 by those of the integrity experiments.
CALLED = {MNIST: "MNIST / MLP", MIXER: "CIFAR-10 / Mixer", VIT: "CIFAR-10 / ViT", ECG: "ECG / RNN"}
PERMUTED = {UNKNOWN: "permuted, rule unknown", MATCHED: "permuted, rule matched"}


@dataclass(frozen=True)
class DefendedRun:
    """A rule behind a confidentiality defence, under an attack or under none."""

    attack: str | None
    rule: str
    shield: Shield

    @property
    def defence(self) -> str:
        """The defence's name in a table."""
        return {NONE: "none", **PERMUTED}.get(self.shield, self.shield.label)


def chosen(scale: Scale, means: Means) -> list[str]:
    """The cases of a scale that are asked for."""
    return [case for case in SIZES[scale].cases if means.only in case]


def mounted(case: str, scale: Scale) -> tuple[Shield, ...]:
    """The defences of a case in Figure 10: six at paper scale on MNIST and with the Mixer, elsewhere two."""
    return (*PRUNING, *NOISE) if scale == "paper" and case in (MNIST, MIXER) else MIDDLE


def guarded(scale: Scale) -> tuple[str, ...]:
    """The rules that a defence is mounted on: not Tazza, which has its own."""
    return (FEDAVG, "Median") if scale == "smoke" else tuple(rule for rule in RULES if rule != TAZZA)


def defended_runs(titles: Iterable[str | None], shields: Sequence[Shield], rules: Sequence[str]) -> list[DefendedRun]:
    """The runs of a figure.

    They are every rule without a defence (Tazza permuted), and the given rules behind each defence wherever there is an
    attack.
    """
    told = list(titles)
    plain = [DefendedRun(title, rule, UNKNOWN if rule == TAZZA else NONE) for title in told for rule in RULES]
    return plain + [DefendedRun(title, rule, shield) for title in told if title for shield in shields for rule in rules]


def played(
    case: str, scale: Scale, means: Means, seeds: Sequence[int], watch: Watch, every: Sequence[DefendedRun]
) -> dict[DefendedRun, dict[str, Any]]:
    """How each of these runs ended, over seeds; permuting hides from the server and changes no training."""
    known, attack = setting(case, scale, means), attacks(colours(case))
    plain = known.fit
    assert isinstance(plain, Adam)
    arms = [
        RuleUnderAttack(
            one.rule, RULES[one.rule], attack[one.attack] if one.attack else None,
            f"{one.attack or 'no attack'}, {one.defence}", fit=one.shield.fit(plain),
        )
        for one in every
    ]  # fmt: skip
    done: list[list[ClusterOutcome]] = run(
        known, arms, seeds, Local(), lambda word: watch(f"{case}, {word}"), means.processes
    )  # fmt: skip
    return {one: marks(ended) for one, ended in zip(every, done, strict=True)}


def hidden(
    case: str, scale: Scale, means: Means, seeds: Sequence[int], watch: Watch, shields: Iterable[Shield]
) -> dict[Shield, dict[str, Any]]:
    """What a server inverts of an upload in a case, by defence: the rows of Table 2, with fewer records."""
    wanted = (NONE, *shields, UNKNOWN, MATCHED)
    found = next(one for one in tazza_confidential.CASES[scale] if one.label == CALLED[case])
    targets = found.targets if found.recipe is None else min(found.targets, SEARCHED)
    rows = tazza_confidential.measured(
        [replace(found, shields=wanted, targets=targets)], scale, means, seeds[:1], watch
    )
    return dict(zip(wanted, rows, strict=True))


def row(case: str, one: DefendedRun, found: Mapping[str, Any], seen: Mapping[str, Any], words: str) -> Row:
    """Accuracy and purity of a run beside what its defence hides."""
    if one.attack is None:
        # Without an attack nobody is malicious, and there is nothing to keep apart.
        found = {name: mark for name, mark in found.items() if name not in ("purity", "several")}
    lpips = LPIPS.get((CALLED[case], one.shield.label))
    return {
        "data": case, "attack": one.attack or "no attack", "rule": one.rule, "defence": one.defence, "paper": words,
        "accuracy": mark_shown(found, "received"), "by_clusters": mark_shown(found, "clusters"),
        "paper_lpips": "-" if lpips is None else f"{lpips:.2f}",
        "feature_distance": "-" if seen["_distance"] is None else shown(seen["_distance"]),
        "psnr": "-" if seen["_psnr"] is None else shown(seen["_psnr"], 1),
        "purity": pure(found), "not_alone": mark_shown(found, "several"),
        "clusters_a_round": mark_shown(found, "groups", 1), "_marks": dict(found), "_kind": one.shield.kind,
        "_distance": seen["_distance"], "_psnr": seen["_psnr"], "_eye": seen["_eye"],
    }  # fmt: skip


def shown_and_played(every: Sequence[DefendedRun]) -> list[tuple[DefendedRun, DefendedRun]]:
    """Each run as it is shown, with the run that was trained for it.

    Tazza's runs under attack are shown twice: also for a server that matches weights.
    """
    out = [(one, one) for one in every]
    again = [(replace(one, shield=MATCHED), one) for one in every if one.shield is UNKNOWN and one.attack]
    return out + again


def far(own: Mapping[str, Any]) -> str:
    """A row's distance as text, or its PSNR where there is no perceptual distance."""
    if own["_distance"] is not None:
        return f"{own['_distance']['mean']:.3f}"
    return "unknown" if own["_psnr"] is None else f"{own['_psnr']['mean']:.1f} dB"


def measure_of(own: Mapping[str, Any]) -> str:
    """The measure that `far` gives."""
    return "PSNR" if own["_distance"] is None else "feature distance"


def accuracy(own: Mapping[str, Any]) -> float:
    """A row's mean accuracy, not a number where every run was lost."""
    value = own["_marks"]["received"]["mean"]
    return float("nan") if value is None else float(value)
