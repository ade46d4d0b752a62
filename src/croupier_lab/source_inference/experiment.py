"""Source inference on defences that a table names, one after another, as figures of papers need it.

`run` trains every defence from every seed and mounts its attacks by an audit's own questions.
`papers.shared.comparison` (`croupier reproduce`) and `bench.leakage.residue_sums` call it, and
`papers.rns.source_inference` makes its defences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from croupier.audit.bench import Bench, Watch
from croupier.audit.blind import Panel
from croupier.audit.membership import area, caught
from croupier.audit.question import SERVER, Arm
from croupier.audit.questions.source import ATTACKS, Attacked, attack
from croupier.audit.setting import Setting
from croupier.core.attempt import Drive
from croupier.core.part import Part
from croupier.core.revive import Shelf, got, put
from croupier.engine.state import Round
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.release.shuffle import Grain
from croupier_lab.processes import each
from croupier_lab.source_inference.outcome import SourceOutcome, SourceRun, outcome

# The attacks that undo a shuffle, by its grain.
UNSHUFFLING: Mapping[Grain, tuple[str, ...]] = {
    "model": ATTACKS["model"], "layer": ATTACKS["layer"], "parameter": ATTACKS["parameter"],
}  # fmt: skip


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
        """This defence as an arm of an audit's bench."""
        return Arm(self.name, self.name, self.pipeline, self.changes)


def run(
    setting: Setting,
    defences: Sequence[Defence],
    seeds: Sequence[int],
    drive: Drive,
    watch: Watch = lambda _: None,
    processes: int = 1,
    kept: Shelf | None = None,
) -> list[SourceOutcome]:
    """Train every defence from every seed, and mount its attacks on its server's view of every round.

    `processes` seeds run at once, each in its own process; a script that asks for more than one must guard its main
    part. Seeds that are finished go to `kept`, and what is there is not done again.
    """
    shelf: Shelf = {} if kept is None else kept
    left = {f"seed-{seed}": seed for seed in seeds if f"seed-{seed}" not in shelf}
    if processes > 1:
        work = partial(_apart, replace(setting, workers=1), defences, drive)
        each(work, left, processes, lambda name, runs: put(shelf, name, runs))
    elif left:
        with Panel(setting.workers, setting.device) as panel:
            for name, seed in left.items():
                put(shelf, name, seeded(setting, defences, seed, drive, panel, watch))
    found: list[list[SourceRun]] = [got(shelf, f"seed-{seed}", list[SourceRun]) for seed in seeds]
    return [outcome(d.name, [runs[at] for runs in found]) for at, d in enumerate(defences)]


def seeded(
    setting: Setting, defences: Sequence[Defence], seed: int, drive: Drive, panel: Panel, watch: Watch
) -> list[SourceRun]:
    """All defences from one seed, in turn. Raises: SpecError where it cannot be asked whose a record is."""
    bench = Bench(setting, seed, panel, drive, watch, membership=any(defence.membership for defence in defences))
    waiting: list[tuple[str, Sequence[Round], Attacked]] = []
    for defence in defences:
        stage = bench.stage(defence.arm)
        if why := stage.unaskable:
            raise SpecError(why)
        found = attack(bench, defence.arm, SERVER, defence.attacks, defence.membership, defence.control)
        waiting.append((stage.measure, bench.played(defence.arm).rounds, found))
    return [_scored(*one) for one in waiting]


def _scored(measure: str, rounds: Sequence[Round], found: Attacked) -> SourceRun:
    """One run of a defence, with how good its model is by round and what a client sends."""
    last = found.last
    sent = [done.traffic.sent[client] for done in rounds for client in done.present]
    return SourceRun(
        found.chance, len(last.truth.owners) // len(last.present),
        {done.number + 1: done.metrics[measure] for done in rounds}, sum(sent) / len(sent), found.hits(),
        found.members(area), found.members(caught), found.unsuited(), last.prior.result()["carried"], measure,
    )  # fmt: skip


def _apart(setting: Setting, defences: Sequence[Defence], drive: Drive, seed: int) -> list[SourceRun]:
    with Panel(1, setting.device) as panel:
        return seeded(setting, defences, seed, drive, panel, lambda _: None)
