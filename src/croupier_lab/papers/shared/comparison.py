"""Run a figure's experiments of source inference: attacks under every defence, beside the prior and printed numbers.

Source inference asks which client a record belongs to. The source-inference paper (RNS) compares an attack's success
with 1/n. The rows made here also say what the view adds to the best guess without one (the prior): that is the leak. An
attack is scored only where it passes its control, which for most is to succeed on undefended updates. A cell is one
defence in one setting. `papers.shared.reproduce` calls `compare` for figures that are made of experiments
(`papers.rns.source_inference`), and `cli.reproduce` shows the rows by `pair`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from croupier.audit.bench import Watch
from croupier.audit.setting import Setting
from croupier.engine.local import Local
from croupier_lab.papers.shared.figure import Experiment, Figure, Means, Scale
from croupier_lab.source_inference.experiment import run
from croupier_lab.source_inference.table import controlled, rows


def compare(figure: Figure, scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> dict[str, Any]:
    """Run a figure's experiments: all, the one called `means.only`, or those whose label holds that text."""
    every = [] if figure.experiments is None else figure.experiments(scale)
    exact = [case for case in every if case.label == means.only]
    cases = exact or [case for case in every if means.only in case.label]
    comparisons = sum(len(defence.attacks) for case in every for defence in case.defences)
    done = [_case(case, seeds, means, comparisons, watch) for case in cases]
    return {"comparisons": comparisons, "cases": done, "says": says(done)}


def _case(case: Experiment, seeds: Sequence[int], means: Means, comparisons: int, watch: Watch) -> dict[str, Any]:
    setting = replace(case.setting, folder=means.folder, device=means.device, workers=means.workers)
    outcomes = run(
        setting, controlled(case.defences), seeds, Local(), lambda said: watch(f"{case.label}: {said}"), means.processes
    )
    found = rows(case.defences, outcomes, comparisons)
    for row in found:
        printed = case.printed.get(row["defence"])
        row["printed"] = None if printed is None else {"rate": printed.rate, "where": printed.where}
    return {
        "label": case.label,
        "substitutions": list(case.substitutions),
        "setting": _described(setting),
        "chance": outcomes[0].chance,
        "rows": found,
    }


def _described(setting: Setting) -> dict[str, Any]:
    parts = {
        name: getattr(setting, name).plain() for name in ("data", "split", "model", "fit", "plan", "augment", "noise")
    }
    return parts | {name: getattr(setting, name) for name in ("shadow", "fresh", "records", "suspects", "together")}


def says(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Count in which cells the paper's attack beats 1/n and the prior, and say it in sentences.

    Cells whose attack failed its control count in the number of cells, and in no other. Defences of which only a sum is
    seen, whose names begin with "RNS", are left to a sentence of their own.
    """
    cells = [(case["chance"], *pair(row)) for case in cases for row in case["rows"] if not _sums(row)]
    theirs = [(chance, attack) for chance, attack, _ in cells if attack["scored"]]
    above = [attack for chance, attack in theirs if attack["low"] > chance]
    beats, loses = ([a for a in above if test(a["leak"])] for test in (_gains, _loses))
    said = [
        f"The paper's attack passed its control in {len(theirs)} of {len(cells)} cells, and is above 1/n in "
        f"{len(above)}. Against the prior, the same adversary's best guess without any view, it is above in "
        f"{len(beats)} of these, below in {len(loses)}, and not to be told from it in "
        f"{len(above) - len(beats) - len(loses)}."
    ]
    if loses:
        said.append("Where it is below the prior, success above 1/n is no sign that the view gave anything away.")
    ours = [attack for _, _, attack in cells if attack["scored"] and _gains(attack["leak"])]
    said.append(
        f"The attack that joins prior and view is above the prior in {len(ours)} of {len(cells)} cells (95 % each)."
    )
    return [*said, *_under_sums([row for case in cases for row in case["rows"] if _sums(row)])]


def _under_sums(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on what all attacks on sums gain, scored or not, with intervals that hold together."""
    leaks = {
        (number, name): attack["leak_together"]
        for number, row in enumerate(found)
        for name, attack in row["attacks"].items()
        if name != "prior" and "not_run" not in attack
    }
    if not leaks:
        return []
    above = [leak for leak in leaks.values() if _gains(leak)]
    widest = max((leak["high"] - leak["low"]) / 2 for leak in leaks.values())
    most = max(leak["rate"] for leak in leaks.values())
    return [
        f"Where only a sum is seen (RNS), {len(leaks)} attacks were tried; against the prior {len(above)} gain, the "
        f"best by {100 * most:+.1f} points. Intervals that hold together for all comparisons of this entry reach "
        f"{100 * widest:.1f} points to either side at most."
    ]


def _sums(row: Mapping[str, Any]) -> bool:
    return str(row["defence"]).startswith("RNS")


def _gains(leak: Mapping[str, float]) -> bool:
    return leak["low"] > 0


def _loses(leak: Mapping[str, float]) -> bool:
    return leak["high"] < 0


def pair(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The paper's own attack on a defence, and ours that joins prior and view: the first and the last."""
    names = [name for name in row["attacks"] if name != "prior"]
    return row["attacks"][names[0]], row["attacks"][names[-1]]
