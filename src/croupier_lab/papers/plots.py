"""Pictures of marks: lines with intervals and priors, panel by panel, and spots coloured by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

COLOURS = ("#1b5e9c", "#b4451f", "#3d7a3a", "#7b3f9b", "#a07d00", "#007c89", "#c2307a", "#555555", "#8c564b", "#4c9ed9")
_WIDTH, _HEIGHT, _LEFT, _TOP = 270, 190, 46, 40
_ACROSS, _DOWN, _COLUMNS = 350, 300, 3
# A label, and a mark: its rate, where known with an interval and a prior.
Point = tuple[str, Mapping[str, Any]]
Panels = Mapping[str, Mapping[str, Sequence[Point]]]


@dataclass(frozen=True)
class Axis:
    """The values written beside the lines, and how far up a value stands, from 0 to 1."""

    ticks: tuple[tuple[float, str], ...]
    up: Callable[[float], float]


UNIT = Axis(tuple((tenth / 10, f"{tenth / 10:g}") for tenth in range(0, 11, 2)), lambda value: value)


def between(low: float, high: float) -> Axis:
    """Five equal parts."""
    marks = [low + (high - low) * part / 5 for part in range(6)]
    return Axis(tuple((mark, f"{mark:.4g}") for mark in marks), lambda value: (value - low) / (high - low))


def decades(values: Sequence[float]) -> Axis:
    """Powers of ten around positive values, each as far from the next."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    ticks = tuple((10.0**power, f"{10.0**power:g}") for power in range(low, high + 1))
    # An interval may reach below nothing, which has no place here.
    return Axis(ticks, lambda value: (math.log10(max(value, 10.0**low)) - low) / (high - low))


def lines(
    panels: Panels, title: str, along: str, axis: Axis = UNIT, *, priors: bool = True, joined: bool = True
) -> str:
    """A panel for each name, a line for each series; dashes are the priors where there are any, bars the intervals.

    Points along kinds that have no order are not `joined`.
    """
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    body = [
        _lines(name, series, names, along, axis, joined, *_place(at))
        for at, (name, series) in enumerate(panels.items())
    ]
    legend = _legend([*names, *(["prior"] if priors else [])], priors, *_place(len(panels)))
    return _page([*body, legend], title, len(panels) + 1)


def spots(panels: Mapping[str, tuple[Sequence[Sequence[float]], Sequence[str]]], title: str) -> str:
    """A panel for each name: one spot for each row, coloured by its owner's class."""
    body = [_spots(name, *one, *_place(at)) for at, (name, one) in enumerate(panels.items())]
    return _page(body, title, len(panels))


def _place(number: int) -> tuple[int, int]:
    return _ACROSS * (number % _COLUMNS) + _LEFT, _DOWN * (number // _COLUMNS) + _TOP


def _page(body: Sequence[str], title: str, count: int) -> str:
    width, height = _COLUMNS * _ACROSS, _DOWN * -(-count // _COLUMNS) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
    label = f'font-size="11">\n<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head + label, *body, "</svg>\n"])


def _group(name: str, right: int, down: int) -> list[str]:
    return [f'<g transform="translate({right},{down})">', f'<text x="0" y="-10" font-size="10">{escape(name)}</text>']


def _lines(
    name: str,
    series: Mapping[str, Sequence[Point]],
    names: Sequence[str],
    along: str,
    axis: Axis,
    joined: bool,
    right: int,
    down: int,
) -> str:
    labels = list(dict.fromkeys(label for points in series.values() for label, _ in points))
    if along == "round":
        labels.sort(key=float)
    out = _group(name, right, down)
    for value, written in axis.ticks:
        y = _y(axis.up(value))
        out.append(f'<line x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="-6" y="{y + 4}" text-anchor="end">{escape(written)}</text>')
    every = max(1, len(labels) // 8)
    for at, label in enumerate(labels):
        if at % every == 0:
            x = _x(at, len(labels))
            out.append(f'<text x="{x}" y="{_HEIGHT + 15}" text-anchor="middle">{escape(label)}</text>')
    for at, (title, points) in enumerate(series.items()):
        # Later lines are thinner, so that one that lies on another does not hide it.
        out += _line(
            points, labels, COLOURS[names.index(title) % len(COLOURS)], max(1.2, 3.4 - 0.7 * at) * joined, axis
        )
    out.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 30}" text-anchor="middle">{escape(along)}</text></g>')
    return "\n".join(out)


def _line(points: Sequence[Point], labels: Sequence[str], colour: str, width: float, axis: Axis) -> list[str]:
    known = [(_x(labels.index(label), len(labels)), mark) for label, mark in points if mark["rate"] is not None]
    out = []
    dashes, whole = ' stroke-dasharray="4 3" stroke-opacity="0.6"', f' stroke-width="{width:.1f}"'
    for key, style in (("prior", dashes), ("rate", whole)):
        path = " ".join(f"{x},{_y(axis.up(mark[key]))}" for x, mark in known if key in mark)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}"{style}/>')
    for x, mark in known:
        if "low" in mark:
            ends = f'y1="{_y(axis.up(mark["low"]))}" y2="{_y(axis.up(mark["high"]))}"'
            out.append(f'<line x1="{x}" {ends} x2="{x}" stroke="{colour}" stroke-opacity="0.35"/>')
        out.append(f'<circle cx="{x}" cy="{_y(axis.up(mark["rate"]))}" r="{2.2 if width else 4}" fill="{colour}"/>')
    return out


def _spots(name: str, found: Sequence[Sequence[float]], classes: Sequence[str], right: int, down: int) -> str:
    out = _group(name, right, down)
    out.append(f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#ccc"/>')
    across, upward = (_scale([one[side] for one in found]) for side in (0, 1))
    for odds, first, kind in found:
        x, y = round(_WIDTH * across(odds), 1), round(_HEIGHT * (1 - upward(first)), 1)
        out.append(f'<circle cx="{x}" cy="{y}" r="2" fill="{COLOURS[int(kind) % len(COLOURS)]}" fill-opacity="0.6"/>')
    for at, title in enumerate(classes):
        x = 64 * at
        out.append(f'<circle cx="{x + 4}" cy="{_HEIGHT + 30}" r="3" fill="{COLOURS[at % len(COLOURS)]}"/>')
        out.append(f'<text x="{x + 12}" y="{_HEIGHT + 34}">{escape(title)}</text>')
    axis = "the surrogate's log odds (last class against first)"
    return "\n".join([*out, f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 15}" text-anchor="middle">{axis}</text></g>'])


def _scale(values: Sequence[float]) -> Any:
    """To 0 ... 1 between the second and the last but one hundredth; what lies beyond stands at the edge."""
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.01, 0.99)) if ordered else (0.0, 1.0)
    return lambda value: min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))


def _legend(names: Sequence[str], dashed: bool, right: int, down: int) -> str:
    out = [f'<g transform="translate({right},{down})">']
    for number, name in enumerate(names):
        y, last = 16 * number, dashed and number == len(names) - 1
        style = 'stroke="#333" stroke-dasharray="4 3"' if last else f'stroke="{COLOURS[number % len(COLOURS)]}"'
        out.append(f'<line x1="0" y1="{y}" x2="24" y2="{y}" stroke-width="2" {style}/>')
        out.append(f'<text x="32" y="{y + 4}">{escape(name.replace("_", " "))}</text>')
    return "\n".join([*out, "</g>"])


def _x(at: int, count: int) -> float:
    return round(_WIDTH * (at + 0.5) / count, 1)


def _y(value: float) -> float:
    return round(_HEIGHT * (1 - min(max(value, 0.0), 1.0)), 1)
