"""Kill a run at any step, change the last bits of its training, resume it, and see what left in all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from croupier.core.attempt import AttemptId
from croupier.core.coins import Coins, Label, Stream
from croupier.core.envelope import Envelope
from croupier.core.update import Update
from croupier.engine.federation import Federation
from croupier.engine.journal import Journal
from croupier.engine.local import Local
from croupier.engine.loop import Continuation, rounds
from croupier.engine.state import Round, State
from croupier.engine.task import Fits
from croupier.errors import Replayed
from croupier.pipeline import Pipeline
from tests.laws.toy import CLIENTS, SEED, fit, layout_for, task

# Of which attempt, from whom, to whom, what kind.
Slot = tuple[bytes, int, int, str, str, str]


class Killed(BaseException):
    """The process is gone: nothing in it can catch this."""


def nudged(jobs: Sequence[tuple[Any, ...]]) -> list[Update]:
    """The same training with other last bits, each client's its own."""
    done = []
    for job, update in zip(jobs, fit(jobs), strict=True):
        step = 1e-2 * torch.from_numpy(Coins.from_seed(1).child(job[1]).sampler().normal(size=len(update.vector)))
        done.append(replace(update, vector=update.vector + step.float()))
    return done


@dataclass
class Trace:
    """What left over several sittings, and which nodes of coins were drawn from."""

    left: list[tuple[Slot, bytes]] = field(default_factory=list)
    drawn: dict[bytes, tuple[Label, ...]] = field(default_factory=dict)

    def sources(self, spec: bytes, number: int) -> set[str]:
        """Who sent something in a round."""
        return {slot[3] for slot, _ in self.left if slot[0] == spec and slot[1] == number}


@dataclass
class Tap:
    """A journal that dies at one of its steps, and hears what leaves after each."""

    journal: Any
    trace: Trace
    die_at: int | None = None
    before: bool = False
    steps: int = 0

    def leave(self, attempt_id: AttemptId, envelopes: Sequence[Envelope]) -> None:
        """Die before the line is written, or when it is and nothing has left yet, or hear what leaves."""
        self.step(lambda: self.journal.leave(attempt_id, envelopes))
        for envelope in envelopes:
            head = envelope.header
            slot = (attempt_id.spec, attempt_id.round, attempt_id.attempt, head.source, head.target, head.kind)
            self.trace.left.append((slot, bytes(envelope.body)))

    def release(self, client: str, event: Mapping[str, Any]) -> None:
        """The same for a release."""
        self.step(lambda: self.journal.release(client, event))

    def step(self, write: Callable[[], None]) -> None:
        """One moment at which a process may die: before something is written down, or right after."""
        last, self.steps = self.steps == self.die_at, self.steps + 1
        if last and self.before:
            raise Killed
        write()
        if last:
            raise Killed


@contextmanager
def watching(trace: Trace) -> Iterator[None]:
    """Write down every node that is drawn from, whoever holds it."""
    patch = pytest.MonkeyPatch()
    child, secure = Coins.child, Coins.secure

    def named(self: Coins, *labels: Label) -> Coins:
        node = child(self, *labels)
        node._path = (*getattr(self, "_path", ()), *labels)  # type: ignore[attr-defined]
        return node

    def drawn(self: Coins) -> Stream:
        trace.drawn[self.export()] = getattr(self, "_path", ())
        return secure(self)

    patch.setattr(Coins, "child", named)
    patch.setattr(Coins, "secure", drawn)
    try:
        yield
    finally:
        patch.undo()


@dataclass(frozen=True)
class Run:
    """A toy run with a journal in a folder; its states are kept as checkpoints would be."""

    pipeline: Pipeline
    folder: Path
    count: int = 2
    kind: type[Journal] = Journal
    states: dict[int, State] = field(default_factory=dict)

    def sit(
        self, trace: Trace, *, fits: Fits = fit, anew: bool = False, die_at: int | None = None, before: bool = False
    ) -> tuple[list[Round], Tap]:
        """Start or go on. Raises: Killed, Replayed."""
        fresh = not (self.folder / "sent.jsonl").exists()
        journal = self.kind.begin(self.folder) if fresh else self.kind.read(self.folder)
        tap, state = Tap(journal, trace, die_at, before), self.states[max(self.states)] if self.states else None
        done: list[Round] = []
        try:
            if anew:
                journal.restart(self.pipeline.digest(), state.round if state else 0, CLIENTS)
            with watching(trace):
                toy = replace(task(layout=layout_for(self.pipeline)), fit=fits)
                for one in rounds(
                    self.pipeline, toy, Federation(rounds=self.count), Coins.from_seed(SEED), Local(journal=tap),
                    start=Continuation(state, tap.release, journal.restarts),
                ):  # fmt: skip
                    # Everything left, and no checkpoint is there yet.
                    tap.step(lambda: None)
                    done.append(one)
                    self.states[one.state.round] = one.state
        finally:
            journal.close()
        return done, tap


def one_message_a_secret(*traces: Trace) -> None:
    """No slot, whose secrets are its own, carried two different messages."""
    seen: dict[Slot, bytes] = {}
    for trace in traces:
        for slot, body in trace.left:
            assert seen.setdefault(slot, body) == body, f"one secret covers two messages: {slot[1:]}"


def fresh_after(spec: bytes, number: int, earlier: Sequence[Trace], later: Trace) -> None:
    """Nothing drawn for a message that left is drawn again."""
    sent = set[str]().union(*(trace.sources(spec, number) for trace in earlier))
    before = {key for trace in earlier for key in trace.drawn}
    for key in before & set(later.drawn):
        path = later.drawn[key]
        # Agreements are repeated word for word. A rule is no one-time secret: it covers what all send in a round.
        if not sent or "agree" in path or path[:1] in (("rule",), ("first model",)):
            continue
        # A client that sent nothing may still send what it drew.
        alone = path[:1] == ("party",) and path[1] not in sent
        assert alone, f"drawn again for another message: {path}"


def every_release_counted(pipeline: Pipeline, folder: Path, traces: Sequence[Trace], last: State) -> None:
    """Each client's ledger, in memory and on disk, has at least as many releases as left."""
    if pipeline.privacy.guarantee() is None:
        return
    spec, counted = pipeline.digest(), Journal.read(folder)
    for name in {slot[3] for trace in traces for slot, _ in trace.left if slot[3] in last.participations}:
        kept, written = len(last.memories[name].get("ledger", ())), len(counted._released.get(name, ()))
        # All that a client sends in an attempt belongs to one update.
        mine = (slot for trace in traces for slot, _ in trace.left if slot[0] == spec and slot[3] == name)
        updates = {(slot[1], slot[2]) for slot in mine}
        assert kept == written, f"{name}: {kept} releases remembered, {written} on disk"
        assert kept >= len(updates), f"{name}: {len(updates)} releases left and {kept} are counted"
    counted.close()


__all__ = [
    "Killed", "Replayed", "Run", "Tap", "Trace", "every_release_counted", "fresh_after", "nudged",
    "one_message_a_secret",
]  # fmt: skip
