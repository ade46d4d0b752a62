"""From runs to findings: rates with intervals, what may be said of them, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from croupier.audit.harness import EVERYBODY, Answers
from croupier.audit.question import MALICIOUS, Question, Score, Trial
from croupier.audit.score import LEVEL, Rate, gain, over_runs, share

Status = Literal["leak", "none-found", "proved", "not-run"]
# With fewer runs an interval says next to nothing.
LEAST_RUNS = 4
TOO_FEW = "{} runs are too few to judge by; ask for {} or more"
# A gain of so many shares is much; where it cannot be ruled out, nothing is said to be quiet.
MUCH = 0.2
# What a reader must hear of first.
ORDER: tuple[Status, ...] = ("leak", "none-found", "not-run", "proved")


def values(question: Question, scores: Sequence[Score]) -> Rate:
    """What an attack came to over runs."""
    return (share if question.unit == "share" else over_runs)([one.value for one in scores])


def gains(question: Question, scores: Sequence[Score], doubt: float = 1 - LEVEL) -> Rate:
    """What the view adds to the prior, run by run."""
    return (gain if question.unit == "share" else over_runs)([one.value - one.prior for one in scores], doubt)


def attacked(
    question: Question, trials: Sequence[Trial], control: Sequence[Trial], comparisons: int
) -> dict[str, dict[str, Any]]:
    """Every attack on one adversary's views: rates, gains, and whether it works where nothing defends."""
    names = [name for name in trials[0].scores if all(name in one.scores for one in trials)]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        scores = [one.scores[name] for one in trials]
        proof = [one.scores.get(name) or one.controls.get(name) for one in control]
        known = [one for one in proof or [one.controls.get(name) for one in trials] if one is not None]
        # Attacks that nothing undefended can show to work must at least lie above the question's bar themselves.
        checked = _control(question, known or [one for one in scores if one.bar is not None])
        found[name] = {
            "title": question.titles[name], **_valued(values(question, scores)),
            "prior": sum(one.prior for one in scores) / len(scores), "gain": asdict(gains(question, scores)),
            "gain_together": asdict(gains(question, scores, (1 - LEVEL) / max(1, comparisons))),
            "control": checked, "scored": checked["passed"],
            "by_round": _by_round(question, scores),
        }  # fmt: skip
    reasons = {name: why for one in trials for name, why in one.not_run.items()}
    return found | {
        name: {"title": question.titles[name], "not_run": why, "scored": False} for name, why in reasons.items()
    }


def _valued(rate: Rate) -> dict[str, float]:
    return {"value": rate.rate, "low": rate.low, "high": rate.high}


def _control(question: Question, scores: Sequence[Score]) -> dict[str, Any]:
    """What it comes to on undefended updates; passed where that lies above the prior, or above the question's bar."""
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


NOTHING: dict[str, Any] = {
    "attack": None, "value": None, "low": None, "high": None, "prior": None, "gain": None, "control": None,
    "unsure": False,
}  # fmt: skip


def not_run(why: str, attacks: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A question that was not asked of an adversary, or whose answer says nothing."""
    return {**NOTHING, "status": "not-run", "why": why, "words": "not run", "attacks": dict(attacks or {}), "facts": {}}


def cell(question: Question, trials: Sequence[Trial], control: Sequence[Trial], proved: str = "") -> dict[str, Any]:
    """What one adversary learns: by the attack that was named in advance, or by the one that surely finds more.

    `proved` is why its views tell nothing, where that is known beforehand.
    """
    if len(trials) < 2:
        return not_run("one run has no interval; ask for more seeds")
    attacks = attacked(question, trials, control, max(1, len(trials[0].scores) - 1))
    able = [name for name, one in attacks.items() if one["scored"]]
    shown = question.facts(trials)
    few = len(trials) < LEAST_RUNS
    if not able:
        reasons = [one["not_run"] for one in attacks.values() if one.get("not_run")]
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
    why = proved if status == "proved" else ""
    if few:
        status, why = "not-run", TOO_FEW.format(len(trials), LEAST_RUNS)
    return {
        "attack": best, **{key: one[key] for key in ("value", "low", "high", "prior", "control")},
        "gain": asdict(found), "unsure": few or is_unsure(question, found),
        "status": status, "why": why, "words": question.words(found, best), "attacks": attacks,
        "facts": shown,
    }  # fmt: skip


def is_unsure(question: Question, found: Rate) -> bool:
    """Whether nothing was found, and much may be there: an interval that reaches beyond a fifth of all cases."""
    return question.unit == "share" and not found.low > 0 and found.high > MUCH


def worst(cells: Mapping[str, Mapping[str, Any]]) -> str:
    """The adversary that learns most, by what is sure first."""

    def badness(key: str) -> tuple[int, float]:
        one = cells[key]
        return -ORDER.index(one["status"]), one["gain"]["low"] if one["gain"] else 0.0

    return max(cells, key=badness)


def asked(
    question: Question, answers: Sequence[Answers], control: Sequence[Answers], forbidden: Mapping[str, bool],
    proved: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """One question of one arm: every adversary, and in front the worst of those that the protocol allows for."""
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


# A protocol is not recommended where it costs more accuracy than this, while another will do.
DEAR = 0.05


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to say of the description's own protocol, the first row: against whom it leaks, and what to use instead."""
    own = rows[0]
    against = [_against(own, key, banned) for key, banned in _parties(own).items()]
    allowed = [one for one in against if not one["forbidden"]]
    leaks, rare, broken = _leaks(own), _worst(own), _broken(own)
    doubt = any(one["unsure"] for one in own["questions"].values())
    waits = doubt or any(one["light"] == "amber" for one in allowed)
    light = "red" if leaks else "amber" if rare or broken or waits else "green"
    first, *more = _sentences(own, leaks, rare, broken, against)
    return {
        "light": light, "sentence": first, "more": more, "against": against, "recommend": _recommend(rows),
    }  # fmt: skip


def _sentences(
    own: Mapping[str, Any], leaks: Sequence[str], rare: Sequence[str], broken: Sequence[str],
    against: Sequence[Mapping[str, Any]],
) -> list[str]:  # fmt: skip
    asked = [name for name, one in own["questions"].items() if one["status"] != "not-run" and _curious(one)]
    count = len(asked) - len(rare)
    said = []
    if leaks:
        by = {own["questions"][name]["adversary"] for name in leaks}
        who = f" to the {by.pop()}" if len(by) == 1 else ""
        names = _and([own["questions"][name]["learns"] for name in leaks])
        said.append(f"{own['defence']} leaks{who}, in {len(leaks)} of {_many(count)} that could be asked: {names}.")
    elif count > 0:
        said.append(f"No leak was found in {own['defence']} as it trains, in {_many(count)} that could be asked.")
    elif not broken:
        said.append(f"Nothing could be judged of {own['defence']}: see what was not run, and why.")
    if rare:
        assumed = own["questions"][rare[0]]["worst_case"]
        said.append(f"In the worst case, {assumed}, it {'also ' if leaks else ''}leaks {_learnt(own, rare)}.")
    if broken:
        said.append("Malicious clients break what it learns.")
    what_if = [one["adversary"] for one in against if one["forbidden"] and one["light"] == "red"]
    if what_if and not leaks:
        said.append(f"It would leak to {_and(what_if)}, who must not collude.")
    return said


def _many(count: int, what: str = "question") -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1]


def _parties(row: Mapping[str, Any]) -> dict[str, bool]:
    return {
        key: one["forbidden"] for question in row["questions"].values() for key, one in question["adversaries"].items()
    }


def _curious(cell: Mapping[str, Any]) -> bool:
    """Whether it is asked what somebody learns, and not what somebody breaks."""
    return bool(cell["adversary"] != MALICIOUS.key and not cell["forbidden"])


def _leaks(row: Mapping[str, Any]) -> list[str]:
    """The questions in which it leaks as the description trains."""
    cells = row["questions"].items()
    return [name for name, one in cells if one["status"] == "leak" and not one["worst_case"] and _curious(one)]


def _worst(row: Mapping[str, Any]) -> list[str]:
    """The questions in which it leaks in the worst case that they assume."""
    cells = row["questions"].items()
    return [name for name, one in cells if one["status"] == "leak" and one["worst_case"] and _curious(one)]


def _broken(row: Mapping[str, Any]) -> list[str]:
    """What malicious clients break."""
    cells = row["questions"].items()
    return [name for name, one in cells if one["status"] == "leak" and one["adversary"] == MALICIOUS.key]


def _run(row: Mapping[str, Any]) -> int:
    return sum(one["status"] != "not-run" for one in row["questions"].values())


def _against(row: Mapping[str, Any], key: str, forbidden: bool) -> dict[str, Any]:
    """What one adversary learns or breaks, over all questions."""
    cells = {name: one["adversaries"][key] for name, one in row["questions"].items() if key in one["adversaries"]}
    every = [name for name, one in cells.items() if one["status"] == "leak"]
    leaks = [name for name in every if not row["questions"][name]["worst_case"]]
    quiet = [name for name, one in cells.items() if one["status"] in ("none-found", "proved")]
    if key == MALICIOUS.key and every:
        light, said = "amber", f"break it: {cells[every[0]]['words']}"
    elif leaks:
        light, said = "red", f"learns {_learnt(row, leaks)}"
    elif every:
        light, said = "amber", f"learns in the worst case {_learnt(row, every)}"
    elif quiet:
        proved = all(cells[name]["status"] == "proved" for name in quiet)
        light, said = "green", f"not found to learn {_learnt(row, quiet)}"
        light, said = ("proved", "proved to see nothing of updates") if proved else (light, said)
    else:
        light, said = "amber", f"not run: {next((one['why'] for one in cells.values()), 'nothing was asked')}"
    return {"adversary": key, "forbidden": forbidden, "light": light, "sentence": said}


def _recommend(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The compared protocol that leaks in fewer questions, by the rule that the notes of a report print.

    It costs so many times the bytes of the description's own, and so much accuracy.
    """
    own, others = rows[0], rows[1:]
    measure, mine = own["measure"], [*_leaks(own), *_worst(own)]
    sign = 1 if measure == "accuracy" else -1
    known = [row for row in others if row[measure] is not None and own[measure] is not None]
    better = [row for row in known if _badness(row, own) < _badness(own, row)]
    cheap = [row for row in better if measure != "accuracy" or own[measure] - row[measure] <= DEAR]
    # What costs a lot is worth it for leaks that were found, not for a worst case.
    fit = cheap or (better if _leaks(own) else [])
    if not fit:
        quiet = "Keep your protocol." if _run(own) else "Nothing is recommended where nothing could be judged."
        said = "None of the protocols that were compared leaks in fewer questions." if mine else quiet
        if better:
            said = "Keep your protocol: of those compared, what leaks less costs more than 5 points of accuracy."
        return {"defence": None, "sentence": said, "bytes": None, "accuracy": None}
    best = min(fit, key=lambda row: (*_left(row), -sign * row[measure], row["bytes_per_client"]))
    use = " ".join([f"Use {best['defence']}.", *_remains(own, best)])
    return {
        "defence": best["defence"], "sentence": use,
        "bytes": best["bytes_per_client"] / own["bytes_per_client"],
        "accuracy": best[measure] - own[measure] if measure == "accuracy" else None,
    }  # fmt: skip


def _remains(own: Mapping[str, Any], best: Mapping[str, Any]) -> list[str]:
    """What a change brings, what it leaves, and on what it rests."""
    both, mine = _judged(own, best), _leaks(own)
    closed = [name for name in mine if name in both and name not in _leaks(best)]
    said = [f"It closes {len(closed)} of {_many(len(mine), 'leak')} found: {_learnt(own, closed)}."] if closed else []
    for name in [name for name in mine if name not in both]:
        why = best["questions"][name]["why"] or "the answer is not sure"
        said.append(f"It could not be asked whether it shows {_learnt(own, [name])}: {why}.")
    if left := _leaks(best):
        said.append(f"It still leaks {_learnt(best, left)}.")
    for name in [name for name in _worst(best) if own["questions"][name]["gain"]]:
        then, now = (row["questions"][name]["gain"]["rate"] for row in (own, best))
        said.append(f"In the worst case it still leaks {_learnt(best, [name])}: a gain of {now:.2g}, yours {then:.2g}.")
    if apart := best["must_not_collude"]:
        said.append(f"It rests on these not working together: {apart[0][0]} with {apart[0][1]}.")
    if _broken(best):
        said.append("Malicious clients break it, too.")
    return [*said, "Here its server alone attacked it: audit it by itself for its other parties."]


def _learnt(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return _and([row["questions"][name]["learns"] for name in names])


def _judged(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The questions that were answered of both: what was not asked is no advantage."""
    return {
        name
        for name, cell in one["questions"].items()
        if all(each["status"] != "not-run" and not each["unsure"] for each in (cell, other["questions"][name]))
    }


def _badness(row: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, int]:
    """Leaks as it trains, then in the worst case, in what was answered of both."""
    both = _judged(row, other)
    return sum(name in both for name in _leaks(row)), sum(name in both for name in _worst(row))


def _left(row: Mapping[str, Any]) -> tuple[int, float]:
    """What a protocol leaves open: leaks as it trains, and how much in the worst case."""
    rare = sum(row["questions"][name]["gain"]["rate"] for name in _worst(row))
    return len(_leaks(row)), float(rare)
