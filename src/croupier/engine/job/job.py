"""One described run in one directory: its rounds are played, written down, and wrapped up in a summary and a model.

It joins what other rooms do: assembles the task, opens the journal, plays rounds, writes a line for each, keeps the
state, and measures the last model for each client. The order of writes is what makes a kill at any moment safe.
`engine.job.run` starts a job, and `engine.job.resume` goes on with one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from croupier.accounts import accounts, by_tier, closing, round_line
from croupier.cautions import Course, at_start
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.view import Kept, facts
from croupier.engine.federation import check, check_names, least
from croupier.engine.job.manifest import manifest_of
from croupier.engine.job.result import Result, metrics_of, notes_of, peak_bytes
from croupier.engine.journal import Journal
from croupier.engine.local import Local
from croupier.engine.loop import Continuation, plain_model, rounds
from croupier.engine.state import Round, State, view_digests
from croupier.engine.store import NOTED, RunDir
from croupier.errors import CroupierError, EngineError, SpecError, StoreError
from croupier.learn.assemble import Assembled, Hardware, assemble, model_bytes
from croupier.learn.budget import UNIT, so_far
from croupier.learn.clients import clients_of
from croupier.learn.constant import always
from croupier.privacy.ledger import ADJACENCY
from croupier.spec import Spec
from croupier.statement import explain
from croupier.toml_text import to_toml

Watch = Callable[[str, Mapping[str, Any]], None]
LOST = "lost.json"  # a round failed whose updates must not be summed again: such a run is not resumed
LEDGER = "ledger.jsonl"
# So many refusals of a round are told in full.
SHOWN = 3


@dataclass(frozen=True)
class Job:
    """One description in one run directory, with its coins and who watches."""

    spec: Spec
    store: RunDir
    coins: Coins
    folder: Path | None
    watch: Watch

    def start(self, seed: int | None) -> Result:
        """Run it from its first round; where it fails before a client sent anything, its directory is taken away."""
        made = self.assemble(self.spec.task.warm)
        self.store.open(resume=False)
        journal: Journal | None = None
        try:
            self.watch("opened", {"path": str(self.store.path)})
            self.store.write_json("manifest.json", manifest_of(self.spec, self.coins, made, seed), private=True)
            journal = Journal.begin(self.store.path)
            self.store.write("spec.toml", to_toml(self.spec).encode())
            return self.finish(made, journal, None, [], [])
        except Exception as error:
            # Before a client sent anything nothing is spent and no secret used; a full disk can be resumed from.
            goes_on = journal is not None and isinstance(error, StoreError | EngineError)
            if not goes_on and (journal is None or not journal.heard_from(made.task.enrolled)):
                self.store.discard()
            raise
        finally:
            if journal is not None:
                journal.close()
            self.store.close()

    def assemble(self, warm: str | None) -> Assembled:
        """The task. Raises: SpecError when the description does not fit it."""
        task, machine = self.spec.task, self.spec.run
        torch.set_num_threads(1)
        made = assemble(
            task.data,
            task.split,
            task.model,
            task.fit,
            self.coins,
            options=replace(task.options, warm=warm),
            folder=self.folder,
            machine=Hardware(
                machine.device,
                machine.workers,
                lambda count: self.watch("trained", {"clients": count}),
                machine.engine,
                alone=True,
            ),
        )
        check(self.spec.protocol, len(made.task.enrolled), self.spec.federation, made.task.offers)
        check_names(self.spec.protocol, made.task.enrolled, self.spec.federation)
        invited = self.spec.federation.cohort or len(made.task.enrolled)
        self.spec.protocol.place.check_size(self.spec.protocol, made.task.layout, invited)
        known = {*made.task.enrolled, *self.spec.protocol.parties(())}
        if unknown := [name for name in machine.views if name not in known]:
            raise SpecError(f"run.views = {unknown!r}: no such party; there are {', '.join(sorted(known)[-12:])}")
        return made

    def finish(
        self,
        made: Assembled,
        journal: Journal,
        state: State | None,
        metrics: list[dict[str, Any]],
        timing: list[dict[str, Any]],
    ) -> Result:
        """Play the rounds that are left, write each down, and wrap up."""
        with contextlib.closing(made):
            return self._played(made, journal, state, metrics, timing)

    def _played(
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
        course, ahead = Course.of(made), self._accounts_ahead(len(metrics))
        clock = time.perf_counter()
        told: set[str] = set()
        for done in self._unspent(self._rounds(made, journal, state), len(metrics)):
            line, state = {**metrics_of(done), **self._spent(done), **self._of_records(made, done)}, done.state
            spent = {"round": line["round"], "seconds": time.perf_counter() - clock, "peak_bytes": peak_bytes()}
            self._keep(done, line, spent, ahead)
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
            except (StoreError, EngineError):
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
            start=Continuation(state, journal.release, journal.restarts), keep=keep,
        )  # fmt: skip

    @property
    def accounted(self) -> bool:
        """Whether clients have something to spend."""
        return self.spec.protocol.privacy.guarantee() is not None

    def _spent(self, done: Round) -> dict[str, Any]:
        """By tier the most that a client has spent; nothing where nothing is claimed for clients."""
        if not self.accounted:
            return {}
        known = sorted(name for name, memory in done.state.memories.items() if "ledger" in memory)
        return {"spent": by_tier(accounts(self.spec.protocol, done.state, known)), "overspent": sorted(done.overspent)}

    def _of_records(self, made: Assembled, done: Round) -> dict[str, Any]:
        """What training itself has cost a record so far, at most, where it adds noise."""
        private, counts = self.spec.task.fit.private, done.state.participations
        if private is None or self.spec.protocol.encode.claims_none():
            return {}
        found = so_far(private, ((made.sizes[name], times) for name, times in counts.items()))
        return {} if found is None else {"record": found.plain()}

    def _accounts_ahead(self, done: int) -> list[dict[str, Any]]:
        """Lines of the ledger for rounds after the checkpoint, which are played again now."""
        lines = self.store.read(LEDGER, self.spec.federation.rounds) if self.accounted else []
        return [line for line in lines if line["round"] > done]

    def _keep(
        self, done: Round, line: Mapping[str, Any], spent: Mapping[str, Any], ahead: list[dict[str, Any]]
    ) -> None:
        """Log lines first, state last: what a checkpoint promises is already on disk."""
        number = int(line["round"])
        self.store.append("metrics.jsonl", line)
        self.store.append("timing.jsonl", spent)
        self.store.append(NOTED, notes_of(done))
        if self.accounted:
            account = round_line(self.spec.protocol, done)
            # A round that is repeated has its line already, and one that is played anew adds its own.
            if account not in ahead:
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
        """A run's last files, its model and its summary, and the result as a value; without them it is not whole."""
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
        if constant := always(made.dataset):
            summary["always"] = constant
        if made.dataset.owners:
            summary["clients"] = self._by_client(made, state)
        if held := self._permuted(made):
            summary["permuted"] = list(held)
        if lost := [line for line in metrics if line.get("lost")]:
            summary["lost"] = {"rounds": len(lost), "of": len(metrics), "why": lost[-1]["lost"]}
        if of_records := metrics[-1].get("record"):
            summary["record"] = {"unit": UNIT, "adjacency": ADJACENCY["record"], **of_records}
        if self.accounted:
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
