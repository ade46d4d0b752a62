"""How far work is, and how long it still takes: one bar on a terminal, a line now and then anywhere else.

Runs, audits and benches say how far they are to a `ProgressListener`; which one that is depends on where standard error
goes. Lines off a terminal are few and without control characters, because they end in log files. The time left is
reckoned from this sitting only, so that a resumed audit does not promise too much. `cli.run` uses `watching`;
`cli.audit` and the laboratory's commands use `progress`.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from croupier.engine.job.job import Watch

Clock = Callable[[], float]
# Off a terminal: no two lines within LEAST seconds; then one for each SHARE of the work, or after a pause that doubles
# with every line up to LONGEST seconds.
LEAST, SHARE, LONGEST = 30.0, 0.1, 600.0


class Pace:
    """The time left, from what was done here: what an earlier sitting had finished took none."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.start = clock, clock()
        self.done, self.of = 0, 0
        self._base: int | None = None
        self._last = self.start

    def at(self, done: int, of: int) -> None:
        """So much is done."""
        self._base = done if self._base is None else self._base
        self.done, self.of, self._last = done, of, self.clock()

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return self.clock() - self.start

    @property
    def left(self) -> float | None:
        """Seconds still to go; None before anything was finished here."""
        here = self.done - (self._base or 0)
        if not here:
            return None
        each = (self._last - self.start) / here
        return max(0.0, each * (self.of - self.done) - (self.clock() - self._last))


class ProgressListener(ABC):
    """Whoever is told how far work is."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self.pace = name, Pace(clock)
        self.unit, self.said = "", ""

    def at(self, done: int, of: int, unit: str) -> None:
        """So much of it is done."""
        self.unit = unit
        self.pace.at(done, of)
        self.show()

    def say(self, said: str) -> None:
        """What is being done right now."""
        self.said = said
        self.show()

    @abstractmethod
    def show(self) -> None:
        """Show it."""


class Lines(ProgressListener):
    """A line now and then, without any control character."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self._when, self._share, self._pause = 0.0, 0.0, 2 * LEAST

    def show(self) -> None:
        """A line, where one is due."""
        pace, now = self.pace, self.pace.passed
        share = pace.done / pace.of if pace.of else 0.0
        quiet = now - self._when
        if quiet < LEAST or share >= 1 or (share - self._share < SHARE and quiet < self._pause):
            return
        self._when, self._share, self._pause = now, share, min(LONGEST, 2 * self._pause)
        counted = [f"{pace.done} of {pace.of} {self.unit}"] if pace.of else []
        left = [] if pace.left is None else [f"about {span(pace.left)} left"]
        said = [self.said] if self.said else []
        print(f"{self.name}: {', '.join([*counted, *said, f'{span(now)} passed', *left])}", file=sys.stderr, flush=True)


class Bar(ProgressListener):
    """A bar that goes away when it ends."""

    def __init__(self, name: str, clock: Clock, bar: Progress) -> None:
        super().__init__(name, clock)
        self.bar = bar
        self.task: TaskID = bar.add_task(name, total=None, told=self, said="", counted="")

    def show(self) -> None:
        """Move it."""
        pace = self.pace
        counted = f"{pace.done}/{pace.of} {self.unit}" if pace.of else ""
        self.bar.update(self.task, total=pace.of or None, completed=pace.done, said=self.said, counted=counted)


def span(seconds: float) -> str:
    """Seconds for people: minutes and seconds, and hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def progress(name: str, clock: Clock = time.monotonic) -> Iterator[ProgressListener]:
    """Who is to be told how far work of this name is, for as long as it goes on."""
    if not sys.stderr.isatty():
        yield Lines(name, clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Times(ProgressColumn):
        """The time that has passed, and the time left."""

        def render(self, task: Task) -> Text:
            pace = task.fields["told"].pace
            left = "" if pace.left is None else f", {span(pace.left)} left"
            return Text(f"{span(pace.passed)}{left}", style="progress.remaining")

    def text(form: str, ratio: int | None = None) -> TextColumn:
        column = Column(no_wrap=True, overflow="ellipsis", ratio=ratio)
        return TextColumn(form, markup=False, table_column=column)

    columns = (
        text("{task.description}"), BarColumn(16), text("{task.fields[counted]}"), Times(),
        text("{task.fields[said]}", 1),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        yield Bar(name, clock, bar)


@contextmanager
def watching(name: str) -> Iterator[Watch]:
    """What a run tells its progress to: rounds, clients trained in this one, and how well it does."""
    with progress(name) as told:
        cohort, trained, done, rounds, score = 0, 0, 0, 0, ""

        def watch(event: str, facts: Mapping[str, Any]) -> None:
            nonlocal cohort, trained, done, rounds, score
            if event == "started":
                cohort, rounds, done = facts["cohort"], facts["rounds"], facts["done"]
                told.at(done, rounds, "rounds")
            elif event == "trained":
                trained += facts["clients"]
            elif event == "round":
                trained, done, score = 0, done + 1, how_well(facts)
                told.at(done, rounds, "rounds")
            told.say(", ".join([*([score] if score else []), f"client {trained} of {cohort}"]) if rounds else "")

        yield watch


def how_well(line: Mapping[str, Any]) -> str:
    """How well the last round did, and the most that a client or a record has spent, for people who watch."""
    from croupier.cli.tables import SCORES
    from croupier.privacy.local import rounded_up

    said = next((f"{head} {form.format(line[key])}" for key, (head, form) in SCORES.items() if key in line), "")
    # What protects a client and what protects a record are two things: never the larger of both.
    of_clients = [one["epsilon"] for one in line.get("spent", {}).values()]
    spent = [f"{rounded_up(max(of_clients))} of a client"] if of_clients else []
    if "record" in line:
        spent.append(f"{rounded_up(line['record']['epsilon'])} of a record")
    return f"{said}, spent up to {', '.join(spent)}" if spent else said
