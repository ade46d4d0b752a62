"""The report of a profile audit as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier.audit.report.page import document, masthead, section
from croupier.audit.report.tables import table
from croupier.audit.report.words import NOTHING, Html, bullets, decimal, joined, tag, terms

LINKS = ("linked to its owner's row (centred)", "linked to its owner's bucket (centred)")
HEADS = ("Measure", "As received", "Linear denoiser", "Learned denoiser", "Prior", "Control")


def render(findings: Mapping[str, Any]) -> str:
    """The whole page."""
    name, noises = str(findings["name"]), list(dict.fromkeys(arm["noise"] for arm in findings["arms"]))
    asked = (
        "What do noised and shuffled updates tell of the habits of clients, and can updates of one client be "
        f"linked across rounds? {findings['clients']} clients, {findings['auxiliary']} auxiliary ones, "
        f"{findings['runs']} runs."
    )
    return document(
        name,
        findings,
        masthead("Croupier profile audit", name, findings, tag("p", asked, class_="answer")),
        section("verdicts", "What each view tells", _glance(noises, findings)),
        section("threat", "The threat", tag("p", findings["threat"]), bullets(findings["adversaries"])),
        *(_noise(one, findings) for one in noises),
        section("paper", "What the paper prints", *(_paper(*one) for one in findings["paper"].items())),
        section("setting", "Setting", _facts(findings), tag("h3", "Notes"), bullets(findings["notes"])),
    )


def _glance(noises: Sequence[str], findings: Mapping[str, Any]) -> Html:
    """One line for each view: what it tells beyond the prior, by the denoiser that was named in advance."""
    keys = list(findings["attributes"])
    wanted = [("cosine centred",), *((f"{key}: clients named right",) for key in keys), LINKS]
    groups = [
        (_opened(name), [_line(arm, wanted, findings["judged_by"]) for arm in findings["arms"] if arm["noise"] == name])
        for name in noises
    ]  # fmt: skip
    said = (
        "Updates: the centred cosine of denoised and clean ones; attributes: clients named right; links: rows (of "
        "bucket sums: buckets) linked to their owner's. Below each number its prior: 'more than' where the view is "
        "shown to tell more. Not scored: the attack finds nothing without noise and shuffling either."
    )
    return table("numbers", said, ("View", "Updates", *(key.capitalize() for key in keys), "Links"), groups)


def _opened(name: str) -> str:
    return name[:1].upper() + name[1:]


def _line(arm: Mapping[str, Any], wanted: Sequence[Sequence[str]], judge: str) -> list[Html]:
    marks = arm["denoisers"][judge]
    found = [next((marks[name] for name in names if name in marks), None) for names in wanted]
    return [joined([str(arm["title"])]), *(_verdict(mark) for mark in found)]


def _verdict(mark: Mapping[str, Any] | None) -> Html:
    if mark is None or mark["rate"] is None or "above" not in mark:
        return joined([NOTHING])
    if mark["control"] is False:
        return joined(["not scored"])
    word = "more than" if mark["above"]["low"] > 0 else "prior"
    return joined([decimal(mark["rate"], 3), tag("small", f"{word} {decimal(mark['prior'], 3)}")])


def _noise(name: str, findings: Mapping[str, Any]) -> Html:
    arms = [arm for arm in findings["arms"] if arm["noise"] == name]
    groups = [(str(arm["title"]), _measures(arm)) for arm in arms]
    given = findings["epsilons"].get(name) or [[]]
    budgets = ", ".join(f"{one:.4g}" for one in given[0])
    caption = f"Epsilon of one participation, tier by tier: {budgets} (first run)." if budgets else "No noise at all."
    said = f"{caption} Each number with its 95 % interval over runs."
    return section(f"noise-{name.split()[0]}", _opened(name), table("numbers", said, HEADS, groups))


def _measures(arm: Mapping[str, Any]) -> list[list[Html]]:
    by = arm["denoisers"]
    names = list(dict.fromkeys(measure for marks in by.values() for measure in marks))
    return [
        [
            joined([measure]),
            *(_mark(by.get(name, {}).get(measure)) for name in ("none", "wiener", "learned")),
            _prior([marks[measure] for marks in by.values() if measure in marks]),
            _control([marks[measure] for marks in by.values() if measure in marks]),
        ]
        for measure in names
    ]


def _mark(mark: Mapping[str, Any] | None) -> Html:
    if mark is None or mark["rate"] is None:
        return joined([NOTHING])
    ends = f"{decimal(mark['low'], 3)} to {decimal(mark['high'], 3)}"
    return joined([decimal(mark["rate"], 3), tag("small", ends)])


def _prior(marks: Sequence[Mapping[str, Any]]) -> Html:
    known = [mark["prior"] for mark in marks if "prior" in mark]
    return joined([decimal(known[0], 3) if known else NOTHING])


def _control(marks: Sequence[Mapping[str, Any]]) -> Html:
    words = {True: "passed", False: "failed: not scored", None: "not mounted there"}
    return joined([", ".join(dict.fromkeys(words[mark.get("control")] for mark in marks))])


def _paper(name: str, printed: Mapping[str, Any]) -> Html:
    cells = [[joined([str(cell)]) for cell in row] for row in printed["rows"]]
    return table("numbers", f"{name}: {printed['about']}.", printed["heads"], [(name, cells)])


def _facts(findings: Mapping[str, Any]) -> Html:
    pairs = [(key.replace("_", " "), findings[key]) for key in ("clients", "auxiliary", "cohort", "rounds", "runs")]
    pairs += [("smallest bucket", findings["smallest_bucket"])]
    pairs += [("buckets of each size, first run", findings["bucket_sizes"])]
    for one in findings["attributes"].values():
        pairs.append((one["title"], f"{', '.join(one['classes'])}; chance {decimal(one['chance'], 3)}"))
    return terms([*pairs, *findings["task"].items()])
