"""A progress bar on a terminal, silence anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.job import Watch


@contextmanager
def watching(name: str) -> Iterator[Watch]:
    """What a job tells its progress to: rounds, clients trained in this one, and the time left."""
    if not sys.stderr.isatty():
        yield lambda event, facts: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TextColumn("{task.fields[clients]}"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, clients="", score="")
        cohort, trained = 0, 0

        def watch(event: str, facts: Mapping[str, Any]) -> None:
            nonlocal cohort, trained
            if event == "started":
                cohort = facts["cohort"]
                bar.update(task, total=facts["rounds"], completed=facts["done"])
            elif event == "trained":
                trained += facts["clients"]
            elif event == "round":
                trained = 0
                bar.update(task, advance=1, score=_score(facts))
            bar.update(task, clients=f"client {trained} of {cohort}")

        yield watch


def _score(line: Mapping[str, Any]) -> str:
    """How well the last round did, and the most that a client has spent, for people who watch."""
    from croupier.cli.tables import SCORES

    said = next((f"{head} {form.format(line[key])}" for key, (head, form) in SCORES.items() if key in line), "")
    spent = max((one["epsilon"] for one in line.get("spent", {}).values()), default=None)
    return said if spent is None else f"{said}, spent up to {spent:.3g}"
