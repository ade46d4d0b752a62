"""What the page is built of: marks that do not rely on colour, sections, tables, and gains drawn beside zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from croupier.audit.report.read import UNITS, Question, Told, reason, sentence, status, who
from croupier.audit.report.words import Html, Rate, decimal, joined, tag

MARKS = {
    "leak": ("●", "leak"), "none-found": ("■", "none found"), "proved": ("◆", "proved"), "not-run": ("○", "not run"),
    "red": ("●", "Leaks"), "amber": ("▲", "Caution"), "green": ("■", "No leak found"),
}  # fmt: skip
FORBIDDEN = "what if: the statement forbids this"
# The cells of one line: what each says, and the number behind it.
Line = Sequence[tuple[str, Rate | float | None]]


def stamp(cell: Told) -> Html:
    """The mark of a finding: what malicious clients break is no leak, and a worst case is said to be one."""
    broken, rare = cell.text("adversary") == "malicious", bool(cell.text("worst_case"))
    words = {"leak": "broken" if broken else "leak in the worst case" if rare else "leak"}
    if status(cell) == "none-found" and cell.plain.get("unsure"):
        return mark("amber", "cannot tell")
    return mark(status(cell), words.get(status(cell), ""))


def mark(kind: str, said: str = "") -> Html:
    """A shape and a word; colour only repeats them."""
    shape, word = MARKS.get(kind, ("?", "Not judged"))
    word = said or word
    known = kind if kind in MARKS else "unknown"
    return tag("span", tag("span", shape, aria_hidden="true"), f" {word}", class_=f"mark {known}")


def named(adversary: str, forbidden: object) -> Html:
    """An adversary, and whether it is a what if."""
    return joined([who(adversary) or "nobody", *([tag("em", FORBIDDEN)] if forbidden else [])])


def small(said: str) -> Html:
    """An aside, where there is something to say."""
    return tag("small", said) if said else Html()


def section(name: str, title: str, *inside: str, class_: str | None = None) -> Html:
    """A section under its heading; nothing where there is nothing under it."""
    head = tag("h2", title, id=f"{name}-title")
    whole = tag("section", head, *inside, id=name, aria_labelledby=f"{name}-title", class_=class_)
    return whole if any(inside) else Html()


def fold(title: str, *inside: str, **more: object) -> Html:
    """What can be opened; on paper it is."""
    return tag("details", tag("summary", title), *inside, **more)


def table(caption: str, heads: Sequence[str], lines: Iterable[Line], **more: str) -> Html:
    """A table of words with the numbers behind them; the first cell of a line names it.

    Roles repeat what elements say, because a narrow screen stacks cells; `data-head` brings a column's name back.
    """
    top = tag("tr", *(tag("th", head, scope="col", role="columnheader") for head in heads), role="row")
    rows = []
    for (name, _), *cells in lines:
        rest = [
            tag("td", tag("div", said), data_head=head, data_value=_raw(value), role="cell")
            for head, (said, value) in zip(heads[1:], cells, strict=False)
        ]
        rows.append(tag("tr", tag("th", name, scope="row", role="rowheader"), *rest, role="row"))
    head, body = tag("thead", top, role="rowgroup"), tag("tbody", *rows, role="rowgroup")
    return tag("div", tag("table", tag("caption", caption), head, body, role="table", **more), class_="scroll")


def _raw(value: Rate | float | None) -> float | None:
    return value.rate if isinstance(value, Rate) else value


@dataclass(frozen=True)
class Axis:
    """A line from `low` to `high` that holds zero, with round ticks every `step`."""

    low: float
    high: float
    step: float

    def x(self, value: float) -> str:
        """Where a value stands from left to right; a dot at an end is whole."""
        return f"{4 + 92 * (value - self.low) / (self.high - self.low):.2f}%"


def axis(gains: Iterable[Rate | None]) -> Axis:
    """An axis that holds zero and all of these with their intervals."""
    known = [value for gain in gains if gain for value in (gain.rate, *(gain.ends or ()))]
    low, high = min([0.0, *known]), max([0.0, *known])
    rough = max(high - low, 1e-6) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return Axis(math.floor(low / step) * step, max(math.ceil(high / step), 1) * step, step)


def plot(question: Question, cells: Sequence[tuple[str, Told]], along: Axis, level: str) -> Html:
    """The gain of each adversary with its interval against zero; words and numbers are text beside the drawing."""
    unit = f" ({question.points})" if question.points else ""
    said = tag("figcaption", f"What each adversary gains over its prior{unit}, with its {level} interval.")
    ticks = [_ticks(along, question)] if any(cell.part("gain").rate() for _, cell in cells) else []
    return tag("figure", said, *(_line(question, key, cell, along) for key, cell in cells), *ticks, class_="plot")


def _line(question: Question, adversary: str, cell: Told, along: Axis) -> Html:
    forbidden, gain = cell.plain.get("forbidden"), cell.part("gain").rate()
    label = tag("div", named(adversary, forbidden), class_="name")
    if gain is None:
        return tag("div", label, tag("div", stamp(cell), " ", sentence(reason(cell)), class_="why"), class_="line")
    kind = "hollow" if forbidden else status(cell)
    low, high = gain.ends or (gain.rate, gain.rate)
    drawing = _svg(
        tag("line", x1=along.x(0), x2=along.x(0), y1=0, y2="100%", class_="zero"),
        tag("line", x1=along.x(low), x2=along.x(high), y1="50%", y2="50%", class_=f"whisker {kind}"),
        tag("circle", cx=along.x(gain.rate), cy="50%", r=5, class_=f"dot {kind}"),
    )
    value = tag("div", *spread(question, gain), data_value=gain.rate)
    return tag("div", label, drawing, value, stamp(cell), class_="line")


def spread(question: Question, gain: Rate) -> tuple[Html, Html]:
    """A gain, and its interval below."""
    return tag("b", question.gain(Rate(gain.rate))), small(question.ends(gain))


def _ticks(along: Axis, question: Question) -> Html:
    factor = UNITS[question.unit][0] if question.unit in UNITS else 1.0
    digits = max(0, -math.floor(math.log10(along.step * factor) + 1e-9))
    values = [along.low + at * along.step for at in range(round((along.high - along.low) / along.step) + 1)]
    said = [(decimal(value * factor, digits), along.x(value)) for value in values]
    drawing = _svg(*(tag("text", text, x=x, y=14, text_anchor="middle") for text, x in said))
    return tag("div", tag("div", class_="name"), drawing, class_="line ticks")


def _svg(*inside: Html) -> Html:
    drawing = tag("svg", *inside, width="100%", height="100%", aria_hidden="true", focusable="false")
    return tag("div", drawing, class_="place")
