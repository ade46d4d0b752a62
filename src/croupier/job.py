"""A job: one described run in one directory, from its spec to its exported model."""

from __future__ import annotations

import contextlib
import platform
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from croupier.accounts import accounts, by_tier, closing, round_line
from croupier.cautions import Course, at_reading, at_start
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.view import Kept, facts
from croupier.errors import CroupierError, CroupierWarning, RangeError, SpecError, StoreError, either
from croupier.federate import Round, State, plain_model, rounds, run_id, state_from, view_digests
from croupier.federation import check, check_names, least
from croupier.learn.assemble import Assembled, assemble, model_bytes
from croupier.learn.budget import UNIT, so_far
from croupier.learn.clients import clients_of
from croupier.learn.data import folder_of
from croupier.learn.fit import Private
from croupier.learn.flat import frozen_of
from croupier.learn.own import check_there, records
from croupier.privacy.ledger import ADJACENCY
from croupier.runtime.journal import Journal
from croupier.runtime.local import Local
from croupier.runtime.store import NOTED, RunDir
from croupier.spec import Sets, Source, Spec, counted, load, to_toml
from croupier.statement import explain

Watch = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True)
class Result:
    """A finished run.

    path: its directory.
    spec: its whole description.
    metrics, timing: a dict for each round, as metrics.jsonl and timing.jsonl hold them.
    summary: what summary.json holds.
    model: the trained network, a plain torch module.
    noted: a line a round, what clients counted for themselves: for the experimenter alone.
    """

    path: Path
    spec: Spec
    metrics: tuple[dict[str, Any], ...]
    timing: tuple[dict[str, Any], ...]
    summary: dict[str, Any]
    model: nn.Module
    noted: tuple[dict[str, Any], ...] = ()

    @property
    def final(self) -> dict[str, Any]:
        """The last round's metrics."""
        return self.metrics[-1]

    def __repr__(self) -> str:
        scores = [f"{key} {self.final[key]:.4g}" for key in ("accuracy", "rmse", "loss") if key in self.final]
        return f"Result({self.spec.name}: {len(self.metrics)} rounds, {', '.join(scores)}, in {str(self.path)!r})"


def run(
    source: Source,
    *,
    sets: Sets = (),
    out: str | Path | None = None,
    seed: int | None = None,
    data: str | Path | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run a description to its end, and leave a run directory behind.

    source: a preset's name (`croupier.presets()`), the path of a TOML file, a table (a dict) or a `Spec`.
    sets: keys of the description to change, as `{"federation.rounds": 3}` or `["federation.rounds=3"]`.
    out: the run directory, which must be new or empty; runs/NAME-TIME-NUMBER when not said.
    seed: reproduces everything from this number; fresh chance without it.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with an event's name and its facts as the run goes on; without it, warnings are Python's own.

    Raises: SpecError, DataError, StoreError before it begins; ProtocolError and others when a round cannot end well.
    """
    spec, watch = load(source, sets, count=counted(data)), watch or _unwatched
    for text in at_reading(source, sets):
        watch("warning", {"text": text})
    coins = Coins.from_os() if seed is None else Coins.from_seed(seed)
    job = _Job(spec, RunDir(Path(out) if out else _fresh(spec.name)), coins, folder_of(data), watch)
    return job.start(seed)


def resume(
    path: str | Path,
    *,
    data: str | Path | None = None,
    own: Sequence[Callable[..., Any]] = (),
    watch: Watch | None = None,
    anew: bool = False,
    rounds: int | None = None,
) -> Result:
    """Go on with a run from its last whole round.

    path: the run directory.
    data: the data folder; CROUPIER_DATA does the same.
    watch: called with an event's name and its facts as the run goes on; without it, warnings are Python's own.
    anew: play a round that had begun under fresh secrets.
    rounds: go on to so many rounds in all, more than the run was begun with.
    own: the functions that a Python program gave the run, if it did.

    A round that had begun is repeated byte for byte. Where that cannot be (another machine, other code), Replayed is
    raised before anything leaves; `anew` then plays it under fresh secrets, as another release that counts.
    """
    folder = RunDir(Path(path))
    folder.check_links()
    if not (folder.path / "spec.toml").is_file() or not (folder.path / "manifest.json").is_file():
        start = either(f"croupier run --out {path}", f"croupier.run(..., out={str(path)!r})")
        raise StoreError(f"{path}: no run to resume here; start one with {start}")
    if (folder.path / LOST).is_file():
        raise StoreError(
            f"{path}: a round failed after its keys were used, and the same updates summed once more with others would "
            "give single ones away; start a new run, from task.warm if you have a model (its ledgers begin anew: lower "
            "budgets by what is spent)"
        )
    manifest = folder.read_json("manifest.json")
    try:
        coins = Coins(bytes.fromhex(manifest["coins"]))
        machine = {**manifest["packages"], "device": manifest["device"]}
        began = _Began(
            manifest["run"], manifest["spec"], manifest["data"]["digest"], manifest["first"], machine,
            tuple(manifest.get("shorter", ())), manifest.get("own", {}),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, RangeError):
        raise StoreError(f"{path}/manifest.json is damaged: this is no run that can be resumed") from None
    spec = load(folder.path / "spec.toml", own=own)
    check_there(spec, manifest.get("own", {}), str(path))
    job = _Job(spec, folder, coins, folder_of(data), watch or _unwatched)
    return job.go_on(began, anew, rounds)


LOST = "lost.json"
# So many refusals of a round are told in full.
SHOWN = 3
LEDGER = "ledger.jsonl"


@dataclass(frozen=True)
class _Began:
    """What a run began with, from its manifest."""

    run: str
    spec: str
    data: str
    first: str
    packages: Mapping[str, str]
    shorter: tuple[str, ...] = ()
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def peak_bytes() -> int:
    """The process's resident high-water mark."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _unwatched(event: str, facts: Mapping[str, Any]) -> None:
    """Nobody watches: warnings are Python's."""
    if event == "warning":
        warnings.warn(facts["text"], CroupierWarning, stacklevel=2)


def _fresh(name: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 1
    while (path := Path("runs") / f"{name}-{stamp}-{number}").exists():
        number += 1
    return path


@dataclass(frozen=True)
class _Job:
    spec: Spec
    store: RunDir
    coins: Coins
    folder: Path | None
    watch: Watch

    def start(self, seed: int | None) -> Result:
        made = self._assemble(self.spec.task.warm)
        self.store.open(resume=False)
        journal: Journal | None = None
        try:
            self.watch("opened", {"path": str(self.store.path)})
            self.store.write_json("manifest.json", self._manifest(made, seed), private=True)
            journal = Journal.begin(self.store.path)
            self.store.write("spec.toml", to_toml(self.spec).encode())
            return self._finish(made, journal, None, [], [])
        except Exception as error:
            # Before a client sent anything nothing is spent and no secret used; a full disk can be resumed from.
            full = journal is not None and isinstance(error, StoreError)
            if not full and (journal is None or not journal.heard_from(made.task.enrolled)):
                self.store.discard()
            raise
        finally:
            if journal is not None:
                journal.close()
            self.store.close()

    def go_on(self, began: _Began, anew: bool, rounds: int | None) -> Result:
        self.store.open(resume=True)
        try:
            self.watch("opened", {"path": str(self.store.path)})
            plain = self.store.latest()
            state = None if plain is None else state_from(plain)
            if state is None and self.store.damaged:
                self.watch("note", {"text": "no checkpoint is whole: starting again from the first round"})
            done = 0 if state is None else state.round
            # A state has everything the first model gave: the file it was warmed from may be gone by now.
            made = self._assemble(self.spec.task.warm if state is None else None)
            self._check_same(made, began, state)
            job = self if rounds is None else self._longer(rounds)
            with contextlib.closing(Journal.read(self.store.path)) as journal:
                journal.anew_helps = not self._sums_bare
                metrics, timing = self._log("metrics.jsonl", done), self._log("timing.jsonl", done)
                self._check_journal(journal, metrics, made.task.enrolled)
                if anew:
                    self._restart(journal, done, made.task.enrolled)
                if self._accounted:
                    self._ledger(done)
                if self.spec.run.record == "digest":
                    self._log("digests.jsonl", done)
                self._log(NOTED, done)
                return job._finish(made, journal, state, metrics, timing)
        finally:
            self.store.close()

    def _longer(self, rounds: int) -> _Job:
        """The same run with more rounds. Raises: SpecError when there would be fewer."""
        plan = self.spec.federation
        if rounds < plan.rounds:
            raise SpecError(f"rounds = {rounds}: the run was begun with {plan.rounds}; it can only be made longer")
        longer = load(self.spec, [f"federation.rounds={rounds}"])
        job = replace(self, spec=longer)
        # The manifest first: what it says of the description must hold for the one that is found beside it.
        manifest = self.store.read_json("manifest.json")
        known = sorted({*manifest.get("shorter", []), manifest["spec"]} - {job._described()})
        self.store.write_json("manifest.json", {**manifest, "spec": job._described(), "shorter": known}, private=True)
        self.store.write("spec.toml", to_toml(longer).encode())
        # Its end is not the end any more.
        (self.store.path / "summary.json").unlink(missing_ok=True)
        return job

    def _restart(self, journal: Journal, done: int, clients: Sequence[str]) -> None:
        """Play the rounds that had begun under fresh secrets, and say what stays counted."""
        spec = self.spec.protocol.digest()
        if self._sums_bare and journal.since(spec, done, clients).participations:
            raise StoreError(
                f"{self.store.path}: round {done + 1} had begun, and clients' updates had left: a second sum of nearly "
                "the same updates would give single ones away, so that it is not played anew; resume without --anew "
                "and with what it began with, or start a new run, from task.warm if you have a model"
            )
        made = journal.restart(spec, done, clients)
        if not made.attempts:
            self.watch("note", {"text": "nothing had left since the last whole round: nothing counts twice"})
            return
        many = sum(len(events) for events in made.ledgers.values())
        text = f"{len(made.attempts)} rounds are played anew; {len(made.participations)} clients' updates had left"
        self.watch("note", {"text": f"{text}{f', and {many} releases stay in their ledgers' if many else ''}"})

    @property
    def _sums_bare(self) -> bool:
        """Whether sums of updates leave that no noise of their clients' own covers: two of them tell single ones."""
        protocol = self.spec.protocol
        sums = protocol.place.spends or protocol.release.shape in ("sums", "bucketed")
        return sums and protocol.privacy.guarantee() is None

    def _check_journal(self, journal: Journal, metrics: Sequence[Mapping[str, Any]], clients: Sequence[str]) -> None:
        """Raises: StoreError when the journal does not know of what other files show to have left."""
        sent = journal.rounds_of(self.spec.protocol.digest())
        known = set[int]().union(*sent.values())
        lost = [line["round"] for line in metrics if not line.get("lost") and line["round"] - 1 not in known]
        privacy = self.spec.protocol.privacy
        for name in clients:
            if privacy.of(name).event(0) is not None:
                lost += [number + 1 for number in sorted(sent.get(name, set()) - journal.released(name))]
        if lost:
            raise StoreError(
                f"{self.store.path}: sent.jsonl or releases.jsonl lost what left in round {lost[0]}: nobody knows what "
                "left before; restore them, or start a new run"
            )

    def _ledger(self, done: int) -> None:
        """Raises: StoreError when the accounts are not whole. They only grow: a round played anew has a line more."""
        self.store.mend(LEDGER)
        lines = self.store.read(LEDGER, done)
        if {line["round"] for line in lines} != set(range(1, done + 1)):
            raise StoreError(f"{self.store.path}/{LEDGER} lost rounds that the checkpoint has; start a new run")

    def _log(self, name: str, done: int) -> list[dict[str, Any]]:
        """A log cut back to a whole round. Raises: StoreError when it is not whole up to there."""
        lines = self.store.read(name, done)
        if [line["round"] for line in lines] != list(range(1, done + 1)):
            raise StoreError(f"{self.store.path}/{name} lost rounds that the checkpoint has; start a new run")
        self.store.cut(name, done)
        return lines

    def _check_same(self, made: Assembled, began: _Began, state: State | None) -> None:
        """Raises: StoreError when going on would not be going on with the same run."""
        if run_id(self.coins).hex() != began.run:
            raise StoreError(f"{self.store.path}/manifest.json: its coins are not those of its run; restore it")
        # A crash between manifest and description of a run that is made longer leaves the shorter one.
        if self._described() not in (began.spec, *began.shorter):
            raise StoreError(f"{self.store.path}/spec.toml is not the one this run began with; restore it")
        if made.dataset.digest != began.data:
            raise StoreError(f"{self.store.path}: the data differ from those this run began with; restore them")
        if state is None and _first(made) != began.first:
            raise StoreError(f"{self.store.path}: the first model differs from the one this run began with; restore it")
        sizes = {len(plain["vector"]) for plain in (state.memories["server"]["models"] if state else ())}
        if sizes - {made.task.layout.size}:
            now, then = made.task.layout.size, max(sizes)
            raise StoreError(f"{self.store.path}: the network has {now} numbers, and {then} when it began; restore it")
        found = records(self.spec)
        for key, known in began.own.items():
            if key in found and found[key].get("sha256") != known.get("sha256"):
                text = f"{key}: {found[key].get('file')} has changed since this run began, and is used from here on"
                self.watch("warning", {"text": text})
        for name, was in began.packages.items():
            here = self.spec.run.device if name == "device" else _version(name)
            if here != was and name != "device":
                text = f"begun with {name} {was}, resumed with {here}: last bits may differ"
                self.watch("note", {"text": text})

    def _assemble(self, warm: str | None) -> Assembled:
        task, machine = self.spec.task, self.spec.run
        torch.set_num_threads(1)
        made = assemble(
            task.data, task.split, task.model, task.fit, self.coins,
            augment=task.augment, root=task.root, folder=self.folder, together=task.together, warm=warm,
            opaque=task.opaque, loss=task.loss, metrics=task.metrics, device=machine.device, workers=machine.workers,
            tick=lambda count: self.watch("trained", {"clients": count}),
        )  # fmt: skip
        check(self.spec.protocol, len(made.task.enrolled), self.spec.federation, made.task.offers)
        check_names(self.spec.protocol, made.task.enrolled, self.spec.federation)
        known = {*made.task.enrolled, *self.spec.protocol.parties(())}
        if strangers := [name for name in machine.views if name not in known]:
            raise SpecError(f"run.views = {strangers!r}: no such party; there are {', '.join(sorted(known)[-12:])}")
        return made

    def _finish(
        self,
        made: Assembled,
        journal: Journal,
        state: State | None,
        metrics: list[dict[str, Any]],
        timing: list[dict[str, Any]],
    ) -> Result:
        cohort = self.spec.federation.cohort or len(made.task.enrolled)
        self.watch("started", {"rounds": self.spec.federation.rounds, "cohort": cohort, "done": len(metrics)})
        if (held := self._permuted(made)) and not metrics:
            self.watch("note", {"text": held[0]})
        for text in () if metrics else at_start(self.spec, made):
            self.watch("warning", {"text": text})
        course = Course.of(made)
        clock = time.perf_counter()
        told: set[str] = set()
        for done in self._unspent(self._rounds(made, journal, state), len(metrics)):
            line, state = {**metrics_of(done), **self._spent(done), **self._of_records(made, done)}, done.state
            spent = {"round": line["round"], "seconds": time.perf_counter() - clock, "peak_bytes": peak_bytes()}
            self._keep(done, line, spent)
            if came := sorted(who for who, first in self.spec.federation.joins.items() if first == line["round"] > 1):
                self.watch("note", {"text": f"round {line['round']}: {', '.join(came)} joined"})
            if done.lost:
                self.watch("note", {"text": f"round {line['round']} is lost: {done.lost}; the model stays"})
            elif not done.present:
                text = f"round {line['round']}: too few clients came; nothing was released, and the model stays"
                self.watch("note", {"text": text})
            fresh = sorted(set(done.overspent) - told)
            for name in fresh[:SHOWN]:
                self.watch("note", {"text": f"round {line['round']}: {done.overspent[name]}"})
            if (more := len(fresh) - SHOWN) > 0:
                text = f"round {line['round']}: {more} more clients are past their budgets; ledger.jsonl names them"
                self.watch("note", {"text": text})
            told |= set(done.overspent)
            metrics.append(line)
            timing.append(spent)
            self.watch("round", line)
            for text in course.after(line):
                self.watch("warning", {"text": text})
            clock = time.perf_counter()
        if state is None:
            raise StoreError(f"{self.store.path}: nothing was run")
        return self._wrap_up(made, state, metrics, timing)

    def _unspent(self, played: Iterator[Round], number: int) -> Iterator[Round]:
        """The rounds; where one fails whose secrets are good for one sum only, the run is marked as lost."""
        while True:
            try:
                done = next(played)
            except StopIteration:
                return
            except StoreError:
                # Nothing left that was not written down: the round can be repeated.
                raise
            except CroupierError as error:
                # Sums of the same updates over two rosters differ by single ones.
                if self.spec.protocol.place.spends or self.spec.protocol.release.shape in ("sums", "bucketed"):
                    self.store.write_json(LOST, {"round": number + 1, "why": str(error)})
                raise
            number += 1
            yield done

    def _rounds(self, made: Assembled, journal: Journal, state: State | None) -> Iterator[Round]:
        machine = self.spec.run
        keep: dict[str, Kept] = {"*": machine.record, **dict.fromkeys(machine.views, "keep")}
        # Link keys need not be reproducible, and two runs from one seed must not share them.
        drive = Local(Coins.from_os() if machine.through_bytes else None, journal=journal)
        return rounds(
            self.spec.protocol, made.task, self.spec.federation, self.coins, drive,
            state=state, keep=keep, spend=journal.release, restarts=journal.restarts,
        )  # fmt: skip

    @property
    def _accounted(self) -> bool:
        """Whether clients have something to spend."""
        return self.spec.protocol.privacy.guarantee() is not None

    def _spent(self, done: Round) -> dict[str, Any]:
        """By tier the most that a client has spent; nothing where nothing is claimed for clients."""
        if not self._accounted:
            return {}
        known = sorted(name for name, memory in done.state.memories.items() if "ledger" in memory)
        return {"spent": by_tier(accounts(self.spec.protocol, done.state, known)), "overspent": sorted(done.overspent)}

    def _of_records(self, made: Assembled, done: Round) -> dict[str, Any]:
        """What training itself has cost a record so far, at most, where it adds noise."""
        fit, counts = self.spec.task.fit, done.state.participations
        if not isinstance(fit, Private):
            return {}
        found = so_far(fit, ((made.sizes[name], times) for name, times in counts.items()))
        return {} if found is None else {"record": found.plain()}

    def _keep(self, done: Round, line: Mapping[str, Any], spent: Mapping[str, Any]) -> None:
        """Log lines first, state last: what a checkpoint promises is already on disk."""
        number = int(line["round"])
        self.store.append("metrics.jsonl", line)
        self.store.append("timing.jsonl", spent)
        self.store.append(NOTED, notes_of(done))
        if self._accounted:
            account = round_line(self.spec.protocol, done)
            # A round that is repeated has its line already, and one that is played anew adds its own.
            if account not in self.store.read(LEDGER, number):
                self.store.append(LEDGER, account)
        if self.spec.run.record == "digest":
            self.store.append("digests.jsonl", {"round": number, "views": view_digests(done)})
        for name, view in done.views.items():
            if view.kept == "keep":
                self.store.write(f"views/{number:06d}-{name}.view", canon.dump(facts(view)))
        if number % self.spec.run.checkpoint_every == 0 or number == self.spec.federation.rounds:
            self.store.checkpoint(number, done.state.plain())

    def _wrap_up(
        self, made: Assembled, state: State, metrics: list[dict[str, Any]], timing: list[dict[str, Any]]
    ) -> Result:
        model = plain_model(made.task, self.coins, state)
        module = made.export(model.vector)
        cohort = self.spec.federation.cohort or len(made.task.enrolled)
        about = {"version": version("croupier"), "run": self.spec.name}
        self.store.write("model.safetensors", model_bytes(module, about))
        summary = {
            "name": self.spec.name,
            "path": str(self.store.path),
            "final": metrics[-1],
            "seconds": sum(line["seconds"] for line in timing),
            "peak_bytes": max((line["peak_bytes"] for line in timing), default=peak_bytes()),
            "data": dict(made.dataset.notes),
            "statement": explain(
                self.spec.protocol,
                noise=self.spec.task.fit.claims(),
                cohorts=cohort < len(made.task.enrolled),
                rounds=self.spec.federation.rounds,
                present=least(self.spec.federation, cohort),
                invited=(len(made.task.enrolled), cohort),
            ).plain(),
        }
        if made.dataset.owners:
            summary["clients"] = self._by_client(made, state)
        if held := self._permuted(made):
            summary["permuted"] = list(held)
        if lost := [line for line in metrics if line.get("lost")]:
            summary["lost"] = {"rounds": len(lost), "of": len(metrics), "why": lost[-1]["lost"]}
        if of_records := metrics[-1].get("record"):
            summary["record"] = {"unit": UNIT, "adjacency": ADJACENCY["record"], **of_records}
        if self._accounted:
            lines = self.store.read(LEDGER, self.spec.federation.rounds)
            refused = sorted({name for line in lines for name in line["refused"]})
            rounds = self.spec.federation.rounds
            summary["ledger"] = closing(self.spec.protocol, state, made.task.enrolled, refused, rounds)
        self.store.write_json("summary.json", summary)
        noted = self.store.read(NOTED, self.spec.federation.rounds)
        return Result(self.store.path, self.spec, tuple(metrics), tuple(timing), summary, module, tuple(noted))

    def _by_client(self, made: Assembled, state: State) -> dict[str, Any]:
        """How good the model is for each client, on the client's own test part; or why nobody can say."""
        return clients_of(made, lambda who: plain_model(made.task, self.coins, state, who))

    def _permuted(self, made: Assembled) -> tuple[str, ...]:
        """What the rule moves, and what stays and why, where there is one."""
        if not self.spec.protocol.encode.agrees or made.task.symmetry is None:
            return ()
        symmetry = made.task.symmetry()
        return (symmetry.brief(), *symmetry.says())

    def _described(self) -> str:
        """What binds the description; how this machine runs it may change between two sittings."""
        spec = self.spec
        return canon.digest((spec.task.digest(), spec.federation.digest(), spec.protocol.digest())).hex()

    def _manifest(self, made: Assembled, seed: int | None) -> dict[str, Any]:
        return {
            "croupier": version("croupier"),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in ("torch", "numpy", "cryptography", "numba")},
            "machine": platform.machine(),
            "seed": seed,
            # A simulation must be resumable, so its root is kept with it; a service never writes its own down.
            "coins": self.coins.export().hex(),
            "protocol": self.spec.protocol.digest().hex(),
            "spec": self._described(),
            "run": run_id(self.coins).hex(),
            "workers": made.workers,
            "threads_per_worker": 1,
            "together": self.spec.task.together,
            "device": self.spec.run.device,
            "data": {
                "name": made.dataset.name,
                "digest": made.dataset.digest,
                "licence": made.dataset.licence,
                "notes": dict(made.dataset.notes),
            },
            "first": _first(made),
            "own": records(self.spec),
            "shards": dict(made.task.shards),
        }


def _first(made: Assembled) -> str:
    vector, frozen = made.task.first.vector, frozen_of(made.module)
    return canon.digest({"first": vector, "frozen": frozen} if frozen else vector).hex()


def _clusters(state: State) -> dict[str, int]:
    """How many models there are, and how many clients get the largest cluster's, which is the one that is measured."""
    sizes = [len(model["recipients"]) for model in state.memories["server"]["models"] if model.get("recipients")]
    return {"clusters": len(sizes), "largest": max(sizes)} if sizes else {}


def notes_of(done: Round) -> dict[str, Any]:
    """The line of a round in noted.jsonl: each client's own counts, which depend on its data and go to nobody else."""
    return {"round": done.number + 1, "clients": {name: dict(note) for name, note in sorted(done.noted.items())}}


def metrics_of(done: Round) -> dict[str, Any]:
    """The line of a round in metrics.jsonl: nothing in it depends on time or machine, or is known to a client only."""
    traffic = done.traffic
    clients = done.present or done.cohort
    return {
        "round": done.number + 1,
        "attempt": done.attempt,
        "invited": len(done.cohort),
        "present": len(done.present),
        "refused": sorted({refusal.source for refusal in done.refusals}),
        **done.metrics,
        "bytes_up_per_client": sum(traffic.sent[c] for c in clients) / len(clients),
        "bytes_down_per_client": sum(traffic.got[c] for c in clients) / len(clients),
        "bytes": {name: [traffic.sent[name], traffic.got[name]] for name in sorted({*traffic.sent, *traffic.got})},
        "messages": traffic.messages,
        **_clusters(done.state),
        **({} if done.strangers is None else {"strangers": len(done.strangers), "lost": done.lost}),
        "model": canon.digest(done.state.model.vector).hex(),
    }
