"""Points of two measures as a picture: a colour for each series, a mark for each kind, panel by panel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from croupier_lab.papers.plots import COLOURS

_WIDTH, _HEIGHT, _LEFT, _TOP, _ACROSS, _DOWN = 380, 280, 60, 104, 470, 460
_LINE = 17
# Within the panel beside its axis, so that no mark is cut; and between neighbours that share a place.
_MARGIN, _BESIDE = 30, 5.0
NOTE = "bars: 95 % intervals; points of one dotted line stand side by side"
MARKS = ("triangle", "circle", "square", "diamond", "ring")


@dataclass(frozen=True)
class Dot:
    """A point: `upward` with its interval, and what is said of it where a pointer rests."""

    along: float
    upward: float
    low: float
    high: float
    series: str
    kind: str
    says: str = ""


@dataclass(frozen=True)
class Panel:
    """Dots with names for both axes; `guides` are dotted lines upward, each with its name above the panel."""

    title: str
    along: str
    upward: str
    dots: Sequence[Dot]
    guides: Mapping[str, float] = field(default_factory=dict)


def scatter(panels: Sequence[Panel], title: str, kinds: Mapping[str, str]) -> str:
    """An SVG picture; `kinds` gives each kind its mark, one of `MARKS`."""
    series = list(dict.fromkeys(dot.series for panel in panels for dot in panel.dots))
    tints = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(series)}
    drawn = {dot.kind for panel in panels for dot in panel.dots}
    body = [_panel(panel, tints, kinds, at) for at, panel in enumerate(panels)]
    body.append(_legend(tints, {name: mark for name, mark in kinds.items() if name in drawn}, *_place(len(panels))))
    columns = min(2, len(panels) + 1)
    width, height = _ACROSS * columns, _DOWN * -(-(len(panels) + 1) // 2)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
    label = f'font-size="12">\n<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head + label, *body, "</svg>\n"])


def _place(number: int) -> tuple[int, int]:
    return _ACROSS * (number % 2) + _LEFT, _DOWN * (number // 2) + _TOP


def _panel(panel: Panel, tints: Mapping[str, str], kinds: Mapping[str, str], number: int) -> str:
    right, down = _place(number)
    low, high, step = _reach([dot.along for dot in panel.dots])
    spread = (high - low) or 1.0

    def x(value: float) -> float:
        return round(_MARGIN + (_WIDTH - 2 * _MARGIN) * (value - low) / spread, 1)

    out = [f'<g transform="translate({right},{down})">']
    out.append(f'<text x="0" y="{18 - _TOP}" font-size="13" font-weight="bold">{escape(panel.title)}</text>')
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        out.append(f'<line x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="-7" y="{y + 4}" text-anchor="end">{10 * tenth} %</text>')
    for tick in range(round((high - low) / step) + 1):
        value = low + tick * step
        out.append(f'<line x1="{x(value)}" y1="{_HEIGHT}" x2="{x(value)}" y2="{_HEIGHT + 5}" stroke="#888"/>')
        out.append(f'<text x="{x(value)}" y="{_HEIGHT + 19}" text-anchor="middle">{value:.3g}</text>')
    out += _guides({name: x(value) for name, value in panel.guides.items()})
    names = list(tints)
    for dot in panel.dots:
        # Points of one guide share its place, and so stand side by side, each series at its own.
        aside = _BESIDE * (names.index(dot.series) - (len(names) - 1) / 2) if panel.guides else 0.0
        out += _dot(dot, x(dot.along) + aside, tints[dot.series], kinds[dot.kind])
    out.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 38}" text-anchor="middle">{escape(panel.along)}</text>')
    turned = f'transform="rotate(-90)" x="{-_HEIGHT / 2}" y="-46" text-anchor="middle"'
    return "\n".join([*out, f"<text {turned}>{escape(panel.upward)}</text></g>"])


def _reach(values: Sequence[float]) -> tuple[float, float, float]:
    """Round ends around all values, and a round step between them."""
    least, most = (min(values), max(values)) if values else (0.0, 1.0)
    rough = max(most - least, 1e-6) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * nice for nice in (1, 2, 5, 10) if size * nice >= rough)
    return step * math.floor(least / step + 1e-9), step * math.ceil(most / step - 1e-9), step


def _guides(places: Mapping[str, float]) -> list[str]:
    """Names stand slanted above their lines, and make room for each other."""
    out, last = [], -math.inf
    for name, x in sorted(places.items(), key=lambda pair: pair[1]):
        at = last = max(x, last + 18)
        out.append(f'<path d="M{x},{_HEIGHT}V0L{at:.1f},-8" fill="none" stroke="#aaa" stroke-dasharray="2 4"/>')
        out.append(
            f'<text transform="translate({at:.1f},-11) rotate(-40)" font-size="10" fill="#444">{escape(name)}</text>'
        )
    return out


def _dot(dot: Dot, x: float, colour: str, mark: str) -> list[str]:
    y, low, high = _y(dot.upward), _y(dot.low), _y(dot.high)
    bar = f'<line x1="{x}" y1="{low}" x2="{x}" y2="{high}" stroke="{colour}" stroke-opacity="0.3"/>'
    return [bar, f"<g><title>{escape(dot.says)}</title>{_mark(mark, x, y, colour)}</g>"]


def _mark(mark: str, x: float, y: float, colour: str) -> str:
    style = f'fill="{colour}" fill-opacity="0.75" stroke="{colour}"'
    if mark == "circle":
        return f'<circle cx="{x}" cy="{y}" r="5" {style}/>'
    if mark == "ring":
        return f'<circle cx="{x}" cy="{y}" r="6" fill="none" stroke="{colour}" stroke-width="2.5"/>'
    corners = {
        "triangle": ((0, -6.5), (6, 4.5), (-6, 4.5)),
        "square": ((-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)),
        "diamond": ((0, -8), (7, 0), (0, 8), (-7, 0)),
    }[mark]
    path = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in corners)
    return f'<polygon points="{path}" {style}/>'


def _legend(tints: Mapping[str, str], kinds: Mapping[str, str], right: int, down: int) -> str:
    out = [f'<g transform="translate({right},{down})">']
    for at, (name, colour) in enumerate(tints.items()):
        out.append(f'<rect x="0" y="{_LINE * at - 8}" width="16" height="10" fill="{colour}"/>')
        out.append(f'<text x="26" y="{_LINE * at + 1}">{escape(name)}</text>')
    top = _LINE * (len(tints) + 1)
    for at, (name, mark) in enumerate(kinds.items()):
        out.append(_mark(mark, 8, top + _LINE * at - 4, "#444"))
        out.append(f'<text x="26" y="{top + _LINE * at}">{escape(name)}</text>')
    out.append(f'<text x="0" y="{top + _LINE * (len(kinds) + 1)}" fill="#666">{NOTE}</text>')
    return "\n".join([*out, "</g>"])


def _y(value: float) -> float:
    return round(_HEIGHT * (1 - min(max(value, 0.0), 1.0)), 1)
