"""once: no one-time secret covers two messages, and no release goes uncounted, wherever a run is killed and resumed.

At every step of a round the run is killed, before what leaves is written down or right after; the training's last bits
change; the run is resumed. What would differ is refused, or leaves under fresh secrets and counts as another release.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from croupier.engine.journal import Journal
from croupier.engine.restart import Restart
from croupier.errors import Replayed
from croupier.pipeline import Pipeline
from tests.laws.pipelines import HIDDEN, PIPELINES
from tests.laws.rerun import (
    Killed,
    Run,
    Trace,
    every_release_counted,
    fresh_after,
    nudged,
    one_message_a_secret,
)
from tests.tiers import repeats

ALL = {**PIPELINES, **HIDDEN}
# A round of some has hundreds of steps of one kind: of those every so many-th is tried, with the first and the last.
MOST = repeats(12, 6)


def kills(folder: Path, pipeline: Pipeline, most: int = MOST) -> list[int]:
    """The steps of a run at which it is killed, spread evenly where there are more than `most`."""
    _, tap = Run(pipeline, folder).sit(Trace())
    steps = list(range(tap.steps))
    return sorted({steps[at * (len(steps) - 1) // (most - 1)] for at in range(most)}) if len(steps) > most else steps


def check(pipeline: Pipeline, folder: Path, die_at: int, before: bool, kind: type[Journal] = Journal) -> None:
    """Kill, change, resume: as it is, and anew."""
    folder.mkdir()
    run, first, second, third = Run(pipeline, folder, kind=kind), Trace(), Trace(), Trace()
    with pytest.raises(Killed):
        run.sit(first, die_at=die_at, before=before)
    number = max(run.states, default=0)
    try:
        run.sit(second, fits=nudged)
    except Replayed:
        one_message_a_secret(first, second)
        number = max(run.states, default=0)
        run.sit(third, fits=nudged, anew=True)
        fresh_after(pipeline.digest(), number, (first, second), third)
    one_message_a_secret(first, second, third)
    every_release_counted(pipeline, folder, (first, second, third), run.states[run.count])


@pytest.mark.parametrize("before", [True, False], ids=["before it is written", "before it leaves"])
@pytest.mark.parametrize("name", ALL)
def test_once(name: str, before: bool, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    for die_at in kills(tmp_path / "whole", ALL[name]):
        check(ALL[name], tmp_path / str(die_at), die_at, before)


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_once_at_every_step(name: str, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    for die_at in kills(tmp_path / "whole", ALL[name], 10**6):
        for before in (True, False):
            check(ALL[name], tmp_path / f"{die_at}-{before}", die_at, before)


@pytest.mark.parametrize("name", ALL)
def test_a_run_that_trains_the_same_is_resumed_byte_for_byte(name: str, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone, _ = Run(ALL[name], tmp_path / "alone").sit(Trace())
    (tmp_path / "whole").mkdir()
    for die_at in kills(tmp_path / "whole", ALL[name])[::3]:
        folder = tmp_path / str(die_at)
        folder.mkdir()
        run, first, second = Run(ALL[name], folder), Trace(), Trace()
        with pytest.raises(Killed):
            run.sit(first, die_at=die_at)
        run.sit(second)
        one_message_a_secret(first, second)
        assert run.states[2].plain().keys() == alone[-1].state.plain().keys()
        assert run.states[2].model.vector.equal(alone[-1].state.model.vector)
        assert run.states[2].participations == alone[-1].state.participations


class Forgetful(Journal):
    """A planted fault: what leaves is written down and never compared."""

    def _recall(self, spec: str, number: int) -> None:
        """Let everything pass."""
        self._known.clear()


class Stuck(Journal):
    """A planted fault: a round that is played anew keeps its attempt."""

    def restart(self, spec: bytes, number: int, clients: Collection[str]) -> Restart:
        """Forget the attempts."""
        made = super().restart(spec, number, clients)
        self._restarts[-1] = Restart(made.round, {}, made.participations, made.ledgers)
        return made

    def _recall(self, spec: str, number: int) -> None:
        """Forget what left, too."""


class SameUpdate(Journal):
    """A planted fault: a round that is played anew counts as the same participation."""

    def restart(self, spec: bytes, number: int, clients: Collection[str]) -> Restart:
        """Forget who had sent something."""
        made = super().restart(spec, number, clients)
        self._restarts[-1] = Restart(made.round, made.attempts, {}, made.ledgers)
        return made


class Generous(Journal):
    """A planted fault: what was released before a restart is forgotten."""

    def restart(self, spec: bytes, number: int, clients: Collection[str]) -> Restart:
        """Forget the ledgers."""
        made = super().restart(spec, number, clients)
        self._restarts[-1] = Restart(made.round, made.attempts, made.participations, {})
        return made


class Unwritten(Journal):
    """A planted fault: releases are not written down."""

    def release(self, client: str, event: Mapping[str, Any]) -> None:
        """Do nothing."""


NOISED = "shuffled models, Gaussian noise"


@pytest.mark.parametrize(
    ("fault", "name", "said"),
    [
        (Forgetful, "masks", "one secret covers two messages"),
        (Forgetful, "plain", "one secret covers two messages"),
        (Stuck, "sum servers", "one secret covers two messages|drawn again"),
        (SameUpdate, "residues of sums, weighted, in steps, at random", "drawn again for another message"),
        (SameUpdate, NOISED, "releases left and|drawn again"),
        (Generous, NOISED, "releases remembered"),
        (Unwritten, NOISED, "releases remembered"),
    ],
)
def test_a_planted_fault_is_caught(fault: type[Journal], name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    steps = kills(tmp_path / "whole", PIPELINES[name])

    def everywhere() -> None:
        for die_at in steps:
            check(PIPELINES[name], tmp_path / str(die_at), die_at, False, fault)

    with pytest.raises(AssertionError, match=said):
        everywhere()
