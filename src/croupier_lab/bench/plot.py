"""A sweep as a picture: seconds and memory against size, both on logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_COLOURS = ("#1b5e9c", "#b4451f", "#3d7a3a")
_WIDTH, _HEIGHT, _LEFT, _TOP = 330, 220, 60, 30


def svg(points: Sequence[Mapping[str, Any]], what: str = "a sum", across: str = "parameters") -> str:
    """Two panels side by side, a line for each release."""
    panels = (("seconds", "seconds", 1.0), ("peak_growth_bytes", "MB beyond the loaded program", 1e-6))
    body = [_panel(points, key, title, unit, 430 * number, across) for number, (key, title, unit) in enumerate(panels)]
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 320" font-family="sans-serif" font-size="12">'
    label = f"<title>Time and memory of {what} against the number of {across}</title>"
    return "\n".join([head, label, '<rect width="860" height="320" fill="white"/>', *body, "</svg>\n"])


def _panel(points: Sequence[Mapping[str, Any]], key: str, title: str, unit: float, shift: int, label: str) -> str:
    across = _decades([point["params"] for point in points])
    up = _decades([point[key] * unit for point in points])
    out = [f'<g transform="translate({shift + _LEFT},{_TOP})">', f'<text x="0" y="-12">{title}</text>']
    for power in range(across[0], across[1] + 1):
        x = _at(10.0**power, across, _WIDTH)
        out.append(f'<line x1="{x}" y1="0" x2="{x}" y2="{_HEIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{x}" y="{_HEIGHT + 16}" text-anchor="middle">10^{power}</text>')
    for power in range(up[0], up[1] + 1):
        y = _HEIGHT - _at(10.0**power, up, _HEIGHT)
        out.append(f'<line x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="-6" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>')
    names = list(dict.fromkeys(point["release"] for point in points))
    for number, (name, colour) in enumerate(zip(names, _COLOURS, strict=False)):
        own = [point for point in points if point["release"] == name]
        spots = [(_at(p["params"], across, _WIDTH), _HEIGHT - _at(p[key] * unit, up, _HEIGHT)) for p in own]
        line = " ".join(f"{x},{y}" for x, y in spots)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in spots]
        out.append(f'<text x="{8 + 100 * number}" y="{_HEIGHT + 54}" fill="{colour}">{name}</text>')
    out.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 34}" text-anchor="middle">{label}</text></g>')
    return "\n".join(out)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around the values."""
    least, most = min(values), max(values)
    low, high = math.floor(math.log10(max(least, 1e-9))), math.ceil(math.log10(max(most, 1e-9)))
    return low, max(high, low + 1)


def _at(value: float, decades: tuple[int, int], length: int) -> float:
    low, high = decades
    return round(length * (math.log10(max(value, 10.0**low)) - low) / (high - low), 1)
