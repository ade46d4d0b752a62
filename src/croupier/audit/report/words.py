"""Numbers in words, and HTML that is escaped unless it was built here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from html import escape

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
NOTHING = "\N{EN DASH}"
# Narrow and unbreakable: a number never parts from its unit at the end of a line.
GAP = "\u202f"


class Html(str):
    """Text that is markup already; any other string is escaped when it is put into a tag."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: object) -> Html:
    """One element; `class_` and `aria_label` become `class` and `aria-label`, and None leaves an attribute out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Parts one after the other, plain text escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


@dataclass(frozen=True)
class Rate:
    """A number with its 95 % interval, where it has one."""

    rate: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, if both ends are known."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def decimal(value: float, digits: int = 1) -> str:
    """A number with a true minus sign, and no minus before zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if not float(text) else text.replace("-", "\N{MINUS SIGN}")


def percent(value: float | None) -> str:
    """A share of one as a percentage."""
    return NOTHING if value is None else f"{decimal(100 * value)}{GAP}%"


def interval(rate: Rate | None, scale: float = 100, digits: int = 1) -> str:
    """The two ends of an interval, in percent unless told otherwise."""
    if rate is None or rate.ends is None:
        return NOTHING
    low, high = rate.ends
    return f"{decimal(scale * low, digits)} to {decimal(scale * high, digits)}"


def size(count: float | None) -> str:
    """Bytes for people, as the command line prints them."""
    if count is None:
        return NOTHING
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{decimal(count, 0 if unit == 'B' else 1)}{GAP}{unit}"
        count /= 1000
    return f"{decimal(count, 2)}{GAP}GB"


def listing(names: Iterable[str]) -> str:
    """Names in a sentence, in quotation marks because a defence may be called "none"."""
    *most, last = [f"“{name}”" for name in names] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def said(value: object) -> str:
    """A plain value in words; tables are told key by key."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {said(inner)}" for key, inner in value.items())
    return str(value)


def bullets(lines: Iterable[str]) -> Html:
    """Sentences one below the other."""
    return tag("ul", *(tag("li", line) for line in lines))


def terms(pairs: Iterable[tuple[str, object]]) -> Html:
    """What stands where, term by term."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", said(value))) for term, value in pairs), class_="facts")


def date(stamp: str) -> str:
    """A moment as people write it; what is no moment stays as it is."""
    try:
        when = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    zone = "" if when.tzinfo is None else " UTC" if not when.utcoffset() else f" {when:%z}"
    return f"{when.day} {MONTHS[when.month - 1]} {when.year}, {when:%H:%M}{zone}"


def number(value: object) -> float | None:
    """A finite number, or None for whatever else stands in its place."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
