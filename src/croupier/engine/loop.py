"""The round loop: who is invited, what they start from, what happens when some are missing, what is kept.

It knows no protocol: the pipeline makes the parties, a driver (`engine.local`) moves them, and hooks of the encoder and
the placement say what else a round needs. A second attempt takes the very updates of the first, and the state after a
round is all that the next one depends on. `rounds` is what runs (`engine.job.job`), plans (`engine.job.trial`), audits
(`audit.bench`) and the laboratory train by; deployed servers begin from its first state (`begin`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from croupier.agree.before_round import AgreementSetting, PreparedRound, UpcomingRound
from croupier.core.attempt import Attempt, AttemptId, AttemptResult, Drive, Traffic, WorkByName
from croupier.core.coins import Coins
from croupier.core.flow import Given, corrupt, roster_digest
from croupier.core.update import Model, meant_for
from croupier.core.view import Kept
from croupier.engine.failure import alarmed, short, why
from croupier.engine.federation import Federation, check, check_names, cohort_of, least
from croupier.engine.restart import Restart
from croupier.engine.state import HONEST, Round, State, Threat, run_id
from croupier.engine.task import Task
from croupier.engine.work import ReleaseBook, RoundWork, Spend, nowhere, permuting_of
from croupier.errors import Overspent, ProtocolError, SpecError, TooFew
from croupier.pipeline import Pipeline

if TYPE_CHECKING:
    from croupier.agree.epochs import Epochs


@dataclass(frozen=True)
class Continuation:
    """Where a run begins or goes on: its state (None at the start), and what it shares with its journal.

    `spend` is called with every release before it leaves. `restarts` say which rounds are played anew, and what left
    before.
    """

    state: State | None = None
    spend: Spend = nowhere
    restarts: Sequence[Restart] = ()


AT_THE_START = Continuation()


def rounds(
    pipeline: Pipeline,
    task: Task,
    plan: Federation,
    coins: Coins,
    drive: Drive,
    *,
    start: Continuation = AT_THE_START,
    threat: Threat = HONEST,
    keep: Mapping[str, Kept] | None = None,
) -> Iterator[Round]:
    """Train round after round, from the start or from a state.

    Raises: SpecError where the parts do not suit each other. ProtocolError when a round cannot end well, for want of
    clients or for another cause; IntegrityError on proof of foul play.
    """
    check(pipeline, len(task.enrolled), plan, task.offers)
    if taken := set(task.enrolled) & set(pipeline.parties(())):
        raise SpecError(f"a client may not be called {' or '.join(sorted(taken))}: a party of the protocol is")
    check_names(pipeline, task.enrolled, plan)
    pipeline.place.check_size(pipeline, task.layout, plan.cohort or len(task.enrolled))
    keys = pipeline.place.enrol(task.enrolled, coins.child("enrol", roster_digest(task.enrolled)))
    loop = _Loop(pipeline, task, plan, coins, drive, threat, keep or {}, keys, start)
    now = start.state or begin(task, pipeline)
    while now.round < plan.rounds:
        for restart in start.restarts:
            if restart.round == now.round:
                counts = restart.counted(now.participations)
                now = State(now.round, restart.remembered(now.memories), counts)
        done = loop.round(now)
        yield done
        now = done.state


def begin(task: Task, pipeline: Pipeline | None = None) -> State:
    """The state before the first round; where the clients draw the first model, the server has none yet."""
    drawn = pipeline is not None and pipeline.encode.clients_start
    return State(0, {"server": {"models": () if drawn else (task.first.plain(),)}}, {})


def plain_model(task: Task, coins: Coins, state: State, who: str | None = None) -> Model:
    """The server's current model in plain coordinates: what a client reads, and nobody else could.

    Where there are several it is the one meant for `who`, or the largest cluster's.
    """
    permuting = permuting_of(task)
    model = state.model if who is None else meant_for(who, state.models)
    if permuting is None or not model.frame:
        return model
    from croupier.agree.epochs import plain_of

    return plain_of(model, state.memories, run_id(coins), permuting)


@dataclass(frozen=True)
class _Loop:
    """What stays the same from round to round: protocol, task and plan, and who drives, watches or cheats."""

    pipeline: Pipeline
    task: Task
    plan: Federation
    coins: Coins
    drive: Drive
    threat: Threat
    keep: Mapping[str, Kept]
    keys: Mapping[str, Mapping[str, Any]] = field(repr=False)
    start: Continuation
    # Where each party's coins of all rounds come from: derived once.
    _roots: dict[str, Coins] = field(default_factory=dict, repr=False)

    def round(self, state: State) -> Round:
        """One round: who is invited, what they agree on first, attempts, and the state after it."""
        cohort = cohort_of(self.plan, self.task.enrolled, state.round, self.coins)
        few = least(self.plan, len(cohort))
        ready = self._ready(state, cohort, few)
        state = replace(state, memories=ready.memories)
        if ready.lost:
            return self._lost(state, cohort, ready)
        done = self._play(state, cohort, few)
        for earlier in ready.traffic:
            done.traffic.add(earlier)
        return replace(done, without_rule=self._counted(ready.without_rule), before=ready.views)

    @cached_property
    def _epochs(self) -> Epochs | None:
        task, permuting = self.task, permuting_of(self.task)
        if permuting is None:
            return None
        return self.pipeline.encode.before_rounds(
            AgreementSetting(
                task.enrolled, run_id(self.coins), self.coins, self.drive, permuting, task.fresh, self.threat.tamper,
                self.keep.get("server", self.keep.get("*", "nothing")),
            )
        )  # fmt: skip

    def _ready(self, state: State, cohort: tuple[str, ...], few: int) -> PreparedRound:
        """What the round begins with, once clients agreed on what they have to."""
        if self._epochs is None:
            return PreparedRound(state.memories)
        absent, enrolled = self.threat.absent(state.round), self.plan.there(self.task.enrolled, state.round)
        return self._epochs.ready(
            UpcomingRound(state.round, enrolled, cohort, absent, few, self.plan.attempts), state.memories
        )

    def _counted(self, without_rule: tuple[str, ...]) -> tuple[str, ...] | None:
        """The clients that could not open the model; None where no rule is agreed on every round."""
        return without_rule if self.pipeline.encode.every_round else None

    def _lost(self, state: State, cohort: tuple[str, ...], ready: PreparedRound) -> Round:
        """A round that is not held: the model stays. Raises: ProtocolError unless too few knew its rule, or `carry`."""
        if not state.memories["server"]["models"] or not (ready.unknown or self.plan.carry):
            remedy = "; with federation.carry = true such a round is passed over" if state.round else ""
            raise ProtocolError(f"round {state.round + 1} cannot go on: {ready.lost}{remedy}")
        traffic = Traffic()
        for earlier in ready.traffic:
            traffic.add(earlier)
        after = replace(state, round=state.round + 1)
        return Round(
            state.round, 0, cohort, (), (), self._measured(after), traffic, {}, {}, after,
            without_rule=self._counted(ready.without_rule), lost=ready.lost, before=ready.views,
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
        """Attempt after attempt, until one ends well or no other may follow. Raises: ProtocolError, IntegrityError."""
        book = ReleaseBook(self.start.spend)
        bench = {**RoundWork(self.pipeline, self.task).by_name(), "spend": book.spend}
        # Secrets of an attempt whose messages may have left are never used for others.
        first = max((restart.attempts.get(state.round, 0) for restart in self.start.restarts), default=0)
        for attempt in range(first, first + self.plan.attempts):
            result = self.drive(self._attempt(state, cohort, few, attempt, bench, book))
            book.senders |= {name for name in cohort if result.traffic.sent[name]}
            book.overspent |= {n: str(o.error) for n, o in result.outcomes.items() if isinstance(o.error, Overspent)}
            alarmed(state.round, cohort, result, self.pipeline.place.witnesses)
            if result.outcomes["server"].error is None:
                return self._finish(state, cohort, attempt, result, book)
            missing = self._missing(result, cohort)
            left = tuple(client for client in cohort if client not in missing)
            if not (self.pipeline.place.restarts and missing and len(left) >= few):
                break
            cohort = left
        if self.plan.carry and short(result, cohort):
            return self._finish(state, cohort, attempt, result, book)
        raise ProtocolError(why(state.round, result, book.overspent))

    def _attempt(
        self, state: State, cohort: tuple[str, ...], least: int, attempt: int, bench: WorkByName, book: ReleaseBook
    ) -> Attempt:
        """Everything that a driver needs for one attempt: parties, what each is told, remembers and draws from.

        Threats come in here: parties that follow another flow, or whose letters are rewritten, take the place of honest
        ones.
        """
        run, clients = run_id(self.coins), frozenset(cohort)
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
        return Attempt(
            attempt_id=AttemptId(self.pipeline.digest(), run, state.round, attempt, roster_digest(cohort)),
            parties={**parties, **changed},
            givens=givens,
            memories={
                name: {
                    **book.kept(name, state.memories.get(name, {})),
                    **({"keys": self.keys[name]} if name in self.keys else {}),
                }
                for name in parties
            },
            coins={name: self._party_coins(name, run, state.round, attempt, name in clients) for name in parties},
            schemas=self.pipeline.schemas(givens["server"]),
            bench=bench,
            absent=self.threat.absent(state.round),
            coalition=self.threat.coalition,
            keep={name: keep.get(name, keep.get("*", "nothing")) for name in parties},
        )

    def _party_coins(self, name: str, run: bytes, number: int, attempt: int, client: bool) -> Coins:
        """A party's own coins of a round."""
        if (root := self._roots.get(name)) is None:
            root = self._roots[name] = self.coins.child("party", name)
        # A client's update belongs to its participation and outlives an attempt; a middle party's coins never do.
        node = root.child("run", run, "round", number)
        own = node if client else node.child("attempt", attempt)
        own.export()  # derived now, so that a party's coins hold no way up to the others'
        return own

    def _missing(self, result: AttemptResult, cohort: tuple[str, ...]) -> frozenset[str]:
        """Whom the placement's own parties found missing; what clients say of each other counts for nothing."""
        clients = frozenset(cohort)
        named = {
            name: frozenset(outcome.error.missing)
            for name, outcome in result.outcomes.items()
            if isinstance(outcome.error, TooFew) and name not in clients
        }
        return clients & self.pipeline.place.missing_of(named)

    def _finish(
        self, state: State, cohort: tuple[str, ...], attempt: int, result: AttemptResult, book: ReleaseBook
    ) -> Round:
        """The round as it ended: what counts as sent and spent, the next state, and what the model is worth now."""
        memories = {name: outcome.memory for name, outcome in result.outcomes.items() if outcome.memory is not None}
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
            state.round, attempt, cohort, present, result.refusals, metrics, result.traffic, result.views, noted, after,
            dict(book.overspent),
        )  # fmt: skip
