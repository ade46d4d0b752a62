"""Source inference by defence, as tables of papers have it: rates, leaks, controls, and a sentence for each.

`papers.shared.comparison` makes the tables of `croupier reproduce` of it, and `bench.leakage.false_alarms` takes its
controls. An audit judges by `croupier.audit.verdict` instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

from croupier.audit import membership
from croupier.audit.attacks import source
from croupier.audit.verdict import COARSE_TO_FINE, LEAST_RUNS
from croupier.core.intervals import LEVEL, Rate
from croupier.statement import explain
from croupier_lab.source_inference.experiment import Defence
from croupier_lab.source_inference.outcome import SourceOutcome

# What tables of papers call the defences that an audit names otherwise.
_ALSO = {"model shuffle": "shuffle-model", "layer shuffle": "shuffle-layer", "parameter shuffle": "shuffle-parameter"}


def controlled(compared: Sequence[Defence]) -> list[Defence]:
    """The same defences, with every attack mounted on the undefended one's first round too: its positive control.

    Attacks on counts of ones find none there: their control is that they are above 1/n where they are mounted.
    """
    first, *others = compared
    known = {*first.attacks, *source.ON_COUNTS}
    extra = [name for other in others for name in other.attacks if name not in known]
    return [replace(first, control=tuple(dict.fromkeys(extra))), *others]


def rows(compared: Sequence[Defence], outcomes: Sequence[SourceOutcome], comparisons: int = 1) -> list[dict[str, Any]]:
    """One object for each defence. Rates are means over rounds and runs.

    `leak_together` is an interval that holds with 95 % for so many comparisons at once (Bonferroni). A defence leaks,
    too, where a finer shuffle of the same updates does.
    """
    control = outcomes[0]
    found = [_row(defence, outcome, control, comparisons) for defence, outcome in zip(compared, outcomes, strict=True)]
    by_name = {_ALSO.get(row["defence"], row["defence"]): row["verdict"] for row in found}
    for coarse, fine in reversed(list(pairwise(COARSE_TO_FINE))):
        if coarse in by_name and by_name.get(fine, {}).get("leaks") == "yes" and by_name[coarse]["leaks"] != "yes":
            by_name[coarse] |= {
                "leaks": "yes",
                "sentence": f"Leaks, because {fine!r} does: who sees these updates can shuffle them further and attack "
                f"that. By itself: {by_name[coarse]['sentence']}",
            }
    return found


def _row(defence: Defence, outcome: SourceOutcome, control: SourceOutcome, comparisons: int) -> dict[str, Any]:
    attacks = {name: _attack(name, outcome, control, comparisons) for name in ("prior", *defence.attacks)}
    last = outcome.accuracy[max(outcome.accuracy)]
    return {
        "defence": defence.name,
        "server_learns": explain(defence.pipeline).learns["server"],
        "changes": {name: part.plain() for name, part in defence.changes},
        outcome.measure: last.rate,
        f"{outcome.measure}_low": last.low,
        f"{outcome.measure}_high": last.high,
        f"{outcome.measure}_by_round": _by_round(outcome.accuracy),
        "bytes_per_client": outcome.bytes_per_client,
        "attacks": attacks,
        "membership": {name: _member(name, outcome) for name in defence.membership},
        "verdict": verdict(outcome, [name for name in defence.attacks if attacks[name]["scored"]], defence.attacks[-1]),
    }


def _attack(name: str, outcome: SourceOutcome, control: SourceOutcome, comparisons: int) -> dict[str, Any]:
    if name in outcome.unsuited:
        return {"title": source.TITLES[name], "not_run": outcome.unsuited[name], "scored": False}
    proof = control.overall.get(name, outcome.overall[name])
    passed = name == "prior" or proof.low > control.chance
    number, best = outcome.best(name)
    return {
        "title": source.TITLES[name],
        **({"carried": carried(outcome.carried)} if name == "prior" else {}),
        **asdict(outcome.overall[name]),
        "prior": outcome.overall["prior"].rate,
        "chance": outcome.chance,
        "leak": asdict(outcome.leak(name)),
        "leak_together": asdict(outcome.leak(name, (1 - LEVEL) / comparisons)),
        "best_round": {"round": number, **asdict(best)},
        "by_round": _by_round(outcome.success[name]),
        "control": {**asdict(proof), "passed": passed},
        "scored": passed,
    }


def carried(runs: Sequence[str]) -> str:
    """What the prior was made of, the commonest first, with the number of runs where they differ."""
    found = Counter(runs).most_common()
    return "; ".join(said if len(found) == 1 else f"{said} ({many} of {len(runs)} runs)" for said, many in found)


def _by_round(rates: Mapping[int, Rate]) -> list[dict[str, Any]]:
    return [{"round": number, **asdict(rate)} for number, rate in rates.items()]


def _member(name: str, outcome: SourceOutcome) -> dict[str, Any]:
    found = outcome.membership[name]
    return {
        "title": membership.TITLES[name],
        **asdict(found.auc),
        "prior": found.prior.rate,
        "chance": 0.5,
        "leak": asdict(found.leak),
        "tpr_at_1_percent_fpr": asdict(found.caught),
    }


def verdict(outcome: SourceOutcome, scored: Sequence[str], first: str) -> dict[str, str]:
    """What the attacks that passed their control found, in a sentence.

    `first` is the attack named in advance, whose interval needs no correction for several comparisons.
    """
    if not scored:
        why = "no attack on it passed its control on undefended updates"
        if set(outcome.gains) <= {"prior"} and first in outcome.unsuited:
            why = f"its attacks were not run: {outcome.unsuited[first]}"
        return {"leaks": "unclear", "sentence": f"Not judged: {why}."}
    if len(outcome.gains[scored[0]]) < LEAST_RUNS:
        said = f"Not judged: {len(outcome.gains[scored[0]])} runs are too few; ask for {LEAST_RUNS} or more."
        return {"leaks": "unclear", "sentence": said}
    others = max(1, len([name for name in scored if name != first]))
    leaks = {name: outcome.leak(name, (1 - LEVEL) / (1 if name == first else others)) for name in scored}

    def points(name: str) -> str:
        leak = leaks[name]
        level = f"{100 * LEVEL:.3g}\u00a0%" + (
            f" for {others} attacks together" if name != first and others > 1 else ""
        )
        return f"{100 * leak.rate:+.1f} points ({100 * leak.low:+.1f} to {100 * leak.high:+.1f}, {level})"

    surest = max(scored, key=lambda name: leaks[name].low)
    if leaks[surest].low > 0:
        rate, prior = outcome.overall[surest].rate, outcome.overall["prior"].rate
        said = (
            f"Leaks whose record it is: an attack names the right client for {rate:.1%} of the records, the same "
            f"adversary without a view for {prior:.1%}. The view adds {points(surest)}."
        )
        return {"leaks": "yes", "sentence": said}
    best = max(scored, key=lambda name: leaks[name].rate)
    most = max(0.0, *(leak.high for leak in leaks.values()))
    said = (
        f"Cannot tell: the best of these attacks changes the adversary's success by {points(best)}, against no view at "
        f"all. They may gain up to {100 * most:.1f} points; other attacks may gain more."
    )
    return {"leaks": "unclear", "sentence": said}
