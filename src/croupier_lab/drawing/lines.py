"""Lines with intervals and priors, panel by panel; and a sweep over sizes on logarithmic scales.

Most figures are of this kind: accuracy or success against rounds, clients or noise. Intervals are bars and, where a
figure has them, priors are dashes. Figures of `papers.intra`, `papers.rain` and `papers.tazza` call
`lines`, and `bench.speed.rain_round` and `bench.speed.rns_encoding` call `sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from croupier_lab.drawing.canvas import COLOURS, colour, draw

# A label, and a mark: its rate, where known with an interval and a prior.
Point = tuple[str, Mapping[str, Any]]
Panels = Mapping[str, Mapping[str, Sequence[Point]]]


@dataclass(frozen=True)
class LineStyle:
    """How lines are drawn.

    They lie between `limits`, or on powers of ten around the values (`log`). Points along kinds that have no order are
    not `joined`. Labels that are `numbers` stand at their value. `level` is a line across every panel, with its name.
    """

    limits: tuple[float, float] = (0.0, 1.0)
    log: bool = False
    priors: bool = True
    joined: bool = True
    numbers: bool = False
    level: tuple[str, float] | None = None


def lines(panels: Panels, title: str, along: str, style: LineStyle | None = None) -> str:
    """A panel for each name, a line for each series; dashes are the priors where there are any, bars the intervals."""
    style = style or LineStyle()
    if style.log:
        style = replace(style, limits=_decades(panels))
    names = list(dict.fromkeys(name for series in panels.values() for name in series))

    def fill(axes: Sequence[Axes]) -> None:
        for number, (name, series) in enumerate(panels.items()):
            axes[number].set_title(name)
            axes[number].set_xlabel(along)
            _panel(axes[number], series, names, style, number)
        _legend(axes[len(panels)], names, style)

    return draw(title, len(panels) + 1, fill, size=(3.6, 2.9))


def _decades(panels: Panels) -> tuple[float, float]:
    """The powers of ten around all rates, without intervals, which may reach below 0."""
    rates = [mark["rate"] for series in panels.values() for points in series.values() for _, mark in points]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _panel(
    axes: Axes, series: Mapping[str, Sequence[Point]], names: Sequence[str], style: LineStyle, number: int
) -> None:
    labels = list(dict.fromkeys(label for points in series.values() for label, _ in points))
    axes.grid(axis="y")
    if style.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(*style.limits)
    if style.numbers:
        axes.locator_params(axis="x", nbins=6)
    else:
        shown = range(0, len(labels), max(1, len(labels) // 8))
        axes.set_xticks(list(shown), [labels[at] for at in shown])
        axes.set_xlim(-0.5, len(labels) - 0.5)
    if style.level is not None:
        axes.axhline(style.level[1], color="black", linestyle="--", linewidth=1)
    for at, (name, points) in enumerate(series.items()):
        known = [
            (float(label) if style.numbers else labels.index(label), mark)
            for label, mark in points
            if mark["rate"] is not None
        ]
        # Later lines are thinner, so that one that lies on another does not hide it.
        width = max(1.0, 2.6 - 0.5 * at) if style.joined else 0.0
        _line(axes, known, names.index(name), width, style, f"line-{number}-{at}")


def _line(
    axes: Axes, known: Sequence[tuple[float, Mapping[str, Any]]], series: int, width: float, style: LineStyle, gid: str
) -> None:
    tint, dots = colour(series), ":" if series >= len(COLOURS) else "-"
    ways = [at for at, _ in known]
    axes.plot(
        ways, [_within(mark["rate"], style) for _, mark in known], color=tint, linestyle=dots if width else "none",
        linewidth=width, marker="o", markersize=3 if width else 6, gid=gid,
    )  # fmt: skip
    before = [(at, _within(mark["prior"], style)) for at, mark in known if "prior" in mark]
    if style.priors and before:
        axes.plot(*zip(*before, strict=True), color=tint, linestyle="--", linewidth=1, alpha=0.6)
    for at, mark in known:
        if "low" in mark:
            ends = (_within(mark["low"], style), _within(mark["high"], style))
            axes.vlines(at, *ends, color=tint, alpha=0.35, linewidth=1)


def _within(value: float, style: LineStyle) -> float:
    """The value, moved to the nearer limit where it lies beyond one."""
    return min(max(value, style.limits[0]), style.limits[1])


def _legend(axes: Axes, names: Sequence[str], style: LineStyle) -> None:
    handles = [
        Line2D([], [], color=colour(at), linestyle=":" if at >= len(COLOURS) else "-", label=name.replace("_", " "))
        for at, name in enumerate(names)
    ]
    more = [*(["prior"] if style.priors else []), *([style.level[0]] if style.level else [])]
    handles += [Line2D([], [], color="black", linestyle="--", label=name) for name in more]
    axes.axis("off")
    axes.legend(handles=handles, loc="upper left")


def sweep(points: Sequence[Mapping[str, Any]], what: str, across: str) -> str:
    """Seconds and memory against size, side by side, with a line for each release."""
    names = list(dict.fromkeys(point["release"] for point in points))
    panels = (("seconds", "seconds", 1.0), ("peak_growth_bytes", "MB beyond the loaded program", 1e-6))

    def fill(axes: Sequence[Axes]) -> None:
        for number, (key, title, unit) in enumerate(panels):
            panel = axes[number]
            panel.set_title(title)
            panel.set_xlabel(across)
            panel.grid(visible=True)
            for at, name in enumerate(names):
                own = [(point["params"], max(point[key] * unit, 1e-9)) for point in points if point["release"] == name]
                panel.loglog(
                    *zip(*own, strict=True), color=colour(at), marker="o", label=name, gid=f"line-{number}-{at}"
                )
            panel.xaxis.set_major_formatter("{x:g}")
            panel.yaxis.set_major_formatter("{x:g}")
            panel.legend()

    return draw(f"Time and memory of {what} against the number of {across}", 2, fill, size=(4.4, 3.3))
