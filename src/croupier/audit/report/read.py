"""Reads an audit's report for people: gaps become empty values here, and statuses and numbers become words.

A report is a plain dict, which may be old, edited or incomplete; `Lenient` gives an empty value for what is missing.
Whatever shows a report says the same thing of the same finding, because it takes the words from here:
`audit.report.html` (whose templates also call functions of this module as `read`), `audit.report.text`,
`audit.report.compare` and, for a report just made, `cli.findings`. `audit.report.result` uses `Lenient`.

Modules that write reports use it as well: `audit.described` and `audit.recorded.audited` take `KIND` and `SCHEMA` from
here, `audit.judgement` and `audit.notes` their words, `audit.bench` and `audit.questions.separation` how reasons begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from croupier.audit.report.words import GAP, NOTHING, Estimate, decimal, number, sentence, size

# What a report says it is; docs/audit-report.md describes the schema.
KIND, SCHEMA = "croupier audit", 3
STATUSES = ("leak", "none-found", "proved", "not-run")
# How a value and a gain are shown: the factor, the digits, and the words behind each.
UNITS = {
    "share": (100.0, 1, "%", "points"), "dB": (1.0, 1, "dB", "dB"), "bits": (1.0, 2, "bits", "bits"),
    "cosine": (1.0, 2, "", "cosine"),
}  # fmt: skip
# A shape and a word for each status and light; colour only repeats them.
MARKS = {
    "leak": ("●", "leak"), "none-found": ("■", "none found"), "proved": ("◆", "proved"), "not-run": ("○", "not asked"),
    "red": ("●", "Leaks"), "amber": ("▲", "Caution"), "green": ("■", "No leak found"),
}  # fmt: skip
NO_MARK = ("?", "Not judged")
# How two kinds of reasons begin: a defence could not be played at all (`audit.bench`); or it was played, but what would
# show a leak, as clients that drop out, did not happen in it (`audit.questions.separation`).
LOST, UNTESTED = "did not run", "not tested"
UNORDERED = "attacks on records and clients did not first put its coordinates in order"
FORBIDDEN = "what if: the statement forbids this"


@dataclass(frozen=True)
class Lenient:
    """A table of a report that never fails: for whatever is missing or of the wrong type it gives an empty value."""

    plain: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A word or a sentence."""
        return "" if self.plain.get(key) is None else str(self.plain[key])

    def several(self, key: str) -> Sequence[Any]:
        """Whatever stands in a list."""
        found = self.plain.get(key)
        return found if isinstance(found, Sequence) and not isinstance(found, str) else ()

    def texts(self, key: str) -> Sequence[str]:
        """A list of words or sentences."""
        return ["" if one is None else str(one) for one in self.several(key)]

    def number(self, key: str) -> float | None:
        """A finite number."""
        return number(self.plain.get(key))

    def rate(self, key: str = "rate") -> Estimate | None:
        """A number with the interval that stands beside it."""
        known = self.number(key)
        return None if known is None else Estimate(known, self.number("low"), self.number("high"))

    def part(self, key: str) -> Lenient:
        """A table in it."""
        found = self.plain.get(key)
        return Lenient(found if isinstance(found, Mapping) else {})

    def parts(self, key: str) -> Sequence[Lenient]:
        """A list of tables."""
        return [Lenient(one if isinstance(one, Mapping) else {}) for one in self.several(key)]

    def named(self, key: str) -> dict[str, Lenient]:
        """A table of tables."""
        return {str(name): self.part(key).part(name) for name in self.part(key).plain}


@dataclass(frozen=True)
class Asked:
    """A question that was asked, and how its numbers are shown."""

    key: str
    asks: str
    unit: str

    @property
    def points(self) -> str:
        """What gains are counted in."""
        return self._shown[3]

    @property
    def factor(self) -> float:
        """By what numbers are multiplied before they are shown."""
        return self._shown[0]

    @property
    def head(self) -> str:
        """Above a column of its gains."""
        return f"{self.asks} ({self.points})" if self.points else self.asks

    def value(self, rate: Estimate | None) -> str:
        """A value with its interval."""
        factor, digits, behind, _ = self._shown
        said = NOTHING if rate is None else f"{decimal(factor * rate.rate, digits)}{GAP if behind else ''}{behind}"
        return f"{said} ({self.ends(rate)})" if self.ends(rate) else said

    def gain(self, rate: Estimate | None) -> str:
        """A gain with its sign and its interval; its unit stands elsewhere."""
        factor, digits, *_ = self._shown
        said = NOTHING if rate is None else decimal(factor * rate.rate, digits)
        said = f"+{said}" if rate and rate.rate > 0 and float(said) else said
        return f"{said} ({self.ends(rate)})" if self.ends(rate) else said

    def ends(self, rate: Estimate | None) -> str:
        """The interval alone, with as many digits as keep one above zero from seeming to begin there."""
        if not rate or not rate.ends:
            return ""
        factor, digits, *_ = self._shown
        if (low := factor * rate.ends[0]) > 0:
            digits = max(digits, math.ceil(-math.log10(2 * low)))
        return " to ".join(decimal(factor * end, digits) for end in rate.ends)

    @property
    def _shown(self) -> tuple[float, int, str, str]:
        return UNITS.get(self.unit, (1.0, 2, "", ""))


def questions(found: Lenient) -> list[Asked]:
    """What was asked, in order; a question that only a row knows comes last."""
    rows = [key for row in found.parts("rows") for key in row.part("questions").plain]
    known = {str(key): found.part("questions").part(key) for key in [*found.part("questions").plain, *rows]}
    return [Asked(key, one.text("asks") or key, one.text("unit") or "share") for key, one in known.items()]


def status(cell: Lenient) -> str:
    """One of `STATUSES`; "not-run" where a cell has none or an unknown one."""
    return cell.text("status") if cell.text("status") in STATUSES else "not-run"


def stamp(cell: Lenient) -> tuple[str, str]:
    """The mark of a finding and its word: what malicious clients break is no leak, and a worst case is said to be one.

    Of "not-run" the word says why: "could not be judged" where attacks were tried, "does not apply" where there was
    nothing to try, "did not run" or "not tested" (see `LOST`), or "not asked".
    """
    kind, word = status(cell), ""
    if kind == "leak":
        broken, rare = cell.text("adversary") == "malicious", bool(cell.text("worst_case"))
        word = "broken" if broken else "leak in the worst case" if rare else ""
    elif kind == "none-found" and cell.plain.get("unsure"):
        kind, word = "amber", "cannot tell"
    elif kind == "not-run" and reason(cell) not in ("", "not asked"):
        # A question's own cell repeats that of its worst adversary, the front, but not the attacks: they stand there.
        front = cell.part("adversaries").part(cell.text("adversary"))
        attacks = [*cell.named("attacks").values(), *front.named("attacks").values()]
        tried = cell.plain.get("unsure") or any(not one.text("not_run") for one in attacks)
        word = "could not be judged" if tried else "does not apply"
        word = next((said for said in (LOST, UNTESTED) if reason(cell).startswith(said)), word)
    return kind, word or MARKS[kind][1]


def reason(cell: Lenient) -> str:
    """Why it is proved or was not run."""
    return cell.text("why") or ("" if cell.plain else "not asked")


def finding(cell: Lenient) -> str:
    """The finding as a reader would say it, where it says more than its status."""
    return "" if cell.text("words") in ("not run", "proved") else cell.text("words")


def adversaries(cell: Lenient) -> list[tuple[str, Lenient]]:
    """The adversaries of a question with their cells, those that the statement forbids last.

    Where a report does not tell adversaries apart, the question's own cell stands for all.
    """
    every = [(key, Lenient({"adversary": key, **one.plain})) for key, one in cell.named("adversaries").items()]
    return sorted(every, key=lambda pair: bool(pair[1].plain.get("forbidden"))) or [(cell.text("adversary"), cell)]


def attacks(found: Lenient, row: Lenient) -> Iterator[tuple[Asked, str, Lenient, str, Lenient]]:
    """Every attack on a defence: the question, the adversary with its cell, the attack's name and what it came to.

    An adversary that was not attacked comes once, with no name of an attack.
    """
    for question in questions(found):
        for key, cell in adversaries(row.part("questions").part(question.key)):
            for name, one in (cell.named("attacks") or {"": Lenient({})}).items():
                yield question, key, cell, name, one


def light(row: Lenient, verdict: Lenient) -> tuple[str, str]:
    """The mark of a whole row: the verdict's for the description's own protocol, by its questions for the others.

    Beside it stands a word, where the usual one of the mark does not fit. The template `parts.html` calls it.
    """
    if lost(row):
        return "not-run", LOST
    if row.plain.get("own") and verdict.text("light"):
        return verdict.text("light"), ""
    words = {stamp(cell)[1] for cell in row.named("questions").values()}
    answered = words & {"none found", "proved"} and not words - {"none found", "proved", "does not apply", UNTESTED}
    return ("red" if "leak" in words else "green" if answered else "amber"), ""


def mark_against(found: Lenient, one: Lenient) -> tuple[str, str]:
    """The mark of one adversary in the verdict's list.

    Malicious clients get the mark of the question `poisoning`, so that the same fact has the same mark everywhere.
    """
    broken = [row.part("questions").part("poisoning") for row in found.parts("rows")[:1]]
    return stamp(broken[0]) if broken and one.text("adversary") == "malicious" else (one.text("light"), "")


def better(data: Lenient, row: Lenient) -> str:
    """That its model is not (surely) better than always naming the commonest class; nothing where it is, or unknown."""
    share, good, low = data.number("share"), row.number("accuracy"), row.number("accuracy_low")
    if share is None or good is None or low is None or low > share:
        return ""
    # Less than one test record more is no more.
    return "no better" if good < share + 1 / (data.number("test") or math.inf) else "not surely better"


def remarks(found: Lenient, row: Lenient) -> list[str]:
    """How a defence's whole row is to be read."""
    how = better(found.part("data"), row)
    said = [f"its model is {how} than always answering the commonest class: it has little to leak"] if how else []
    return [*said, UNORDERED] if is_unordered(row) else said


def is_unordered(row: Lenient) -> bool:
    """Whether its coordinates are hidden, and nobody tried, or somebody managed, to put them in order.

    Attacks on records and clients take them as they came, and may then find less than is there.
    """
    found = status(row.part("questions").part("permutation"))
    return found == "leak" or (row.plain.get("hidden_coordinates") is True and found not in ("none-found", "proved"))


def lost(row: Lenient) -> str:
    """Why a defence could not be played; nothing where it was."""
    return next((why for one in row.named("questions").values() if (why := reason(one)).startswith(LOST)), "")


def columns(found: Lenient, answered: bool = True) -> list[tuple[int, Asked]]:
    """Questions with their places: those that some defence has an answer to.

    With `answered` false, those that none has an answer to.
    """
    rows, every = found.parts("rows"), enumerate(questions(found))
    cells = [(at, one, [row.part("questions").part(one.key) for row in rows]) for at, one in every]
    return [(at, one) for at, one, each in cells if answered == any(status(cell) != "not-run" for cell in each)]


def absent(found: Lenient) -> list[str]:
    """Defences without an answer, with the reason: they could not be played, or were left out."""
    rows = [f"{row.text('defence')} {lost(row)}" for row in found.parts("rows") if lost(row)]
    left = found.part("left_out")
    return [*rows, *(f"{name} was not compared: {left.text(name)}" for name in left.plain)]


def title(row: Lenient) -> str:
    """A defence as a reader calls it."""
    return row.text("title") or row.text("defence") or "unnamed"


def measured(row: Lenient) -> tuple[str, Asked, Estimate | None]:
    """The name of the measure of a model, how its numbers are shown, and how good the model is."""
    name = row.text("measure") or "accuracy"
    rate = row.number("accuracy")
    known = None if rate is None else Estimate(rate, row.number("accuracy_low"), row.number("accuracy_high"))
    return name, Asked(name, name, "share" if name == "accuracy" else ""), known


def cost(found: Lenient) -> str:
    """What the recommended defence costs beside your protocol; without one, what yours sends beside no defence."""
    one, row = found.part("verdict").part("recommend"), next(iter(found.parts("rows")), Lenient({}))
    name, unit, good = measured(row)
    times, gap = one.number("bytes"), one.number("accuracy")
    bare = next((one.number("bytes_per_client") for one in found.parts("rows") if one.text("defence") == "none"), None)
    mine = row.number("bytes_per_client")
    if one.plain.get("defence") is None and mine and bare:
        return f"Yours sends {size(mine)} from each client in a round, {decimal(mine / bare, 2)} times no defence."
    parts = [] if times is None else [f"a client sends {decimal(times)} times the bytes of yours"]
    if good and gap is not None:
        now, then = (unit.value(Estimate(rate)) for rate in (good.rate + gap, good.rate))
        parts.append(f"{name} is {now}, yours {then}")
    return sentence("; ".join(parts))
