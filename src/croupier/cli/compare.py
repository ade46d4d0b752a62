"""`croupier compare`: runs that are over beside each other, as a table and, with the extra `lab`, a picture.

It reads the run directories that `croupier run` wrote (`croupier.lines`), shows their last rounds with `cli.rows`, and
says in which lines their descriptions differ. To compare audits there is `croupier report compare`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.lines import PastRun

# What most want to see first; other numbers of a run follow.
FIRST = ("accuracy", "auc", "f1", "rmse", "mae", "loss", "bytes_up_per_client", "bytes_down_per_client")
# So many lines in which descriptions differ are shown.
SHOWN = 8


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories that croupier run wrote.")],
    plot: Annotated[Optional[Path], typer.Option(help="Also draw it into this SVG file (extra lab).")] = None,  # noqa: UP045
    csv: options.CsvFile = None,
    out: options.OutFile = None,
    json: options.Json = False,
) -> None:
    """Set runs that are over beside each other: their last rounds, and what differs in their descriptions.

    `croupier compare runs/digits-1 runs/digits-shuffled-2 --plot compared.svg`
    """
    from croupier.errors import SpecError
    from croupier.lines import PastRun, as_csv

    if len(runs) < 2:
        raise SpecError(f"{len(runs)} run: name two or more run directories to compare")
    if plot is not None:
        _check_plot(plot)
    past = _named([PastRun.read(folder) for folder in runs], runs)
    found = {"runs": [_told(one, past[0]) for one in past]}
    options.give(found, json, out, lambda: _show(found["runs"]))
    if csv is not None:
        options.write(csv, as_csv({one.name: one.rounds for one in past}), "--csv")
    if plot is not None:
        options.write(plot, _drawn(past), "--plot")


def _named(past: Sequence[PastRun], folders: Sequence[Path]) -> list[PastRun]:
    """The runs, by their folders' paths where names alone would not tell them apart."""
    from dataclasses import replace

    names = [one.name for one in past]
    return [
        one if names.count(one.name) == 1 else replace(one, name=str(folder))
        for one, folder in zip(past, folders, strict=True)
    ]


def _told(one: PastRun, first: PastRun) -> dict[str, Any]:
    from croupier.lines import numbers

    last = numbers(one.rounds[-1])
    return {
        "run": one.name,
        "rounds": len(one.rounds),
        "last": last,
        "differs": [] if one is first else _differences(first.described, one.described),
    }


def _differences(first: str, other: str) -> list[str]:
    """The lines of a description that another does not have, without what both share."""
    lines = difflib.unified_diff(first.splitlines(), other.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---") and line[1:].strip()]


def _show(runs: Sequence[dict[str, Any]]) -> None:
    from croupier.cli.fit import line
    from croupier.cli.rows import show_rows

    known = list(dict.fromkeys(name for one in runs for name in one["last"]))
    names = [*(name for name in FIRST if name in known), *(name for name in known if name not in FIRST)]
    rows = [
        {"run": one["run"], "rounds": one["rounds"], **{name: one["last"].get(name, "-") for name in names}}
        for one in runs
    ]
    show_rows(rows, "the last round of each run")
    for one in runs[1:]:
        said = "; ".join(one["differs"][:SHOWN]) or "nothing"
        more = len(one["differs"]) - SHOWN
        print(line(f"{one['run']} differs from {runs[0]['run']} in: {said}{f'; and {more} more' if more > 0 else ''}"))


def _check_plot(plot: Path) -> None:
    """Raises: SpecError for another kind of picture, or where the laboratory draws none, before anything is read."""
    from croupier.cli import lab
    from croupier.errors import SpecError

    if plot.suffix != ".svg":
        raise SpecError(f"--plot = {plot}: pictures are SVG; name a file that ends in .svg")
    lab.load("drawing.canvas")
    options.check_room(plot, "--plot")


def _drawn(past: Sequence[PastRun]) -> str:
    """By round, a panel for each number of `FIRST` that every run has; where there is none, for all that they share."""
    from croupier.cli import lab
    from croupier.lines import numbers

    series = {one.name: [(line["round"], numbers(line)) for line in one.rounds] for one in past}
    shared = set.intersection(*({name for _, found in lines for name in found} for lines in series.values()))
    names = [name for name in FIRST if name in shared] or sorted(shared)
    return str(lab.load("drawing.curves").curves(names, series))
