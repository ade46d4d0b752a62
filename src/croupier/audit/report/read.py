"""A report read so that what is missing is missing in one place only, and its numbers in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from croupier.audit.report.words import GAP, NOTHING, Rate, decimal, interval, number

STATUSES = ("leak", "none-found", "proved", "not-run")
# How a value and a gain are shown: the factor, the digits, and the words behind each.
UNITS = {"share": (100.0, 1, "%", "points"), "dB": (1.0, 1, "dB", "dB"), "bits": (1.0, 2, "bits", "bits")}
WHO = {
    "server": "the server", "client": "a client", "relay": "the relay", "second": "the second server",
    "dealer": "the dealer", "network": "the network", "malicious": "malicious clients",
}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """A table of a report: whatever stands in a key's place, it answers with what was asked for, or with nothing."""

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

    def rate(self, key: str = "rate") -> Rate | None:
        """A number with the interval that stands beside it."""
        known = self.number(key)
        return None if known is None else Rate(known, self.number("low"), self.number("high"))

    def part(self, key: str) -> Told:
        """A table in it."""
        found = self.plain.get(key)
        return Told(found if isinstance(found, Mapping) else {})

    def parts(self, key: str) -> Sequence[Told]:
        """A list of tables."""
        return [Told(one if isinstance(one, Mapping) else {}) for one in self.several(key)]

    def named(self, key: str) -> dict[str, Told]:
        """A table of tables."""
        return {str(name): self.part(key).part(name) for name in self.part(key).plain}


@dataclass(frozen=True)
class Question:
    """What was asked, and how its numbers are shown."""

    key: str
    asks: str
    unit: str

    @property
    def points(self) -> str:
        """What gains are counted in."""
        return self._shown[3]

    @property
    def head(self) -> str:
        """Above a column of its gains."""
        return f"{self.asks} ({self.points})" if self.points else self.asks

    def value(self, rate: Rate | None) -> str:
        """A value with its interval."""
        factor, digits, behind, _ = self._shown
        said = NOTHING if rate is None else f"{decimal(factor * rate.rate, digits)}{GAP if behind else ''}{behind}"
        return f"{said} ({self.ends(rate)})" if self.ends(rate) else said

    def gain(self, rate: Rate | None) -> str:
        """A gain with its sign and its interval; its unit stands elsewhere."""
        factor, digits, *_ = self._shown
        said = NOTHING if rate is None else decimal(factor * rate.rate, digits)
        said = f"+{said}" if rate and rate.rate > 0 and float(said) else said
        return f"{said} ({self.ends(rate)})" if self.ends(rate) else said

    def ends(self, rate: Rate | None) -> str:
        """The interval alone."""
        factor, digits, *_ = self._shown
        return interval(rate, factor, digits) if rate and rate.ends else ""

    @property
    def _shown(self) -> tuple[float, int, str, str]:
        return UNITS.get(self.unit, (1.0, 2, "", ""))


def questions(found: Told) -> list[Question]:
    """What was asked, in order; a question that only a row knows comes last."""
    rows = [key for row in found.parts("rows") for key in row.part("questions").plain]
    known = {str(key): found.part("questions").part(key) for key in [*found.part("questions").plain, *rows]}
    return [Question(key, one.text("asks") or key, one.text("unit") or "share") for key, one in known.items()]


def status(cell: Told) -> str:
    """What may be said; what nobody asked was not run."""
    return cell.text("status") if cell.text("status") in STATUSES else "not-run"


def reason(cell: Told) -> str:
    """Why it is proved or was not run."""
    return cell.text("why") or ("" if cell.plain else "not asked")


def finding(cell: Told) -> str:
    """The finding as a reader would say it, where it says more than its status."""
    return "" if cell.text("words") in ("not run", "proved") else cell.text("words")


def adversaries(cell: Told) -> list[tuple[str, Told]]:
    """Who was asked about, what the statement forbids last; the front itself where they are not told apart."""
    found = sorted(cell.named("adversaries").items(), key=lambda pair: bool(pair[1].plain.get("forbidden")))
    return found or [(cell.text("adversary"), cell)]


def light(row: Told, verdict: Told) -> str:
    """The verdict's for the description's own protocol, and the same rule for the others."""
    if row.plain.get("own") and verdict.text("light"):
        return verdict.text("light")
    found = {status(cell) for cell in row.named("questions").values()}
    return "red" if "leak" in found else "amber" if "not-run" in found or not found else "green"


def title(row: Told) -> str:
    """A defence as a reader calls it."""
    return row.text("title") or row.text("defence") or "unnamed"


def measured(row: Told) -> tuple[str, Question, Rate | None]:
    """What tells how good a model is, how that is shown, and how good it is."""
    name = row.text("measure") or "accuracy"
    rate = row.number("accuracy")
    known = None if rate is None else Rate(rate, row.number("accuracy_low"), row.number("accuracy_high"))
    return name, Question(name, name, "share" if name == "accuracy" else ""), known


def cost(found: Told) -> str:
    """What the recommended defence costs beside your protocol; nothing where that is not told."""
    one, row = found.part("verdict").part("recommend"), next(iter(found.parts("rows")), Told({}))
    name, unit, _ = measured(row)
    times, gap = one.number("bytes"), one.number("accuracy")
    parts = [] if times is None else [f"{decimal(times)} times the bytes of your protocol"]
    parts += [] if gap is None else [f"{unit.gain(Rate(gap))} {unit.points}".strip() + f" of {name}"]
    return f"It costs {' and '.join(parts)}." if parts else ""


def who(key: str) -> str:
    """An adversary in words."""
    each = [WHO.get(name) or re.sub(r"^sum(\d+)$", r"sum server \1", name) for name in key.split("+")]
    return " with ".join(each) if len(each) < 3 else f"{', '.join(each[:-1])} and {each[-1]} together"


def capital(said: str) -> str:
    """As a line begins."""
    return said[:1].upper() + said[1:]


def sentence(said: str) -> str:
    """With a capital and a full stop."""
    return capital(said.strip()) + ("" if said.strip()[-1:] in ("", ".", "!", "?") else ".")
