"""The round loop: who is invited, what they start from, what happens when some are missing, what is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.core.coins import Coins
from croupier.core.flow import Change, Coalition, Given, Memory, Party, Refusal, corrupt, roster_digest
from croupier.core.sitting import Bench, Drive, Sat, Sitting, Stamp, Traffic
from croupier.core.update import Layout, Model, Update, meant_for
from croupier.core.view import Kept, View
from croupier.encode.hidden import HiddenUnits
from croupier.encode.permuting import Permuting
from croupier.encode.symmetry import Symmetry
from croupier.epochs import Epochs, plain_of
from croupier.errors import (
    CroupierError,
    Overspent,
    ProtocolError,
    SpecError,
    StoreError,
    TooFew,
)
from croupier.failure import alarmed, short, why
from croupier.federation import Federation, check, check_names, least
from croupier.pipeline import Pipeline
from croupier.place.talk import Meeting, Ready
from croupier.privacy.ledger import Event, Ledger
from croupier.restart import Restart, with_events

Spend = Callable[[str, Mapping[str, Any]], None]
Fits = Callable[[Sequence[tuple[Any, ...]]], Sequence[Update | CroupierError]]


@dataclass(frozen=True)
class Task:
    """What is learned: who is enrolled, their data by digest, how to train and how to measure.

    `fit` takes (start, shard digest, coins) jobs and gives an update or an error for each. `root` and `features` are
    the server's own, where it has records: the same training on them, and what a model makes of them. `answers` is what
    a model makes of inputs of the shape `inputs`, where these are numbers that noise can stand in for. `symmetry` finds
    the network's permutations, and `fresh` draws weights for it. `sample` draws one record of a client's own.
    """

    shards: Mapping[str, str]
    layout: Layout
    first: Model
    fit: Fits
    evaluate: Callable[[Model], Mapping[str, float]]
    root: Callable[[Tensor, Coins], Tensor] | None = None
    features: Callable[[Tensor], Tensor] | None = None
    answers: Callable[[Tensor, Tensor], Tensor] | None = None
    inputs: tuple[int, ...] = ()
    symmetry: Callable[[], Symmetry] | None = None
    fresh: Callable[[Coins], Tensor] | None = None
    sample: Callable[[str, Coins], Tensor] | None = None

    @property
    def enrolled(self) -> tuple[str, ...]:
        """Everybody, in the canonical order."""
        return tuple(sorted(self.shards))

    @property
    def offers(self) -> frozenset[str]:
        """What there is for a rule that asks for it."""
        own = {
            "root": self.root, "forward": self.features, "answers": self.answers, "symmetry": self.symmetry,
            "samples": self.sample,
        }  # fmt: skip
        return frozenset(name for name, there in own.items() if there is not None)


@dataclass(frozen=True)
class State:
    """Everything the next round depends on. Views may be dropped; this may not."""

    round: int
    # Clients' memories hold secrets.
    memories: Mapping[str, Memory] = field(repr=False)
    participations: Mapping[str, int]

    def plain(self) -> dict[str, Any]:
        """As plain values, for a checkpoint."""
        return {"round": self.round, "memories": dict(self.memories), "participations": dict(self.participations)}

    @property
    def models(self) -> tuple[Model, ...]:
        """The server's current models: one, or one for each cluster."""
        return tuple(Model(**plain) for plain in self.memories["server"]["models"])

    @property
    def model(self) -> Model:
        """The server's current model; the largest cluster's where there are several."""
        return max(self.models, key=lambda model: len(model.recipients or ()))


@dataclass(frozen=True)
class Threat:
    """Who misbehaves: absent in a round, sending something else, rushing together, or following another flow.

    `bend` is what goes wrong while clients agree on a rule before a round.
    """

    absent: Callable[[int], frozenset[str]] = lambda _: frozenset()
    corrupted: Mapping[str, Change] = field(default_factory=dict)
    coalition: Coalition | None = None
    parties: Mapping[str, Party] = field(default_factory=dict)
    bend: Callable[[Sitting], Sitting] = lambda sitting: sitting


@dataclass(frozen=True)
class Round:
    """What one round did. `noted` is each client's own note: truth for an experiment, in nobody else's view.

    `overspent` names the clients that took no part because their budget is spent, and says why. Where clients agree on
    a rule every round, `strangers` came and could not open the model meant for them, and `lost` says why a round was
    not held; None elsewhere. `before` is what the server saw of agreements before the round.
    """

    number: int
    attempt: int
    cohort: tuple[str, ...]
    present: tuple[str, ...]
    refusals: tuple[Refusal, ...]
    metrics: Mapping[str, float]
    traffic: Traffic
    views: Mapping[str, View]
    noted: Mapping[str, Mapping[str, int]]
    state: State
    overspent: Mapping[str, str] = field(default_factory=dict)
    strangers: tuple[str, ...] | None = None
    lost: str = ""
    before: tuple[View, ...] = ()


def _nowhere(client: str, event: Mapping[str, Any]) -> None:
    """A simulation that is never resumed keeps its ledgers in memory alone."""


@dataclass
class _Book:
    """What clients released in a round, attempt after attempt, and who would not for its budget's sake."""

    written: Spend = _nowhere
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    overspent: dict[str, str] = field(default_factory=dict)
    senders: set[str] = field(default_factory=set)

    def spend(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[None]:
        """Write down releases that are about to leave; one that is sent again is in the book already."""
        for name, event in jobs:
            self.written(name, event)
            self.ledgers[name] = self.ledgers.get(name, Ledger()).add(Event(**event))
        return [None for _ in jobs]

    def kept(self, name: str, memory: Memory) -> Memory:
        """A client's memory, with what it released in this round."""
        return with_events(memory, self.ledgers[name].plain()) if name in self.ledgers else memory


HONEST = Threat()


def rounds(
    pipeline: Pipeline,
    task: Task,
    plan: Federation,
    coins: Coins,
    drive: Drive,
    *,
    state: State | None = None,
    threat: Threat = HONEST,
    keep: Mapping[str, Kept] | None = None,
    spend: Spend = _nowhere,
    restarts: Sequence[Restart] = (),
) -> Iterator[Round]:
    """Train round after round, from the start or from a state. Raises: ProtocolError when a round lacks its quorum.

    `spend` hears of every release before it leaves. `restarts` say which rounds are played anew, and what left before.
    """
    check(pipeline, len(task.enrolled), plan, task.offers)
    if taken := set(task.enrolled) & set(pipeline.parties(())):
        raise SpecError(f"a client may not be called {' or '.join(sorted(taken))}: a party of the protocol is")
    check_names(pipeline, task.enrolled, plan)
    keys = pipeline.place.enrol(task.enrolled, coins.child("enrol", roster_digest(task.enrolled)))
    loop = _Loop(pipeline, task, plan, coins, drive, threat, keep or {}, keys, spend, restarts)
    now = state or begin(task, pipeline)
    while now.round < plan.rounds:
        for restart in restarts:
            if restart.round == now.round:
                counts = restart.counted(now.participations)
                now = State(now.round, restart.remembered(now.memories), counts)
        done = loop.round(now)
        yield done
        now = done.state


def begin(task: Task, pipeline: Pipeline | None = None) -> State:
    """The state before the first round; where the clients draw the first model, the server has none yet."""
    drawn = pipeline is not None and isinstance(pipeline.encode, HiddenUnits) and pipeline.encode.first == "clients"
    return State(0, {"server": {"models": () if drawn else (task.first.plain(),)}}, {})


def plain_model(task: Task, coins: Coins, state: State, who: str | None = None) -> Model:
    """The server's current model in plain coordinates: what a client reads, and nobody else could.

    Where there are several it is the one meant for `who`, or the largest cluster's.
    """
    permuting = _permuting(task)
    model = state.model if who is None else meant_for(who, state.models)
    return model if permuting is None else plain_of(model, state.memories, run_id(coins), permuting)


def _permuting(task: Task) -> Permuting | None:
    return None if task.symmetry is None else Permuting(task.symmetry)


def run_id(coins: Coins) -> bytes:
    """Sixteen bytes that name a run in every header and every node of its coins.

    They depend on the root alone: two protocols simulated from one seed train on the same draws and can be compared.
    """
    return coins.child("run").export()[:16]


@dataclass(frozen=True)
class _Loop:
    pipeline: Pipeline
    task: Task
    plan: Federation
    coins: Coins
    drive: Drive
    threat: Threat
    keep: Mapping[str, Kept]
    keys: Mapping[str, Mapping[str, Any]] = field(repr=False)
    spend: Spend = _nowhere
    restarts: Sequence[Restart] = ()

    def round(self, state: State) -> Round:
        cohort = self._cohort(state.round)
        few = least(self.plan, len(cohort))
        ready = self._ready(state, cohort, few)
        state = replace(state, memories=ready.memories)
        if ready.lost:
            return self._lost(state, cohort, ready)
        done = self._play(state, cohort, few)
        for earlier in ready.traffic:
            done.traffic.add(earlier)
        return replace(done, strangers=self._counted(ready.strangers), before=ready.views)

    @cached_property
    def _epochs(self) -> Epochs | None:
        encode, task, permuting = self.pipeline.encode, self.task, _permuting(self.task)
        if not isinstance(encode, HiddenUnits) or permuting is None:
            return None
        epochs = Epochs.of(encode, task.enrolled, run_id(self.coins), self.coins, self.drive, permuting, task.fresh)
        kept = self.keep.get("server", self.keep.get("*", "nothing"))
        return replace(epochs, table=replace(epochs.table, bend=self.threat.bend, keep=kept))

    def _ready(self, state: State, cohort: tuple[str, ...], few: int) -> Ready:
        """What the round begins with, once clients agreed on what they have to."""
        if self._epochs is None:
            return Ready(state.memories)
        absent, enrolled = self.threat.absent(state.round), self.plan.there(self.task.enrolled, state.round)
        return self._epochs.ready(
            Meeting(state.round, enrolled, cohort, absent, few, self.plan.attempts), state.memories
        )

    def _counted(self, strangers: tuple[str, ...]) -> tuple[str, ...] | None:
        """Strangers, where there can be some."""
        encode = self.pipeline.encode
        return strangers if isinstance(encode, HiddenUnits) and encode.agree == "round" else None

    def _lost(self, state: State, cohort: tuple[str, ...], ready: Ready) -> Round:
        """A round that is not held: the model stays. Raises: ProtocolError unless nobody knew its rule, or it may."""
        if not state.memories["server"]["models"] or not (ready.unknown or self.plan.carry):
            remedy = "; with federation.carry = true such a round is passed over" if state.round else ""
            raise ProtocolError(f"round {state.round + 1} cannot go on: {ready.lost}{remedy}")
        traffic = Traffic()
        for earlier in ready.traffic:
            traffic.add(earlier)
        after = replace(state, round=state.round + 1)
        return Round(
            state.round, 0, cohort, (), (), self._measured(after), traffic, {}, {}, after,
            strangers=self._counted(ready.strangers), lost=ready.lost, before=ready.views,
        )  # fmt: skip

    def _measured(self, state: State) -> Mapping[str, float]:
        """What the model is worth, in plain coordinates. Raises: ProtocolError when it is not finite."""
        metrics = dict(self.task.evaluate(plain_model(self.task, self.coins, state)))
        if wild := [name for name, value in metrics.items() if not math.isfinite(value)]:
            raise ProtocolError(
                f"round {state.round}: the model's {' and '.join(wild)} is not finite any more; lower task.fit.lr"
            )
        return metrics

    def _play(self, state: State, cohort: tuple[str, ...], few: int) -> Round:
        book = _Book(self.spend)
        bench = {**self._bench(), "spend": book.spend}
        # Secrets of an attempt whose messages may have left are never used for others.
        first = max((restart.attempts.get(state.round, 0) for restart in self.restarts), default=0)
        for attempt in range(first, first + self.plan.attempts):
            sat = self.drive(self._sitting(state, cohort, few, attempt, bench, book))
            book.senders |= {name for name in cohort if sat.traffic.sent[name]}
            book.overspent |= {n: str(o.error) for n, o in sat.outcomes.items() if isinstance(o.error, Overspent)}
            alarmed(state.round, cohort, sat, self.pipeline.place.witnesses)
            if sat.outcomes["server"].error is None:
                return self._finish(state, cohort, attempt, sat, book)
            missing = self._missing(sat, cohort)
            left = tuple(client for client in cohort if client not in missing)
            if not (self.pipeline.place.restarts and missing and len(left) >= few):
                break
            cohort = left
        if self.plan.carry and short(sat, cohort):
            return self._finish(state, cohort, attempt, sat, book)
        raise ProtocolError(why(state.round, sat, book.overspent))

    def _cohort(self, number: int) -> tuple[str, ...]:
        everyone = self.plan.there(self.task.enrolled, number)
        if self.plan.cohort is None or self.plan.cohort == len(everyone):
            return everyone
        sampler = self.coins.child("cohort", number).sampler()
        return tuple(everyone[i] for i in sorted(sampler.choice(len(everyone), self.plan.cohort, replace=False)))

    def _sitting(
        self, state: State, cohort: tuple[str, ...], least: int, attempt: int, bench: Bench, book: _Book
    ) -> Sitting:
        run = run_id(self.coins)
        parties = self.pipeline.parties(cohort)
        parties |= {name: party for name, party in self.threat.parties.items() if name in parties}
        changed = {
            name: corrupt(parties[name], change) for name, change in self.threat.corrupted.items() if name in parties
        }
        givens = {
            name: Given(
                name, run, state.round, attempt, cohort, least, self.task.layout,
                self.task.shards.get(name, ""), state.participations.get(name, 0), self.task.inputs,
            )
            for name in parties
        }  # fmt: skip
        keep = dict(self.keep)
        if self.threat.coalition:
            keep |= dict.fromkeys(self.threat.coalition.members, "keep")
        return Sitting(
            stamp=Stamp(self.pipeline.digest(), run, state.round, attempt),
            parties={**parties, **changed},
            givens=givens,
            memories={
                name: {
                    **book.kept(name, state.memories.get(name, {})),
                    **({"keys": self.keys[name]} if name in self.keys else {}),
                }
                for name in parties
            },
            coins={name: self._party_coins(name, run, state.round, attempt, name in cohort) for name in parties},
            schemas=self.pipeline.schemas(givens["server"]),
            bench=bench,
            absent=self.threat.absent(state.round),
            coalition=self.threat.coalition,
            keep={name: keep.get(name, keep.get("*", "nothing")) for name in parties},
        )

    def _party_coins(self, name: str, run: bytes, number: int, attempt: int, client: bool) -> Coins:
        # A client's update belongs to its participation and outlives an attempt; a middle party's coins never do.
        node = self.coins.child("party", name).child("run", run, "round", number)
        own = node if client else node.child("attempt", attempt)
        own.export()  # derived now, so that a party's coins hold no way up to the others'
        return own

    def _bench(self) -> Bench:
        """Work of one round. Fits are kept: a second attempt sends the same update again."""
        fits: dict[bytes, tuple[Tensor, Update | CroupierError]] = {}

        def kept(job: tuple[Any, ...]) -> bool:
            # What was made of another model is no answer to this one.
            known = fits.get(job[2].export())
            return known is not None and torch.equal(known[0], job[0])

        def fit(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
            todo = [job for job in jobs if not kept(job)]
            for job, done in zip(todo, self.task.fit(todo) if todo else (), strict=True):
                fits[job[2].export()] = job[0], done
            return [fits[job[2].export()][1] for job in jobs]

        def brief(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
            return [self.pipeline.aggregate.brief(self._desk(models, own), rule) for models, rule, own in jobs]

        def aggregate(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
            return [_tried(self.pipeline, got, self._desk(models, own), rule) for got, models, rule, own in jobs]

        def sample(jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
            draw = self.task.sample
            return [SpecError("this task has no records to show") if draw is None else draw(*job) for job in jobs]

        permuting = _permuting(self.task)
        permute: Bench = {} if permuting is None else {"permute": permuting, "permute input": permuting.inputs}
        return {"fit": fit, "brief": brief, "aggregate": aggregate, "sample": sample, **permute}

    def _desk(self, models: tuple[Model, ...], own: Coins) -> Desk:
        task = self.task
        return Desk(models, task.layout, own, task.root, task.features, task.answers, task.inputs)

    def _missing(self, sat: Sat, cohort: tuple[str, ...]) -> frozenset[str]:
        """Whom the placement's own parties found missing; what clients say of each other counts for nothing."""
        named = {
            name: frozenset(outcome.error.missing)
            for name, outcome in sat.outcomes.items()
            if isinstance(outcome.error, TooFew) and name not in cohort
        }
        return frozenset(cohort) & self.pipeline.place.missing_of(named)

    def _finish(self, state: State, cohort: tuple[str, ...], attempt: int, sat: Sat, book: _Book) -> Round:
        memories = {name: outcome.memory for name, outcome in sat.outcomes.items() if outcome.memory is not None}
        # Without a server's memory nothing was released: the model stays, and what was sent is counted all the same.
        present = tuple(memories["server"]["present"]) if "server" in memories else ()
        # Who sent something counts, however it ended: what was seen cannot be taken back.
        sent = {*(name for name in cohort if name in memories), *book.senders, *book.ledgers}
        counts = {name: state.participations.get(name, 0) + 1 for name in sorted(sent)}
        booked = {
            name: book.kept(name, memories.get(name, state.memories.get(name, {}))) for name in sorted(book.ledgers)
        }
        after = State(state.round + 1, {**state.memories, **memories, **booked}, {**state.participations, **counts})
        noted = {name: memories[name]["noted"] for name in cohort if name in memories}
        metrics = self._measured(after)
        return Round(
            state.round, attempt, cohort, present, sat.refusals, metrics, sat.traffic, sat.views, noted, after,
            dict(book.overspent),
        )  # fmt: skip


def _tried(pipeline: Pipeline, gathered: Any, desk: Desk, rule: Memory) -> Any:
    if gathered.form == "delta" and any(model.frame != gathered.frame for model in desk.models):
        return ProtocolError("differences came in other coordinates than the model that they would be added to")
    try:
        return pipeline.aggregate(gathered, desk, rule)
    except CroupierError as error:
        return error


def state_from(plain: Mapping[str, Any]) -> State:
    """A state from a checkpoint's plain values."""
    try:
        return State(plain["round"], plain["memories"], plain["participations"])
    except (KeyError, TypeError):
        raise StoreError(
            "a checkpoint is whole but holds no state of a run; remove it to resume from the one before"
        ) from None


def view_digests(done: Round) -> dict[str, str]:
    """What binds each view of a round that was taken down."""
    return {name: view.digest().hex() for name, view in done.views.items() if view.kept != "nothing"}
