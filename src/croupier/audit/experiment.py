"""Source inference on defences that a table names, one after another: what figures of papers are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from croupier.audit.abreast import each
from croupier.audit.bench import Bench, Watch
from croupier.audit.blind import Panel
from croupier.audit.outcome import Outcome, Run, outcome
from croupier.audit.question import SERVER, Arm
from croupier.audit.questions.source import look
from croupier.audit.setting import Setting
from croupier.core.part import Part
from croupier.core.revive import Shelf, got, put
from croupier.core.sitting import Drive
from croupier.errors import SpecError
from croupier.pipeline import Pipeline

__all__ = ["Defence", "Setting", "Watch", "run", "seeded"]


@dataclass(frozen=True)
class Defence:
    """A pipeline to attack, the attacks that fit what its server sees, and what it changes in local training.

    The last attack is the one that a verdict trusts most: it should use all that the adversary has. `control` are
    attacks on other defences, mounted on this one's first round to see whether they work at all.
    """

    name: str
    pipeline: Pipeline
    attacks: tuple[str, ...]
    membership: tuple[str, ...] = ("loss", "lira")
    changes: tuple[tuple[str, Part], ...] = ()
    control: tuple[str, ...] = ()

    @property
    def arm(self) -> Arm:
        """The same for a bench."""
        return Arm(self.name, self.name, self.pipeline, self.changes)


def run(
    setting: Setting,
    defences: Sequence[Defence],
    seeds: Sequence[int],
    drive: Drive,
    watch: Watch = lambda _: None,
    abreast: int = 1,
    kept: Shelf | None = None,
) -> list[Outcome]:
    """Train every defence from every seed, and mount its attacks on its server's view of every round.

    `abreast` seeds run at once, each in its own process; a script that asks for more than one must guard its main part.
    Seeds that are finished go to `kept`, and what is there is not done again.
    """
    shelf: Shelf = {} if kept is None else kept
    left = {f"seed-{seed}": seed for seed in seeds if f"seed-{seed}" not in shelf}
    if abreast > 1:
        work = partial(_apart, replace(setting, workers=1), defences, drive)
        each(work, left, abreast, lambda name, runs: put(shelf, name, runs))
    elif left:
        with Panel(setting.workers, setting.device) as panel:
            for name, seed in left.items():
                put(shelf, name, seeded(setting, defences, seed, drive, panel, watch))
    found: list[list[Run]] = [got(shelf, f"seed-{seed}", list[Run]) for seed in seeds]
    return [outcome(d.name, [runs[at] for runs in found]) for at, d in enumerate(defences)]


def seeded(
    setting: Setting, defences: Sequence[Defence], seed: int, drive: Drive, panel: Panel, watch: Watch
) -> list[Run]:
    """All defences from one seed, one after another. Raises: SpecError where it cannot be asked whose a record is."""
    bench = Bench(setting, seed, panel, drive, watch, membership=any(defence.membership for defence in defences))
    waiting: list[Callable[[], Run]] = []
    for defence in defences:
        if why := bench.stage(defence.arm).unaskable:
            raise SpecError(why)
        found = look(bench, defence.arm, SERVER, defence.attacks, defence.membership, defence.control)
        waiting.append(found.run)
    return [played() for played in waiting]


def _apart(setting: Setting, defences: Sequence[Defence], drive: Drive, seed: int) -> list[Run]:
    with Panel(1, setting.device) as panel:
        return seeded(setting, defences, seed, drive, panel, lambda _: None)
