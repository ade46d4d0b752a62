"""Plots over rounds: small panels of attack success, and one of accuracy with a letter at the end of each line."""

from __future__ import annotations

from collections.abc import Sequence

from croupier.audit.report.facts import Attack, Moment, Row
from croupier.audit.report.plots import Scale, dot, ends, scale, shares, svg
from croupier.audit.report.words import Html, decimal, joined, percent, tag

PANEL, WHOLE = 150, 260
# Above the plot, for the words "best round"; below it, so that a dot at the bottom is whole.
TOP, BOTTOM = 22, 8
MARKERS = ("M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-4.5 -4.5h9v9h-9z", "M0 -6L6 5H-6z", "M0 -6L6 0L0 6L-6 0z")
DASHES = ("", "7 4", "2 4", "10 4 2 4")
# More lines than this, and their intervals would cover each other.
CLEAR = 4
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def panels(rows: Sequence[Row]) -> Html:
    """The strongest scored attack of each defence, round by round, against the prior."""
    axis = shares(rows)
    key = tag(
        "div",
        tag("span", _sample(tag("line", x1=1, x2=27, y1=8, y2=8, class_="run full"), dot("14", 8, "full")),
            "strongest scored attack, mean over runs"),
        tag("span", _sample(tag("rect", x=1, y=2, width=26, height=12, class_="band"),
            tag("line", x1=1, x2=27, y1=8, y2=8, class_="run prior")), "prior, with its 95 % interval"),
        tag("span", _sample(tag("circle", cx=14, cy=8, r=7, class_="ring")), "best round, never a result by itself"),
        class_="key",
    )  # fmt: skip
    return joined([key, tag("div", *(_panel(row, axis) for row in rows), class_="panels")])


def accuracy(rows: Sequence[Row]) -> Html:
    """One line per defence; defences whose lines coincide share one."""
    lines = together(rows)
    moments = [moment for line in lines for moment in line[0].rounds]
    up, along = scale(ends(moment.rate for moment in moments), 0.0, 1.0), _rounds(moments)
    drawn = [_accuracy(line[0].rounds, index, along, up, len(lines) <= CLEAR) for index, line in enumerate(lines)]
    names = [_named(index, line) for index, line in enumerate(lines)]
    plot = _frame(joined(drawn), along, up, WHOLE, "Accuracy (%)", _letters(lines, up))
    return joined([plot, tag("ul", *names, class_="names")])


def together(rows: Sequence[Row]) -> list[list[Row]]:
    """Defences by their lines: those that coincide in every round stand together."""
    found: dict[tuple[tuple[int, int], ...], list[Row]] = {}
    for row in rows:
        if row.rounds:
            # A tenth of a point is the last digit shown, and less than the width of a line.
            shape = tuple((moment.round, round(1000 * moment.rate.rate)) for moment in row.rounds)
            found.setdefault(shape, []).append(row)
    return list(found.values())


def _panel(row: Row, axis: Scale) -> Html:
    attack, prior = row.strongest, row.prior.rounds if row.prior else ()
    moments = [*prior, *(attack.rounds if attack else ())]
    along = _rounds(moments)
    marks = joined(
        [_band(prior, along, axis), _curve(prior, along, axis, PANEL, "prior"), _attack(attack, along, axis)]
    )
    plot = _frame(marks, along, axis, PANEL, "Success (%)")
    return tag("div", tag("strong", row.name), tag("div", *_said(attack), class_="said"), plot, class_="panel")


def _said(attack: Attack | None) -> list[Html]:
    if attack is None:
        return [tag("span", "no scored attack; the prior alone")]
    said = [tag("span", attack.title), tag("span", f"mean {percent(attack.rate.rate if attack.rate else None)}")]
    if attack.best:
        said.append(tag("span", f"best round ({attack.best.round}) {percent(attack.best.rate.rate)}"))
    return said


def _attack(attack: Attack | None, along: Scale, up: Scale) -> Html:
    if attack is None:
        return Html()
    moments = attack.rounds
    parts = [_curve(moments, along, up, PANEL, "full")]
    # Beyond two dozen rounds dots would touch; the line says it all.
    if len(moments) <= 24:
        parts += [_bar(moment, along, up, PANEL) for moment in moments]
        parts += [dot(along.x(moment.round), _y(up, moment.rate.rate, PANEL), "full small") for moment in moments]
    if attack.best and along.low <= attack.best.round <= along.high:
        parts.append(_best(attack.best, along, up))
    return joined(parts)


def _best(best: Moment, along: Scale, up: Scale) -> Html:
    """A ring round the best round, named above the plot."""
    place, x, y = along.at(best.round), along.x(best.round), float(_y(up, best.rate.rate, PANEL))
    anchor = "start" if place < 0.25 else "end" if place > 0.75 else "middle"
    return joined([
        tag("line", x1=x, x2=x, y1=TOP - 6, y2=f"{max(y - 9, TOP - 6):.1f}", class_="lead"),
        tag("circle", cx=x, cy=f"{y:.1f}", r=9, class_="ring"),
        tag("text", "best round", x=x, y=TOP - 10, text_anchor=anchor),
    ])  # fmt: skip


def _rounds(moments: Sequence[Moment]) -> Scale:
    numbers = [moment.round for moment in moments] or [1]
    first, last = min(numbers), max(max(numbers), min(numbers) + 1)
    return Scale(first, last, max(1, -(-(last - first) // 5)))


def _y(up: Scale, value: float, height: int) -> str:
    return f"{TOP + (height - TOP - BOTTOM) * (1 - up.at(value)):.1f}"


def _bar(moment: Moment, along: Scale, up: Scale, height: int) -> Html:
    if not moment.rate.ends:
        return Html()
    low, high = (_y(up, end, height) for end in moment.rate.ends)
    return tag("line", x1=along.x(moment.round), x2=along.x(moment.round), y1=low, y2=high, class_="range")


def _stretched(shape: Html, height: int) -> Html:
    """A shape whose x runs from 0 to 1000 over any width, with strokes that stay as they are."""
    return tag("svg", shape, width="100%", height=height, viewBox=f"0 0 1000 {height}", preserveAspectRatio="none")


def _across(along: Scale, number: int) -> str:
    return f"{10 * float(along.x(number).rstrip('%')):.1f}"


def _curve(moments: Sequence[Moment], along: Scale, up: Scale, height: int, kind: str, dash: str = "") -> Html:
    places = " ".join(f"{_across(along, m.round)},{_y(up, m.rate.rate, height)}" for m in moments)
    line = tag("polyline", points=places, class_=f"run {kind}", stroke_dasharray=dash or None)
    if len(moments) == 1:
        return dot(along.x(moments[0].round), _y(up, moments[0].rate.rate, height), f"{kind} small")
    return _stretched(line, height) if moments else Html()


def _band(moments: Sequence[Moment], along: Scale, up: Scale) -> Html:
    known = [(moment.round, moment.rate.ends) for moment in moments if moment.rate.ends]
    if len(known) < 2:
        return Html()
    there = [f"{_across(along, number)},{_y(up, both[0], PANEL)}" for number, both in known]
    back = [f"{_across(along, number)},{_y(up, both[1], PANEL)}" for number, both in reversed(known)]
    return _stretched(tag("polygon", points=" ".join(there + back), class_="band"), PANEL)


def _accuracy(moments: Sequence[Moment], index: int, along: Scale, up: Scale, bars: bool) -> Html:
    parts = [_bar(moment, along, up, WHOLE) for moment in moments if bars]
    parts.append(_curve(moments, along, up, WHOLE, "full", DASHES[index // len(MARKERS) % len(DASHES)]))
    # Every line has its own marker, set apart from its neighbours where there are many rounds.
    for moment in moments[:: max(1, len(moments) // 12)]:
        marker = tag("path", d=MARKERS[index % len(MARKERS)], class_=_marker(index))
        parts.append(tag("svg", marker, x=along.x(moment.round), y=_y(up, moment.rate.rate, WHOLE), class_="at"))
    return joined(parts)


def _marker(index: int) -> str:
    return "mark small " + ("full" if index // len(MARKERS) % 2 == 0 else "hollow")


def _letters(lines: Sequence[Sequence[Row]], up: Scale) -> Html:
    """A letter at the end of each line, moved apart where they would touch."""
    wanted = sorted((float(_y(up, line[0].rounds[-1].rate.rate, WHOLE)), index) for index, line in enumerate(lines))
    gap = min(15.0, (WHOLE - TOP) / max(1, len(lines)))
    places: list[float] = []
    for y, _ in wanted:
        places.append(max(y, places[-1] + gap) if places else y)
    over = max(0.0, places[-1] - (WHOLE - BOTTOM)) if places else 0.0
    for place in range(len(places) - 1, -1, -1):
        places[place] = min(places[place], WHOLE - BOTTOM - gap * (len(places) - 1 - place)) if over else places[place]
    marks = [
        tag("text", _letter(index), x=4, y=f"{y + 4:.1f}", class_="letter")
        for (_, index), y in zip(wanted, places, strict=True)
    ]
    return joined(marks)


def _letter(index: int) -> str:
    return LETTERS[index] if index < len(LETTERS) else str(index + 1)


def _named(index: int, line: Sequence[Row]) -> Html:
    marker = tag("path", d=MARKERS[index % len(MARKERS)], class_=_marker(index))
    dash = DASHES[index // len(MARKERS) % len(DASHES)]
    stroke = tag("line", x1=1, x2=27, y1=8, y2=8, class_="run full", stroke_dasharray=dash or None)
    drawn = _sample(stroke, tag("svg", marker, x=14, y=8, class_="at"))
    same = [tag("em", f" (these {len(line)} lines coincide)")] if len(line) > 1 else []
    return tag("li", tag("b", _letter(index)), drawn, tag("span", ", ".join(row.name for row in line), *same))


def _sample(*marks: Html) -> Html:
    return tag("svg", *marks, width=28, height=16, class_="sample", aria_hidden="true", focusable="false")


def _frame(marks: Html, along: Scale, up: Scale, height: int, label: str, right: Html | None = None) -> Html:
    """A plot with its two axes; only widths stretch, so that text keeps its size."""
    levels = [(_y(up, value, height), decimal(100 * value, 0 if up.step >= 0.01 else 1)) for value in up.ticks]
    grid = [tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid") for y, _ in levels]
    left = [tag("text", said, x="100%", y=f"{float(y) + 4:.1f}", text_anchor="end") for y, said in levels]
    numbers = [int(value) for value in along.ticks if value <= along.high]
    below = [tag("text", str(number), x=along.x(number), y=14, text_anchor="middle") for number in numbers]
    return tag(
        "div",
        tag("div", label, class_="label up"),
        svg(*left, class_="scale", height=height),
        svg(*grid, marks, class_="field", height=height),
        svg(right or "", class_="scale right", height=height),
        svg(*below, class_="scale below", height=18),
        tag("div", "Round", class_="label below"),
        class_="frame",
    )  # fmt: skip
