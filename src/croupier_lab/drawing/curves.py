"""Numbers of runs by round: a panel for each number, and a line for each run.

`croupier compare --plot` (`croupier.cli.compare`) draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from croupier_lab.drawing.canvas import colour, draw

Rounds = Sequence[tuple[int, Mapping[str, float]]]


def curves(names: Sequence[str], runs: Mapping[str, Rounds]) -> str:
    """The picture, as SVG text."""

    def fill(axes: Sequence[Axes]) -> None:
        for panel, name in zip(axes, names, strict=True):
            panel.set_title(name)
            panel.set_xlabel("round")
            panel.grid(axis="y")
            for at, (run, rounds) in enumerate(runs.items()):
                points = [(number, found[name]) for number, found in rounds if name in found]
                panel.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colour(at), label=run)
        axes[0].legend(fontsize="small")

    return draw("runs compared", len(names), fill, size=(3.6, 2.9))
