"""Points of two measures, panel by panel: marks by series and kind, and spots coloured by class.

They are for trade-offs (privacy against accuracy) and for rows of updates in two directions. Tazza's Figures 10 and 12
(`papers.tazza.tradeoff_findings`) use `scatter`, and IntraShuffler's Figures 3 and 4 (`papers.intra.attack_figures`)
use `spots`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from croupier_lab.drawing.canvas import colour, draw

NOTE = "bars: 95 % intervals; points of one dotted line stand side by side"
MARKS = {"triangle": "^", "circle": "o", "square": "s", "diamond": "D", "ring": "o"}


@dataclass(frozen=True)
class ScatterDot:
    """A point at `along` and `upward`, the latter with its interval."""

    along: float
    upward: float
    low: float
    high: float
    series: str
    kind: str


@dataclass(frozen=True)
class ScatterPanel:
    """Dots with names for both axes; `guides` are dotted lines upward, each with its name above the panel."""

    title: str
    along: str
    upward: str
    dots: Sequence[ScatterDot]
    guides: Mapping[str, float] = field(default_factory=dict)


def scatter(panels: Sequence[ScatterPanel], title: str, kinds: Mapping[str, str]) -> str:
    """A picture of these panels; `kinds` gives each kind its mark, one of `MARKS`."""
    series = list(dict.fromkeys(dot.series for panel in panels for dot in panel.dots))
    used = {dot.kind for panel in panels for dot in panel.dots}

    def fill(axes: Sequence[Axes]) -> None:
        for number, panel in enumerate(panels):
            _panel(axes[number], panel, series, kinds, number)
        handles: list[Any] = [Patch(color=colour(at), label=name) for at, name in enumerate(series)]
        handles += [
            Line2D([], [], **_marked(mark, "#444444"), label=kind) for kind, mark in kinds.items() if kind in used
        ]
        axes[-1].axis("off")
        axes[-1].legend(handles=handles, loc="upper left", title=NOTE)

    return draw(title, len(panels) + 1, fill, columns=2, size=(5.2, 4.2))


def _marked(mark: str, tint: str) -> dict[str, Any]:
    hollow = "none" if mark == "ring" else tint
    return {"linestyle": "none", "marker": MARKS[mark], "color": tint, "markerfacecolor": hollow, "markersize": 6}


def _panel(axes: Axes, panel: ScatterPanel, series: Sequence[str], kinds: Mapping[str, str], number: int) -> None:
    # Names of guides stand above the panel, and the title above these.
    axes.set_title(panel.title, pad=60 if panel.guides else 6, fontweight="bold")
    axes.set_xlabel(panel.along)
    axes.set_ylabel(panel.upward)
    axes.set_ylim(0, 1)
    axes.grid(axis="y")
    values = [dot.along for dot in panel.dots]
    spread = (max(values) - min(values)) or 1.0
    _guides(axes, panel.guides, spread)
    for at, dot in enumerate(panel.dots):
        # Points of one guide share its place, and so stand side by side, each series at its own.
        aside = 0.012 * spread * (series.index(dot.series) - (len(series) - 1) / 2) if panel.guides else 0.0
        tint, place = colour(series.index(dot.series)), dot.along + aside
        axes.vlines(place, dot.low, dot.high, color=tint, alpha=0.3)
        gid = f"{kinds[dot.kind]}-{number}-{at}"
        axes.plot([place], [min(max(dot.upward, 0.0), 1.0)], **_marked(kinds[dot.kind], tint), gid=gid)


def _guides(axes: Axes, places: Mapping[str, float], spread: float) -> None:
    """Draw the guides; their names stand slanted above, apart from each other."""
    last = -math.inf
    for name, place in sorted(places.items(), key=lambda pair: pair[1]):
        at = last = max(place, last + 0.05 * spread)
        axes.axvline(place, color="#aaaaaa", linestyle=":")
        axes.text(at, 1.02, name, rotation=40, transform=axes.get_xaxis_transform(), fontsize=7, color="#444444")


def spots(panels: Mapping[str, tuple[Sequence[Sequence[float]], Sequence[str]]], title: str) -> str:
    """A panel for each name: one spot for each row, coloured by its owner's class."""

    def fill(axes: Sequence[Axes]) -> None:
        for number, (name, (found, classes)) in enumerate(panels.items()):
            axes[number].set_title(name)
            axes[number].set_xlabel("the surrogate's log odds (last class against first)")
            axes[number].set_yticks([])
            across, upward = (_clipped([one[side] for one in found]) for side in (0, 1))
            tints = [colour(int(one[2])) for one in found]
            axes[number].scatter(across, upward, c=tints, s=8, alpha=0.6, linewidths=0)
            axes[number].legend(handles=[Patch(color=colour(at), label=one) for at, one in enumerate(classes)])

    return draw(title, len(panels), fill, size=(3.6, 3.1))


def _clipped(values: Sequence[float]) -> list[float]:
    """Values, moved to the 1st or 99th percentile where they lie beyond."""
    ordered = sorted(values)
    if not ordered:
        return []
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.01, 0.99))
    return [min(max(value, low), high) for value in values]
