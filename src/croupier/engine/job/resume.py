"""Resume a run: what must be the same as when it began, and what may be played anew.

A crash must neither let a one-time secret cover two messages, nor forget privacy that a client has spent, nor give a
second sum of nearly the same updates. So the run goes on from its newest whole checkpoint, and only where coins,
description, data and model are those of its manifest. `engine.job.run.resume` calls `go_on`: that is `croupier.resume`,
and `croupier run --resume DIR`, if wished with `--anew` or more `federation.rounds`.

`done` is how many rounds the checkpoint has. The logs count rounds from 1, the journal from 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from croupier.engine.job.job import LEDGER, Job
from croupier.engine.job.manifest import Began, described, first_digest, version_of
from croupier.engine.job.result import Result
from croupier.engine.journal import Journal
from croupier.engine.state import State, run_id, state_from
from croupier.engine.store import NOTED
from croupier.errors import SpecError, StoreError
from croupier.learn.assemble import Assembled
from croupier.learn.own import records
from croupier.spec import load
from croupier.toml_text import to_toml


def go_on(job: Job, began: Began, anew: bool, rounds: int | None) -> Result:
    """Play the rounds after the newest whole checkpoint. Raises: StoreError when it would not be the same run.

    Whole rounds after that checkpoint are cut from the logs and played again. With `anew`, rounds that had begun get
    fresh secrets; `rounds` makes the run longer.
    """
    job.store.open(resume=True)
    try:
        job.watch("opened", {"path": str(job.store.path)})
        plain = job.store.latest()
        state = None if plain is None else state_from(plain)
        if state is None and job.store.damaged:
            job.watch("note", {"text": "no checkpoint is whole: starting again from the first round"})
        done = 0 if state is None else state.round
        # A state has everything the first model gave: the file it was warmed from may be gone by now.
        made = job.assemble(job.spec.task.warm if state is None else None)
        _check_same(job, made, began, state)
        goes_on = job if rounds is None else _longer(job, rounds)
        with contextlib.closing(Journal.read(job.store.path)) as journal:
            journal.anew_helps = not _sums_bare(job)
            metrics, timing = _log(job, "metrics.jsonl", done), _log(job, "timing.jsonl", done)
            _check_journal(job, journal, metrics, made.task.enrolled)
            if anew:
                _restart(job, journal, done, made.task.enrolled)
            if job.accounted:
                _ledger(job, done)
            if job.spec.run.record == "digest":
                _log(job, "digests.jsonl", done)
            _log(job, NOTED, done)
            return goes_on.finish(made, journal, state, metrics, timing)
    finally:
        job.store.close()


def _longer(job: Job, rounds: int) -> Job:
    """The same run with more rounds. Raises: SpecError when there would be fewer."""
    plan = job.spec.federation
    if rounds < plan.rounds:
        raise SpecError(f"rounds = {rounds}: the run was begun with {plan.rounds}; it can only be made longer")
    longer = load(job.spec, [f"federation.rounds={rounds}"])
    # The manifest first: what it says of the description must hold for the one that is found beside it.
    manifest = job.store.read_json("manifest.json")
    known = sorted({*manifest.get("shorter", []), manifest["spec"]} - {described(longer)})
    job.store.write_json("manifest.json", {**manifest, "spec": described(longer), "shorter": known}, private=True)
    job.store.write("spec.toml", to_toml(longer).encode())
    # Its end is not the end any more.
    (job.store.path / "summary.json").unlink(missing_ok=True)
    return replace(job, spec=longer)


def _restart(job: Job, journal: Journal, done: int, clients: Sequence[str]) -> None:
    """Let rounds that had begun be played again, under fresh secrets, and say what stays counted.

    Nothing is played here: the restart is written into the journal, and the round loop goes by it.
    Raises: StoreError where a second sum of the same updates would tell single ones.
    """
    spec = job.spec.protocol.digest()
    if _sums_bare(job) and journal.since(spec, done, clients).participations:
        raise StoreError(
            f"{job.store.path}: round {done + 1} had begun, and clients' updates had left: a second sum of nearly "
            "the same updates would give single ones away, so that it is not played anew; resume without --anew "
            "and with what it began with, or start a new run, from task.warm if you have a model"
        )
    made = journal.restart(spec, done, clients)
    if not made.attempts:
        job.watch("note", {"text": "nothing had left since the last checkpoint: nothing counts twice"})
        return
    many = sum(len(events) for events in made.ledgers.values())
    text = f"{len(made.attempts)} rounds are played anew; {len(made.participations)} clients' updates had left"
    job.watch("note", {"text": f"{text}{f', and {many} releases stay in their ledgers' if many else ''}"})


def _sums_bare(job: Job) -> bool:
    """Whether the protocol lets out sums of updates to which clients added no noise of their own.

    Two such sums of nearly the same updates differ by single updates, so that no round may be summed twice.
    """
    protocol = job.spec.protocol
    sums = protocol.place.spends or protocol.release.shape in ("sums", "bucketed")
    return sums and protocol.privacy.guarantee() is None


def _check_journal(job: Job, journal: Journal, metrics: Sequence[Mapping[str, Any]], clients: Sequence[str]) -> None:
    """Raises: StoreError when messages or releases that other files show to have left are not in the journal."""
    sent = journal.rounds_of(job.spec.protocol.digest())
    known = set[int]().union(*sent.values())
    lost = [line["round"] for line in metrics if not line.get("lost") and line["round"] - 1 not in known]
    privacy = job.spec.protocol.privacy
    for name in clients:
        if privacy.of(name).event(0) is not None:
            lost += [number + 1 for number in sorted(sent.get(name, set()) - journal.released(name))]
    if lost:
        raise StoreError(
            f"{job.store.path}: sent.jsonl or releases.jsonl lost what left in round {lost[0]}: nobody knows what "
            "left before; restore them, or start a new run"
        )


def _ledger(job: Job, done: int) -> None:
    """Raises: StoreError when ledger.jsonl lacks a round. It only grows: a round played anew has a line more."""
    job.store.mend(LEDGER)
    lines = job.store.read(LEDGER, done)
    if {line["round"] for line in lines} != set(range(1, done + 1)):
        raise StoreError(f"{job.store.path}/{LEDGER} lost rounds that the checkpoint has; start a new run")


def _log(job: Job, name: str, done: int) -> list[dict[str, Any]]:
    """The lines of a log up to the checkpoint; later ones are cut off. Raises: StoreError when some are missing."""
    lines = job.store.read(name, done)
    if [line["round"] for line in lines] != list(range(1, done + 1)):
        raise StoreError(f"{job.store.path}/{name} lost rounds that the checkpoint has; start a new run")
    job.store.cut(name, done)
    return lines


def _check_same(job: Job, made: Assembled, began: Began, state: State | None) -> None:
    """Raises: StoreError when going on would not be going on with the same run."""
    if run_id(job.coins).hex() != began.run:
        raise StoreError(f"{job.store.path}/manifest.json: its coins are not those of its run; restore it")
    # A crash between manifest and description of a run that is made longer leaves the shorter one.
    if described(job.spec) not in (began.spec, *began.shorter):
        raise StoreError(f"{job.store.path}/spec.toml is not the one this run began with; restore it")
    if made.dataset.digest != began.data:
        raise StoreError(f"{job.store.path}: the data differ from those this run began with; restore them")
    if state is None and first_digest(made) != began.first:
        raise StoreError(f"{job.store.path}: the first model differs from the one this run began with; restore it")
    sizes = {len(plain["vector"]) for plain in (state.memories["server"]["models"] if state else ())}
    if sizes - {made.task.layout.size}:
        now, then = made.task.layout.size, max(sizes)
        raise StoreError(f"{job.store.path}: the network has {now} numbers, and {then} when it began; restore it")
    # Name, file and digest of each function of the user's own: a changed one is told, and does not stop the run.
    found = records(job.spec)
    for key, known in began.own.items():
        if key in found and found[key].get("sha256") != known.get("sha256"):
            text = f"{key}: {found[key].get('file')} has changed since this run began, and is used from here on"
            job.watch("warning", {"text": text})
    # `run.device` may be changed: where another device computes other messages, the journal refuses them.
    for name, was in began.packages.items():
        if (here := version_of(name)) != was:
            text = f"begun with {name} {was}, resumed with {here}: last bits may differ"
            job.watch("note", {"text": text})
