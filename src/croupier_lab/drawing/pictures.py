"""Strips of small images under a histogram; and maps of who was in which cluster, round by round.

They are for figures whose point is to be seen: what was reconstructed beside what was true, and which clients were put
together. Tazza's Figures 4 and 6 (`papers.tazza.picture_distance`, `augmentation`) use `sheet`, and Figure 13
(`papers.tazza.integrity`) uses `cluster_map`.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from croupier_lab.drawing.canvas import COLOURS, colour, draw

# A caption and images as PNG files in base64.
Strip = tuple[str, Sequence[str]]
# The colour of clusters that never had two members at once, and of those for which no colour is left.
GREY = "#98a2ab"
# Inches of an image with its margin, of a caption, and of a histogram.
_CELL, _CAPTION, _TALL = 0.75, 3.4, 2.8


@dataclass(frozen=True)
class Histogram:
    """Shares of values in bins, drawn as a line of steps for each series; bins begin at `first` and are `step` wide."""

    series: Mapping[str, Sequence[float]]
    first: float
    step: float
    along: str


def sheet(title: str, strips: Sequence[Strip], histogram: Histogram | None = None) -> str:
    """A page: the histogram, where there is one, then a line for each strip."""
    widest = max((len(images) for _, images in strips), default=1)
    wide = max(7.0, _CAPTION + widest * _CELL)
    tall = (_TALL if histogram else 0.0) + 0.4 + len(strips) * _CELL

    def fill(axes: Sequence[Axes]) -> None:
        (page,) = axes
        page.axis("off")
        page.set_title(title)
        if histogram is not None:
            _steps(page.inset_axes((0.07, 1 - (_TALL - 0.5) / tall, 0.9, (_TALL - 0.6) / tall)), histogram)
        for number, (caption, images) in enumerate(strips):
            down = (len(strips) - 1 - number) * _CELL / tall
            page.text(0, down + _CELL / tall / 2, caption, verticalalignment="center", transform=page.transAxes)
            for at, image in enumerate(images):
                left = (_CAPTION + at * _CELL) / wide
                cell = page.inset_axes((left, down, 0.9 * _CELL / wide, 0.9 * _CELL / tall))
                cell.imshow(np.asarray(imread(BytesIO(base64.b64decode(image)))), cmap="gray", vmin=0, vmax=1)
                cell.axis("off")

    return draw(title, 1, fill, size=(wide, tall))


def _steps(axes: Axes, histogram: Histogram) -> None:
    for number, (name, shares) in enumerate(histogram.series.items()):
        edges = [histogram.first + histogram.step * at for at in range(len(shares) + 1)]
        axes.stairs([100 * share for share in shares], edges, color=colour(number), label=name, baseline=None)
    axes.set_xlabel(histogram.along)
    axes.set_ylabel("%")
    axes.grid(axis="y")
    axes.legend()


def cluster_map(
    rounds: Sequence[Mapping[str, int]], honest: Sequence[str], malicious: Sequence[str], title: str
) -> str:
    """A row for each client, honest ones above, and a column for each round, coloured by the client's label."""
    tints, everyone = _tints(rounds), [*honest, *malicious]
    # A gap between the two kinds.
    top = {name: at + (at >= len(honest)) * 0.5 for at, name in enumerate(everyone)}

    def fill(axes: Sequence[Axes]) -> None:
        (page,) = axes
        page.set(title=title, xlabel="round", xlim=(0.5, len(rounds) + 0.5), ylim=(len(everyone) + 0.5, 0))
        page.xaxis.set_major_locator(MaxNLocator(integer=True))
        sides = [(0.0, "honest", len(honest)), (len(honest) + 0.5, "malicious", len(malicious))]
        marks = [(start + count / 2, f"{word}\n{count}") for start, word, count in sides if count]
        page.set_yticks([at for at, _ in marks], [word for _, word in marks])
        for number, labels in enumerate(rounds, 1):
            for name, label in labels.items():
                gid = f"{name}-round-{number}-cluster-{label}"
                cell = Rectangle((number - 0.48, top[name] + 0.04), 0.96, 0.92, facecolor=tints[label], gid=gid)
                page.add_patch(cell)

    return draw(title, 1, fill, size=(8.0, max(2.0, min(6.0, 0.2 * len(everyone) + 1))))


def _tints(rounds: Sequence[Mapping[str, int]]) -> dict[int, str]:
    """A colour for each label, the largest clusters first; grey for labels that never had two members at once."""
    seen = Counter(label for labels in rounds for label in labels.values())
    several = {label for labels in rounds for label, count in Counter(labels.values()).items() if count > 1}
    order = sorted(several, key=lambda label: (-seen[label], label))
    return dict.fromkeys(seen, GREY) | dict(zip(order, COLOURS, strict=False))
