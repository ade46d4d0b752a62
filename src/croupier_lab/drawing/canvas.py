"""A sheet of panels, from empty axes to the text of an SVG file; every picture of the laboratory is drawn on one.

Text stays text, nothing in the file depends on the moment or on chance, and no window system is needed. `lines`,
`points`, `pictures` and `curves` draw on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

COLOURS = ("#1b5e9c", "#b4451f", "#3d7a3a", "#7b3f9b", "#a07d00", "#007c89", "#c2307a", "#555555", "#8c564b", "#4c9ed9")
STYLE: Any = {
    "svg.hashsalt": "croupier",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "text.parse_math": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 8,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}


def colour(number: int) -> str:
    """The colour of the series with this number; after the last the first comes again."""
    return COLOURS[number % len(COLOURS)]


def draw(
    title: str, count: int, fill: Callable[[Sequence[Axes]], None], *, columns: int = 3, size: tuple[float, float]
) -> str:
    """The text of an SVG file with so many panels, each of that size in inches, into which `fill` draws."""
    rows, columns = -(-count // columns), min(count, columns)
    with rc_context(STYLE):
        sheet = Sheet(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        axes = list(sheet.subplots(rows, columns, squeeze=False).flat)
        for spare in axes[count:]:
            spare.axis("off")
        fill(axes[:count])
        out = StringIO()
        sheet.savefig(out, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    # Without the heading of an XML file, so that it can stand in a page too.
    text = out.getvalue()
    return text[text.index("<svg") :]
