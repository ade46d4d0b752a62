"""From the runs of a question to findings: rates with intervals, and one of four statuses for each.

A finding is a leak, none found, proved, or not run; which it is follows from intervals, from the attack's control and
from what the protocol is proved to hide. `audit.described` and `audit.recorded.audited` call `asked` for every question
and protocol, and `audit.judgement` makes sentences of the result. In the laboratory `bench/leakage/false_alarms`
measures how often `cell` is wrong about protocols that leak nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Literal

from croupier.audit.harness import EVERYBODY, ArmAnswers
from croupier.audit.question import Question, QuestionRun, Score
from croupier.core.intervals import LEVEL, Rate, gain, over_runs, share

Status = Literal["leak", "none-found", "proved", "not-run"]
CONTRADICTION = "a contradiction to be looked at, a chance finding or a fault, for the protocol is proved to hide this"
# With fewer runs an interval says next to nothing.
LEAST_RUNS = 4
TOO_FEW = "{} runs are too few to judge by; ask for {} or more"
# A gain of this share of cases is much; where it cannot be ruled out, a finding is "unsure".
MUCH = 0.2
# Each of these servers could shuffle its view into that of the next one, so it learns whatever the next one learns.
COARSE_TO_FINE = ("none", "shuffle-model", "shuffle-layer", "shuffle-parameter")
# The order in which a reader must hear of findings.
ORDER: tuple[Status, ...] = ("leak", "none-found", "not-run", "proved")


def values(question: Question, scores: Sequence[Score]) -> Rate:
    """What an attack came to over runs."""
    return (share if question.unit == "share" else over_runs)([one.value for one in scores])


def gains(question: Question, scores: Sequence[Score], doubt: float = 1 - LEVEL) -> Rate:
    """What the view adds to the prior, run by run."""
    return (gain if question.unit == "share" else over_runs)([one.value - one.prior for one in scores], doubt)


def attacked(
    question: Question, trials: Sequence[QuestionRun], control: Sequence[QuestionRun], comparisons: int
) -> dict[str, dict[str, Any]]:
    """Attacks that ran in every trial, with rates, gains and controls; others with the reason why they did not run."""
    names = [name for name in trials[0].scores if all(name in one.scores for one in trials)]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        scores = [one.scores[name] for one in trials]
        rate = values(question, scores)
        proof = [one.scores.get(name) or one.controls.get(name) for one in control]
        known = [one for one in proof or [one.controls.get(name) for one in trials] if one is not None]
        # Attacks that nothing undefended can show to work must at least lie above the question's bar themselves.
        checked = _control(question, known or [one for one in scores if one.bar is not None])
        found[name] = {
            "title": question.titles[name], "value": rate.rate, "low": rate.low, "high": rate.high,
            "prior": sum(one.prior for one in scores) / len(scores), "gain": asdict(gains(question, scores)),
            "gain_together": asdict(gains(question, scores, (1 - LEVEL) / max(1, comparisons))),
            "control": checked, "scored": checked["passed"], "by_round": _by_round(question, scores),
        }  # fmt: skip
    reasons = {name: why for one in trials for name, why in one.not_run.items()}
    return found | {
        name: {"title": question.titles[name], "not_run": why, "scored": False} for name, why in reasons.items()
    }


def _control(question: Question, scores: Sequence[Score]) -> dict[str, Any]:
    """What it comes to on undefended updates; passed where that surely lies above the bar, or without one the prior."""
    if len(scores) < 2:
        return {"rate": None, "low": None, "high": None, "passed": False}
    rate = values(question, scores)
    bars = [one.bar for one in scores if one.bar is not None]
    passed = rate.low > max(bars) if bars else gains(question, scores).low > 0
    return {**asdict(rate), "passed": passed}


def _by_round(question: Question, scores: Sequence[Score]) -> list[dict[str, Any]]:
    numbers = [number for number in scores[0].rounds if all(number in one.rounds for one in scores)]
    interval = share if question.unit == "share" else over_runs
    return [{"round": number, **asdict(interval([one.rounds[number] for one in scores]))} for number in numbers]


def not_run(why: str, attacks: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A question that was not asked of an adversary, or whose answer says nothing."""
    nothing = dict.fromkeys(("attack", "value", "low", "high", "prior", "gain", "control"))
    said = {"unsure": False, "status": "not-run", "why": why, "words": "not run"}
    return {**nothing, **said, "attacks": dict(attacks or {}), "facts": {}}


def cell(
    question: Question, trials: Sequence[QuestionRun], control: Sequence[QuestionRun], proved: str = ""
) -> dict[str, Any]:
    """What one adversary learns, by the attack named in advance or a surer one; `proved`: why views tell nothing."""
    if len(trials) < 2:
        return not_run("one run has no interval; ask for more seeds")
    attacks = attacked(question, trials, control, max(1, len(trials[0].scores) - 1))
    able = [name for name, one in attacks.items() if one["scored"]]
    shown = question.facts(trials)
    few = len(trials) < LEAST_RUNS
    if not able:
        # Why nothing could be tried; of attacks that were tried none works.
        tried = any("value" in one for one in attacks.values())
        reasons = [] if tried else [one["not_run"] for one in attacks.values()]
        why = TOO_FEW.format(len(trials), LEAST_RUNS) if few else question.failed
        silent = not_run(reasons[0] if reasons else why, attacks) | {"facts": shown, "unsure": not reasons}
        return silent | ({"status": "proved", "why": proved, "unsure": False} if proved else {})
    first, others = able[-1], able[:-1]
    sure = [name for name in others if attacks[name]["gain_together"]["low"] > 0]
    best = first
    if not attacks[first]["gain"]["low"] > 0 and sure:
        best = max(sure, key=lambda name: attacks[name]["gain_together"]["low"])
    one = attacks[best]
    found = Rate(**one["gain" if best == first else "gain_together"])
    status: Status = "leak" if found.low > 0 else "proved" if proved else "none-found"
    why = proved if status == "proved" else f"{CONTRADICTION}: {proved}" if proved and status == "leak" else ""
    if few:
        status, why = "not-run", TOO_FEW.format(len(trials), LEAST_RUNS)
    unsure = is_unsure(question, found)
    return {
        "attack": best, **{key: one[key] for key in ("value", "low", "high", "prior", "control")},
        "gain": asdict(found), "unsure": few or unsure, "status": status, "why": why, "attacks": attacks,
        "facts": shown, "words": "too few runs, or clients, to tell" if unsure else question.words(found, best),
    }  # fmt: skip


def is_unsure(question: Question, found: Rate) -> bool:
    """Whether nothing was found, and much may be there: an interval that reaches beyond a fifth of all cases."""
    return question.unit == "share" and not found.low > 0 and found.high > MUCH


def worst(cells: Mapping[str, Mapping[str, Any]]) -> str:
    """The adversary that learns most: by status first, then by how much it surely gains."""

    def badness(key: str) -> tuple[int, float]:
        one = cells[key]
        return -ORDER.index(one["status"]), one["gain"]["low"] if one["gain"] else 0.0

    return max(cells, key=badness)


def asked(
    question: Question, answers: Sequence[ArmAnswers], control: Sequence[ArmAnswers], forbidden: Mapping[str, bool],
    proved: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """One question of one arm: a cell for every adversary, and in front the worst of those that are not forbidden."""
    cells: dict[str, dict[str, Any]] = {}
    bare = question.by.key if question.by else "server"
    for key, banned in ({bare: False} if question.by else forbidden).items():
        trials = [one.trials[question.use][key] for one in answers if key in one.trials.get(question.use, {})]
        plain = [one.trials[question.use][bare] for one in control if bare in one.trials.get(question.use, {})]
        refused = [one.refused.get(question.use, {}) for one in answers]
        unfit = next((one[EVERYBODY] for one in refused if EVERYBODY in one), "")
        why = unfit or next((one[key] for one in refused if key in one), "")
        made = cell(question, trials, plain, proved.get(key, "")) if trials else not_run(why or "not asked")
        if not trials and proved.get(key) and not unfit:
            made |= {"status": "proved", "why": proved[key], "words": "proved"}
        cells[key] = {"forbidden": banned, "worst_case": question.worst, "learns": question.learns, **made}
    front = worst({key: one for key, one in cells.items() if not one["forbidden"]} or cells)
    head = {key: value for key, value in cells[front].items() if key not in ("attacks", "facts")}
    return {"adversary": front, **head, "adversaries": cells}


def pass_on(rows: Sequence[dict[str, Any]]) -> None:
    """Whoever sees a coarser shuffle could shuffle on, so a leak of a finer shuffle is noted as its leak, too."""
    known = {row["defence"]: row for row in rows}
    for coarse, fine in reversed(list(pairwise(COARSE_TO_FINE))):
        if fine not in known or coarse not in known:
            continue
        for name, one in known[fine]["questions"].items():
            other = known[coarse]["questions"][name]
            if one["status"] == "leak" and one["adversary"] == "server" and other["status"] == "none-found":
                more = {"status": "leak", "why": f"as {fine} does: who sees these updates can shuffle them further"}
                other |= more
                other["adversaries"]["server"] |= more
