"""A figure or table of a paper as one value: what it shows, at which scales we run it, and what it needs.

With one form for all, one command can list, check and run them. Every paper's modules export a tuple `FIGURES`,
`papers.catalogue.FIGURES` holds them all by name, and `papers/shared/reproduce.py` runs one for `croupier reproduce`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from croupier.audit.bench import Watch
from croupier.audit.setting import Setting
from croupier_lab.source_inference.experiment import Defence

Scale = Literal["smoke", "small", "paper"]
SCALES: Mapping[Scale, str] = {
    "smoke": "whether it runs at all, within a minute",
    "small": "less data and fewer rounds, within a quarter of an hour on two cores",
    "paper": "the paper's setting, for a GPU",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Means:
    """Where and how a figure is run on this machine, and which of its cases: those whose name holds `only`.

    `workers` are threads of one training, `processes` runs at a time. `rounds`: so many instead of the scale's, where a
    figure can be cut short.
    """

    folder: Path | None = None
    device: str = "cpu"
    workers: int = 1
    processes: int = 1
    only: str = ""
    rounds: int | None = None


Rows = Callable[[Scale, Means, Sequence[int], Watch], list[Row]]


@dataclass(frozen=True)
class PrintedNumber:
    """A number that the paper prints as a number, and where."""

    rate: float
    where: str


@dataclass(frozen=True)
class Experiment:
    """One experiment: a point of a figure, or a column of a table.

    `printed` is by defence. `substitutions` says what differs from the paper beyond the scale; with any of them the
    numbers are ours for our setting, and stand beside the paper's, never under its name.
    """

    label: str
    setting: Setting
    defences: tuple[Defence, ...]
    printed: Mapping[str, PrintedNumber] = field(default_factory=dict)
    substitutions: tuple[str, ...] = ()


def _says_nothing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return []


@dataclass(frozen=True)
class Figure:
    """A figure or table, and how it is made.

    It has either `rows` or `experiments`. `rows` makes its rows over so many `seeds`; without seeds they are counted or
    timed once. `experiments` are cases whose attacks are compared with the prior and with the printed
    numbers. Of `substitutions`, those that begin with the name of a scale ("small: ...") hold at that scale alone.
    `says` reads the rows in plain sentences, and `draw` makes an SVG picture of them. `cases` names what `Means.only`
    may choose among, where a figure can be run in pieces. `takes_rounds`: `Means.rounds` is heeded. `bare`: it needs no
    data folder at smoke scale.
    """

    name: str
    source: str
    title: str
    reading: str
    rows: Rows | None = None
    seeds: Mapping[Scale, int] = field(default_factory=dict)
    substitutions: tuple[str, ...] = ()
    says: Callable[[Sequence[Mapping[str, Any]]], list[str]] = _says_nothing
    draw: Callable[[Sequence[Mapping[str, Any]]], str] | None = None
    cases: Callable[[Scale], Sequence[str]] | None = None
    takes_rounds: bool = False
    bare: bool = False
    experiments: Callable[[Scale], Sequence[Experiment]] | None = None

    def case_names(self, scale: Scale) -> list[str]:
        """The cases that may be asked for alone."""
        if self.experiments is not None:
            return [case.label for case in self.experiments(scale)]
        return [] if self.cases is None else list(self.cases(scale))

    def needs_data(self) -> bool:
        """Whether it needs the data folder even at smoke scale."""
        if self.experiments is not None:
            return any(case.setting.data.files for case in self.experiments("smoke"))
        return bool(self.seeds) and not self.bare


def counted(rows: Callable[[Scale], list[Row]]) -> Rows:
    """The rows of a figure from a function of the scale alone, which counts or times: no data, device or seeds."""
    return lambda scale, means, seeds, watch: rows(scale)
