"""Accuracy against the share of malicious clients as a picture: a panel for each attack, a line for each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_COLOURS = (
    "#1b5e9c", "#b4451f", "#3d7a3a", "#7b3f9b", "#a07d00", "#007c89", "#c2307a", "#555555", "#8c564b", "#4c9ed9",
)  # fmt: skip
# Colours are used again in dots.
_DOTS = ' stroke-dasharray="2 3"'
_WIDTH, _HEIGHT, _LEFT, _TOP = 270, 190, 46, 34
_ACROSS, _DOWN = 340, 270


def svg(rows: Sequence[Mapping[str, Any]], title: str, alone: str) -> str:
    """Rows with an attack, a rule and `_cells` by share; the rule called `alone` is the dashed line of every panel."""
    attacks = [name for name in dict.fromkeys(str(row["attack"]) for row in rows) if name != "-"]
    names = list(dict.fromkeys(str(row["rule"]) for row in rows if row["rule"] != alone))
    base = [row for row in rows if row["rule"] == alone]
    body = []
    for number, attack in enumerate(attacks):
        own = [row for row in rows if row["attack"] == attack and row["rule"] != alone]
        body.append(_panel(attack, own, base, names, _ACROSS * (number % 3), _DOWN * (number // 3)))
    body.append(_legend(names, alone, _ACROSS * (len(attacks) % 3), _DOWN * (len(attacks) // 3)))
    width, height = 3 * _ACROSS, _DOWN * (len(attacks) // 3 + 1) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
    label = f'font-size="11">\n<title>{title}</title>\n<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head + label, *body, "</svg>\n"])


def _panel(
    attack: str,
    own: Sequence[Mapping[str, Any]],
    base: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    right: int,
    down: int,
) -> str:
    out = [f'<g transform="translate({right + _LEFT},{down + _TOP})">', f'<text x="0" y="-10">{attack}</text>']
    for tenth in range(0, 11, 2):
        x, y = _x(tenth / 10), _y(tenth / 10)
        out.append(f'<line x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="-6" y="{y + 4}" text-anchor="end">{10 * tenth} %</text>')
        out.append(f'<text x="{x}" y="{_HEIGHT + 15}" text-anchor="middle">{10 * tenth} %</text>')
    for row in base:
        y = _y(row["_cells"][0]["accuracy"])
        out.append(f'<line x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#000" stroke-dasharray="5 4"/>')
    for row in own:
        number = names.index(row["rule"])
        out += _line(row["_cells"], _COLOURS[number % len(_COLOURS)], _dots(number))
    out.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 30}" text-anchor="middle">malicious clients</text></g>')
    return "\n".join(out)


def _dots(number: int) -> str:
    return _DOTS if number >= len(_COLOURS) else ""


def _line(cells: Sequence[Mapping[str, Any]], colour: str, dots: str) -> list[str]:
    spots = [(_x(cell["share"]), _y(cell["accuracy"])) for cell in cells]
    points = " ".join(f"{x},{y}" for x, y in spots)
    out = [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"{dots}/>']
    for (x, y), cell in zip(spots, cells, strict=True):
        low, high = _y(max(cell["low"], 0.0)), _y(min(cell["high"], 1.0))
        out.append(f'<line x1="{x}" y1="{low}" x2="{x}" y2="{high}" stroke="{colour}" stroke-opacity="0.25"/>')
        out.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>')
    return out


def _legend(names: Sequence[str], alone: str, right: int, down: int) -> str:
    out = [f'<g transform="translate({right + _LEFT},{down + _TOP})">']
    for number, name in enumerate([*names, alone]):
        y, last = 16 * number, number == len(names)
        colour = "#000" if last else _COLOURS[number % len(_COLOURS)]
        dashes = ' stroke-dasharray="5 4"' if last else _dots(number)
        out.append(f'<line x1="0" y1="{y}" x2="24" y2="{y}" stroke="{colour}" stroke-width="2"{dashes}/>')
        out.append(f'<text x="32" y="{y + 4}">{name}</text>')
    return "\n".join([*out, "</g>"])


def _x(share: float) -> float:
    return round(_WIDTH * share, 1)


def _y(accuracy: float) -> float:
    return round(_HEIGHT * (1 - accuracy), 1)
