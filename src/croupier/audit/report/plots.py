"""Plots of dots and bars: labels are text on the page and marks are placed in percent, so that no text shrinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from croupier.audit.report.facts import Attack, Row
from croupier.audit.report.words import Html, Rate, decimal, full, interval, joined, percent, points, size, tag

FAILED = "failed its control, scores nothing"
# Room left and right of the axis, in percent, so that a dot at its end is whole.
MARGIN = 3.0


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high` with a tick every `step`."""

    low: float
    high: float
    step: float

    def at(self, value: float) -> float:
        """Where a value stands along the axis, from 0 to 1, held at the ends."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def x(self, value: float) -> str:
        """Where a value stands from left to right."""
        return f"{MARGIN + (100 - 2 * MARGIN) * self.at(value):.2f}%"

    @property
    def ticks(self) -> list[float]:
        """The values that are written at the axis."""
        count = round((self.high - self.low) / self.step)
        return [self.low + index * self.step for index in range(count + 1)]


def scale(values: Iterable[float], least: float | None = None, most: float | None = None) -> Scale:
    """An axis with round ticks that holds all values, but nothing below `least` or above `most`."""
    known = [min(max(v, -math.inf if least is None else least), math.inf if most is None else most) for v in values]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
        low, high = max(low, -math.inf if least is None else least), min(high, math.inf if most is None else most)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step)


def ends(rates: Iterable[Rate | None]) -> list[float]:
    """Every number that an axis for these rates must hold."""
    return [value for rate in rates if rate for value in (rate.rate, *(rate.ends or ()))]


def shares(rows: Sequence[Row]) -> Scale:
    """The axis that all plots of success share: from zero, so that lengths compare."""
    rates = [attack.rate for row in rows for attack in (*row.attacks, row.prior) if attack]
    rounds = [moment.rate for row in rows for attack in (*row.attacks, row.prior) if attack for moment in attack.rounds]
    chances = [row.chance for row in rows if row.chance is not None]
    return scale([0.0, *chances, *ends([*rates, *rounds])] if any(rates) else [0.0, 1.0], 0.0, 1.0)


def differences(rows: Sequence[Row]) -> Scale:
    """The axis of the leaks: it always holds zero."""
    return scale([0.0, *ends(attack.leak for row in rows for attack in row.attacks)], -1.0, 1.0)


def success(rows: Sequence[Row]) -> Html:
    """How often each attack names the right client, beside the prior and 1/n."""
    axis = shares(rows)
    groups = [
        _group(row.name, f"prior {full(row.prior.rate if row.prior else None)}", _successes(row, axis)) for row in rows
    ]
    return joined([_key(_SUCCESS_KEY), *groups, _axis(axis, 100, "Records whose client is named correctly (%)")])


def leaks(rows: Sequence[Row]) -> Html:
    """What each attack adds to the prior, around zero."""
    axis = differences(rows)
    groups = [_group(row.name, "", _leaks(row, axis)) for row in rows]
    return joined([_key(_LEAK_KEY), *groups, _axis(axis, 100, "Success minus prior (percentage points)", signed=True)])


def traffic(rows: Sequence[Row]) -> Html:
    """How much every client sends in a round."""
    sent = [row.sent for row in rows if row.sent is not None]
    axis = scale([0.0, max(sent, default=0.0) or 1.0])
    unit, name = _unit(axis.high)
    bars = [_line(row.name, _bar(axis, row.sent), size(row.sent), _exact(row.sent), "bar") for row in rows]
    return joined([*bars, _axis(axis, 1 / unit, f"Sent by each client in a round ({name})")])


def passes(axis: Scale, rates: Iterable[Rate | None]) -> bool:
    """Whether an interval runs past the axis."""
    return any(rate.ends and (rate.ends[0] < axis.low or rate.ends[1] > axis.high) for rate in rates if rate)


def svg(*inside: str, class_: str, height: int | None = None) -> Html:
    """A drawing as wide as its place; the words around it say what it shows."""
    high = "100%" if height is None else height
    return tag("svg", *inside, class_=class_, width="100%", height=high, aria_hidden="true", focusable="false")


def dot(x: str, y: str | float, kind: str) -> Html:
    """The mark of a value: filled, or hollow where it does not count."""
    return tag("circle", cx=x, cy=y, r=4.5, class_=f"mark {kind}")


def _successes(row: Row, axis: Scale) -> list[Html]:
    back = _references(row, axis)
    lines = [_attack_line(attack, attack.rate, axis, back, percent) for attack in row.ran]
    return lines or [_line("No attack was run on this view: the prior stands alone.", back, "", "", "none")]


def _leaks(row: Row, axis: Scale) -> list[Html]:
    back = _vertical(axis, 0.0, "zero")
    lines = [_attack_line(attack, attack.leak, axis, back, points) for attack in row.ran]
    return lines or [_line("No attack was run on this view.", back, "", "", "none")]


def _attack_line(
    attack: Attack, rate: Rate | None, axis: Scale, back: Html, say: Callable[[float | None], str]
) -> Html:
    kind = "full" if attack.scored else "hollow"
    value = say(rate.rate if rate else None)
    name: list[str] = [attack.title] if attack.scored else [attack.title, " ", tag("em", FAILED)]
    return _line(joined(name), joined([back, _whisker(axis, rate, kind)]), value, interval(rate) if rate else "", kind)


def _references(row: Row, axis: Scale) -> Html:
    """The prior as a line in its band, and 1/n."""
    parts: list[Html] = []
    prior = row.prior.rate if row.prior else None
    if prior and prior.ends:
        low, high = (MARGIN + (100 - 2 * MARGIN) * axis.at(end) for end in prior.ends)
        parts.append(tag("rect", x=f"{low:.2f}%", y=0, width=f"{high - low:.2f}%", height="100%", class_="band"))
    if row.chance is not None:
        parts.append(_vertical(axis, row.chance, "chance"))
    if prior:
        parts.append(_vertical(axis, prior.rate, "prior"))
    return joined(parts)


def _vertical(axis: Scale, value: float, kind: str) -> Html:
    return tag("line", x1=axis.x(value), x2=axis.x(value), y1=0, y2="100%", class_=kind)


def _whisker(axis: Scale, rate: Rate | None, kind: str) -> Html:
    """A dot with its interval; an end that lies past the axis is an arrow, not a cap."""
    if rate is None:
        return Html()
    parts: list[Html] = []
    if rate.ends:
        low, high = rate.ends
        parts.append(tag("line", x1=axis.x(low), x2=axis.x(high), y1="50%", y2="50%", class_=f"whisker {kind}"))
        parts += [_tip(axis, low, -1, kind), _tip(axis, high, 1, kind)]
    return joined([*parts, dot(axis.x(rate.rate), "50%", kind)])


def _tip(axis: Scale, value: float, side: int, kind: str) -> Html:
    outside = value < axis.low - 1e-9 if side < 0 else value > axis.high + 1e-9
    # A nested drawing is the one way to put fixed shapes at a place given in percent.
    # An arrow stands clear of a dot at the very end of the axis.
    path = f"M{4 * side} -5L{10 * side} 0L{4 * side} 5" if outside else "M0 -5V5"
    return tag("svg", tag("path", d=path, class_=f"tip {kind}"), x=axis.x(value), y="50%", class_="at")


def _bar(axis: Scale, value: float | None) -> Html:
    width = 0.0 if value is None else (100 - 2 * MARGIN) * axis.at(value)
    start = f"{MARGIN:.2f}%"
    return joined([
        tag("rect", x=start, y="25%", width=f"{width:.2f}%", height="50%", class_="mark full"),
        _vertical(axis, axis.low, "zero"),
    ])  # fmt: skip


def _exact(count: float | None) -> str:
    """The count in bytes, beside the rounded one."""
    return "" if count is None or count < 1000 else f"{count:,.0f} B".replace(",", "\u202f")


def _unit(count: float) -> tuple[float, str]:
    units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")]
    return next(((factor, name) for factor, name in units if count >= factor), (1.0, "B"))


def _group(name: str, aside: str, lines: Sequence[Html]) -> Html:
    """One defence: its name, a word beside it, and its lines."""
    head = tag("div", tag("strong", name), tag("span", aside), class_="group-name")
    return tag("div", head, *lines, class_="group")


def _line(name: str, marks: Html, value: str, aside: str, kind: str) -> Html:
    drawing = tag("div", svg(marks, class_="track"), class_="place")
    number = tag("div", tag("b", value), " ", tag("span", aside), class_="value") if value else tag("div")
    return tag("div", tag("div", name, class_="name"), drawing, number, class_=f"line {kind}")


def _axis(axis: Scale, factor: float, label: str, signed: bool = False) -> Html:
    digits = max(0, -math.floor(math.log10(axis.step * factor) + 1e-9))
    marks: list[Html] = []
    for value in axis.ticks:
        x = axis.x(value)
        sign = "+" if signed and value > axis.step / 2 else ""
        marks.append(tag("line", x1=x, x2=x, y1=0, y2=6, class_="tick"))
        marks.append(tag("text", sign + decimal(value * factor, digits), x=x, y=22, text_anchor="middle"))
    base = tag("line", x1=f"{MARGIN}%", x2=f"{100 - MARGIN}%", y1=0.5, y2=0.5, class_="tick")
    drawing = tag(
        "div", svg(base, *marks, class_="scale", height=28), tag("div", label, class_="label"), class_="place"
    )
    return tag("div", tag("div"), drawing, tag("div"), class_="line axis")


def _sample(kind: str) -> Html:
    """The mark of one entry in a key."""
    middle = {
        "prior": tag("rect", x=6, y=0, width=16, height=16, class_="band")
        + tag("line", x1=14, x2=14, y1=0, y2=16, class_="prior"),
        "chance": tag("line", x1=14, x2=14, y1=0, y2=16, class_="chance"),
        "zero": tag("line", x1=14, x2=14, y1=0, y2=16, class_="zero"),
    }.get(kind)
    drawn = (
        Html(middle) if middle else tag("line", x1=1, x2=27, y1=8, y2=8, class_=f"whisker {kind}") + dot("14", 8, kind)
    )
    return tag("svg", Html(drawn), width=28, height=16, class_="sample", aria_hidden="true", focusable="false")


def _key(entries: Sequence[tuple[str, str]]) -> Html:
    return tag("div", *(tag("span", _sample(kind), said) for kind, said in entries), class_="key")


_SUCCESS_KEY = [
    ("full", "success of an attack, with its 95 % interval"),
    ("hollow", FAILED),
    ("prior", "prior, with its 95 % interval"),
    ("chance", "1/n, blind guessing"),
]
_LEAK_KEY = [("full", "leak, with its 95 % interval"), ("hollow", FAILED), ("zero", "no leak: the prior itself")]
