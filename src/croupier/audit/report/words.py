"""Numbers, names and moments in words: what everything that shows a report is built of.

`audit.report.read`, `audit.report.html`, `audit.report.text` and `audit.report.compare` use it, and so do `audit.arms`,
`audit.judgement`, questions that bring tables of their own (`audit.questions.permutation`, `audit.questions.poisoning`)
and tables of the laboratory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from croupier.core.intervals import Rate, smooth

WHO = {
    "server": "the server", "client": "a client", "relay": "the relay", "second": "the second server",
    "dealer": "the dealer", "network": "the network", "malicious": "malicious clients",
}  # fmt: skip
NOTHING = "\N{EN DASH}"
# Narrow and unbreakable: a number never parts from its unit at the end of a line.
GAP = "\u202f"


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, where it has one."""

    rate: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, if both ends are known."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def who(key: str) -> str:
    """An adversary in words."""
    each = [WHO.get(name) or re.sub(r"^(sum|mix)(\d+)$", r"\1 server \2", name) for name in key.split("+")]
    return " with ".join(each) if len(each) < 3 else f"{', '.join(each[:-1])} and {each[-1]} together"


def capital(said: str) -> str:
    """As a line begins."""
    return said[:1].upper() + said[1:]


def sentence(said: str) -> str:
    """With a capital and a full stop."""
    return capital(said.strip()) + ("" if said.strip()[-1:] in ("", ".", "!", "?") else ".")


def in_words(value: object) -> str:
    """A plain value in words; tables are told key by key."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {in_words(inner)}" for key, inner in value.items())
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def number(value: object) -> float | None:
    """A finite number, or None for whatever else stands in its place."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def decimal(value: float, digits: int = 1) -> str:
    """A number with a true minus sign, and no minus before zero."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if not float(text) else text.replace("-", "\N{MINUS SIGN}")


def size(count: float | None) -> str:
    """Bytes for people, as the command line prints them."""
    if count is None:
        return NOTHING
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{decimal(count, 0 if unit == 'B' else 1)}{GAP}{unit}"
        count /= 1000
    return f"{decimal(count, 2)}{GAP}GB"


def date(stamp: str) -> str:
    """A moment as people write it; what is no moment stays as it is."""
    try:
        when = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    return f"{when.day} {when:%B %Y, %H:%M} {'UTC' if when.tzinfo and not when.utcoffset() else f'{when:%z}'}".strip()


Table = dict[str, Any]


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Table]:
    """A table for a report; none without rows."""
    return [{"title": title, "heads": list(heads), "rows": [list(row) for row in rows]}] if rows else []


def rate_of(values: Sequence[float | None], between: Callable[[list[float]], Rate] = smooth) -> dict[str, Any]:
    """A mean with its interval over the runs that have a value; with fewer than two the rate is None."""
    known = [float(value) for value in values if value is not None]
    return asdict(between(known)) if len(known) > 1 else {"rate": None}


def interval(rate: Mapping[str, Any], times: float = 1, digits: int = 1) -> str:
    """A mean with its interval, as a cell of a table; nothing where there is none."""
    if rate["rate"] is None:
        return ""
    mean, low, high = (f"{times * rate[name]:.{digits}f}" for name in ("rate", "low", "high"))
    return f"{mean} ({low} to {high})"
