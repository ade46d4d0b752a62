"""The report as one HTML page that needs nothing else: no network, no font, and no script to be readable.

The templates lie beside this file (`page.html`, `brief.html` and their parts). They take what was found from
`audit.report.read`, so that page, Markdown and terminal agree; headings and explanations are their own. The script
sorts and filters the matrix, and opens folded parts for links and printers. `audit.report.result` calls `render` for
the page, and `brief` for the short form that a notebook shows. Whatever a report holds is escaped, and only PNGs are
shown as pictures, because a report may come from somebody else.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from croupier.audit.report import read, words
from croupier.audit.report.read import Lenient
from croupier.audit.report.words import Estimate, decimal

PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]*={0,2}")


def render(findings: Mapping[str, Any]) -> str:
    """The whole page."""
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _rendered("page.html", findings, script=Markup(script), digest=digest, style=Markup(_asset("report.css")))


def brief(findings: Mapping[str, Any]) -> str:
    """The verdict and the matrix alone, for a notebook: styled within their own place."""
    return _rendered("brief.html", findings, style=Markup(_asset("report.css").replace(":root", ":scope")))


def _rendered(template: str, findings: Mapping[str, Any], **more: object) -> str:
    found = Lenient(findings)
    rows, asked = found.parts("rows"), read.questions(found)
    level = f"{100 * (found.number('level') or 0.95):.3g} %"
    known = {"found": found, "verdict": found.part("verdict"), "rows": rows, "asked": asked, "strips": _strips(found)}
    return _environment().get_template(template).render(known, level=level, columns=read.columns(found), **more)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("croupier.audit.report", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    for name in ("who", "capital", "sentence", "in_words", "number", "decimal", "size", "date"):
        made.filters[name] = getattr(words, name)
    made.globals |= {"read": read, "Lenient": Lenient, "Estimate": Estimate, "axis": axis, "zip": zip}
    return made


@cache
def _asset(name: str) -> str:
    return (resources.files("croupier.audit.report") / name).read_text("utf-8")


def _strips(found: Lenient) -> list[dict[str, Any]]:
    """Records beside what attacks made of them, defence by defence; what is no picture is left out."""
    titles, shown = {row.text("defence"): read.title(row) for row in found.parts("rows")}, []
    for one in found.parts("pictures"):
        name, forbidden = one.text("defence"), one.plain.get("forbidden")
        strip = {"defence": titles.get(name, name), "adversary": one.text("adversary"), "forbidden": forbidden}
        if pictures := [each for each in one.parts("pictures") if PNG.fullmatch(each.text("png"))]:
            shown.append({**strip, "name": one.text("title"), "pictures": pictures})
    return shown


@dataclass(frozen=True)
class GainAxis:
    """An axis of gains from `low` to `high`, with a tick at every `step`; zero is one of the ticks."""

    low: float
    high: float
    step: float

    def x(self, value: float) -> str:
        """Where a value stands from left to right: between 4 and 96 %, so that no dot is cut off at an end."""
        return f"{4 + 92 * (value - self.low) / (self.high - self.low):.2f}%"

    def ticks(self, factor: float) -> list[tuple[str, str]]:
        """What is written below it, and where."""
        digits = max(0, -math.floor(math.log10(self.step * factor) + 1e-9))
        values = [self.low + at * self.step for at in range(round((self.high - self.low) / self.step) + 1)]
        return [(decimal(value * factor, digits), self.x(value)) for value in values]


def axis(gains: Iterable[Estimate | None]) -> GainAxis:
    """An axis that includes zero and all of these estimates with their intervals."""
    known = [value for gain in gains if gain for value in (gain.rate, *(gain.ends or ()))]
    low, high = min([0.0, *known]), max([0.0, *known])
    rough = max(high - low, 1e-6) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return GainAxis(math.floor(low / step) * step, max(math.ceil(high / step), 1) * step, step)
