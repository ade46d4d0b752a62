"""Pictures of pictures: shares by value as steps, and strips of small images under their captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from croupier_lab.papers.plots import COLOURS

_LEFT, _TOP, _WIDTH, _HEIGHT, _CELL, _GAP = 56, 40, 620, 200, 64, 8
_CAPTION = 320
# A caption and images as PNG files in base64.
Strip = tuple[str, Sequence[str]]


def sheet(title: str, strips: Sequence[Strip], steps: str = "", tall: int = 0) -> str:
    """A page: what stands on top, so many pixels tall, then a line for each strip."""
    widest = max((len(images) for _, images in strips), default=0)
    width = max(_LEFT + _WIDTH + 270, _CAPTION + widest * (_CELL + _GAP) + 20)
    height = _TOP + tall + len(strips) * (_CELL + _GAP) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
    label = f'font-size="12">\n<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="white"/>'
    body = [f'<text x="16" y="22" font-size="14">{escape(title)}</text>', steps]
    body += [_strip(strip, _TOP + tall + number * (_CELL + _GAP)) for number, strip in enumerate(strips)]
    return "\n".join([head + label, *body, "</svg>\n"])


def _strip(strip: Strip, down: int) -> str:
    caption, images = strip
    out = [f'<text x="16" y="{down + _CELL / 2 + 4}">{escape(caption)}</text>']
    for number, image in enumerate(images):
        x = _CAPTION + number * (_CELL + _GAP)
        size = f'x="{x}" y="{down}" width="{_CELL}" height="{_CELL}"'
        out.append(f'<image {size} style="image-rendering:pixelated" href="data:image/png;base64,{image}"/>')
    return "\n".join(out)


def histogram(series: Mapping[str, Sequence[float]], first: float, step: float, along: str) -> tuple[str, int]:
    """Shares by value, a line of steps for each series from `first` on; and how tall that is."""
    bins, top = max(map(len, series.values())), max(max(shares) for shares in series.values())
    out = [f'<g transform="translate({_LEFT},{_TOP + 10})">']
    for part in range(5):
        y = round(_HEIGHT * (1 - part / 4), 1)
        out.append(f'<line x1="0" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="-6" y="{y + 4}" text-anchor="end">{100 * top * part / 4:.1f} %</text>')
    for number in range(0, bins + 1, max(1, round(2 / step))):
        x = round(_WIDTH * number / bins, 1)
        out.append(f'<text x="{x}" y="{_HEIGHT + 16}" text-anchor="middle">{first + step * number:g}</text>')
    for number, (name, shares) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{round(_WIDTH * (at + side) / bins, 1)},{round(_HEIGHT * (1 - share / top), 1)}"
            for at, share in enumerate(shares)
            for side in (0, 1)
        )
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        y = 18 * number + 6
        out.append(f'<line x1="{_WIDTH + 16}" y1="{y}" x2="{_WIDTH + 40}" y2="{y}" stroke="{colour}"/>')
        out.append(f'<text x="{_WIDTH + 46}" y="{y + 4}" font-size="10">{escape(name)}</text>')
    out.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 34}" text-anchor="middle">{escape(along)}</text></g>')
    return "\n".join(out), _HEIGHT + 70
