"""What can be said of a run before it: who will learn what (explain), and what it will cost (plan).

`explain` builds the pipeline and asks it; no data are loaded and no function of the user's is called. `plan` trains
some clients (a whole cohort where that is quick), plays two rounds of the real protocol and multiplies: bytes are exact
where the protocol fixes them, and seconds and memory are of this machine. Behind `croupier explain`, `croupier plan`,
and the functions of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from croupier import statement
from croupier.core.coins import Coins
from croupier.engine.federation import check, least
from croupier.engine.job.trial import TrialRound, TrialRun, assembled, tried
from croupier.errors import SpecError
from croupier.learn.assemble import Assembled
from croupier.learn.budget import DELTA, worst
from croupier.learn.data import folder_of
from croupier.learn.train import Learner
from croupier.pipeline import Pipeline
from croupier.privacy.ledger import ADJACENCY, Event, Ledger
from croupier.privacy.local import rounded_up
from croupier.privacy.plan import turns
from croupier.spec import SUPPOSED, Source, Spec, counted, load, unread
from croupier.statement import Statement
from croupier.toml_read import Sets

CLIENT = "each client"


def explain(source: Source | Pipeline, *, sets: Sets = (), rounds: int | None = None) -> Statement:
    """State who learns what in a run, who must not collude, and what is not claimed. Nothing is loaded or called.

    source: what `croupier.run` takes (a preset's name, a TOML file, a table, a `Spec`), or a protocol by itself.
    sets: keys of the description to change, as `{"federation.rounds": 3}` or `["federation.rounds=3"]`.
    rounds: in how many rounds a client takes part at most; a description says that itself.

    Raises: SpecError where the run itself would be refused.
    """
    if isinstance(source, Pipeline):
        if sets:
            raise SpecError(f"sets = {sets!r}: a protocol by itself has no keys to set; give a description")
        return statement.explain(source, rounds=rounds)
    spec, supposed = unread(source, sets)
    if rounds is not None:
        raise SpecError(f"rounds = {rounds}: a description has its own; use sets={{'federation.rounds': {rounds}}}")
    return stated(spec, supposed)


def stated(spec: Spec, supposed: bool = False) -> Statement:
    """The statement of a description; `supposed` as `unread` says. Raises: SpecError where it would be refused."""
    plan, clients = spec.federation, getattr(spec.task.split, "clients", None) or spec.task.data.many
    if clients is not None:
        # Data and network are not loaded here: what they offer shows when the run begins.
        offers = {"answers", "symmetry", "samples", *({"root", "forward"} if spec.task.root.records else ())}
        check(spec.protocol, clients, plan, frozenset(offers))
    invited = plan.cohort or clients
    said = statement.explain(
        spec.protocol, noise=spec.task.fit.claims(), rounds=plan.rounds,
        cohorts=None if clients is None else plan.cohort is not None and plan.cohort < clients,
        present=None if invited is None else least(plan, invited),
        invited=None if clients is None or invited is None else (clients, invited),
    )  # fmt: skip
    if not supposed:
        return said
    note = (
        f"only the data know how many clients there are, and they are not loaded here: bits are for {SUPPOSED} clients "
        "in a sum, and a run takes as many as it finds"
    )
    return replace(said, encoding=(*said.encoding, note))


@dataclass(frozen=True)
class Forecast:
    """What a run will cost.

    name, rounds, clients, cohort, parameters: what is run, and how many clients are enrolled and invited to a round.
    sent, got: bytes by party over the whole run; `each client` is the mean of all clients.
    up, down: bytes that an invited client sends and receives in a round, on average over rounds.
    total: bytes that everybody sends together.
    exact: whether bytes are exact for every seed; if not, `why_not` says what they depend on.
    seconds, training, messages, testing: estimates for the whole run on this machine, and what they add up from.
    peak_bytes: the most memory that this process held in the trial, an estimate.
    epsilon: one entry for each kind of client and unit, with what the most participations cost; empty without noise.
    privacy: the same in a sentence, as `explain` states it.
    notes: how it was measured, and whose code was called for it.
    """

    name: str
    rounds: int
    clients: int
    cohort: int
    parameters: int
    sent: Mapping[str, float]
    got: Mapping[str, float]
    up: float
    down: float
    total: int
    exact: bool
    why_not: str
    seconds: float
    training: float
    messages: float
    testing: float
    peak_bytes: int
    epsilon: tuple[Mapping[str, Any], ...]
    privacy: str
    notes: tuple[str, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "epsilon": list(self.epsilon), "notes": list(self.notes)}

    def __repr__(self) -> str:
        most: dict[str, float] = {}
        for one in self.epsilon:
            if one["epsilon"] is not None:
                most[one["unit"]] = max(one["epsilon"], most.get(one["unit"], 0.0))
        said = " and ".join(f"{rounded_up(spent)} of a {unit}" for unit, spent in most.items())
        return (
            f"Forecast({self.name}: {self.rounds} rounds, {self.total} bytes, about {self.seconds:.3g} s, "
            f"{self.peak_bytes / 1e6:.0f} MB, epsilon {said or 'none'})"
        )


def plan(source: Source, *, sets: Sets = (), seed: int | None = None, data: str | Path | None = None) -> Forecast:
    """Say what a run will cost before it: bytes, seconds, memory and epsilon.

    The data are loaded, the model is built, some clients are trained and two rounds are played without testing; nothing
    is written. That takes seconds. Where data or model are your own, your functions are called.

    source: what `croupier.run` takes: a preset's name, a TOML file, a table or a `Spec`.
    sets: keys of the description to change, as `{"federation.rounds": 3}` or `["federation.rounds=3"]`.
    seed: draws the trial from this number; fresh chance without it.
    data: the data folder; CROUPIER_DATA does the same.

    Raises: SpecError, DataError, and whatever the first rounds would end with.
    """
    spec = load(source, sets, count=counted(data))
    coins = Coins.from_os() if seed is None else Coins.from_seed(seed)
    made = assembled(spec, coins, folder_of(data))
    return _forecast(spec, made, tried(spec, made, coins))


def _forecast(spec: Spec, made: Assembled, trial: TrialRun) -> Forecast:
    rounds, enrolled = spec.federation.rounds, made.task.enrolled
    cohort, later = spec.federation.cohort or len(enrolled), trial.later or trial.first
    played = ((trial.first, 1), (later, rounds - 1))
    counts = [(one.traffic, times) for one, times in played]
    sent, got, clients = {}, {}, set(enrolled)
    for name in sorted({name for traffic, _ in counts for name in (*traffic.sent, *traffic.got)} - clients):
        sent[name] = float(sum(times * traffic.sent[name] for traffic, times in counts))
        got[name] = float(sum(times * traffic.got[name] for traffic, times in counts))
    up = sum(times * _of(traffic.sent, clients) for traffic, times in counts)
    down = sum(times * _of(traffic.got, clients) for traffic, times in counts)
    training, testing = rounds * trial.trained.seconds, rounds * trial.testing
    messages = trial.first.seconds + (rounds - 1) * later.seconds
    why = _varies(spec, len(enrolled))
    return Forecast(
        spec.name, rounds, len(enrolled), cohort, made.task.layout.size,
        sent={CLIENT: up / len(enrolled), **sent}, got={CLIENT: down / len(enrolled), **got},
        up=_each(played, "sent", cohort), down=_each(played, "got", cohort), total=int(up + sum(sent.values())),
        exact=not why, why_not=why, seconds=training + messages + testing, training=training, messages=messages,
        testing=testing, peak_bytes=trial.peak_bytes, epsilon=_epsilons(spec, made), privacy=_privacy(spec),
        notes=(
            *_measured(trial, cohort), *spec.protocol.place.costs(spec.protocol, made.task.layout, cohort), *_own(spec),
        ),
    )  # fmt: skip


def _each(played: Sequence[tuple[TrialRound, int]], way: Literal["sent", "got"], cohort: int) -> float:
    """Bytes of one invited client in one round, over rounds played so often."""
    found = sum(times * _of(getattr(one.traffic, way), set(one.cohort)) for one, times in played)
    return found / (cohort * sum(times for _, times in played))


def _of(counts: Mapping[str, int], names: set[str]) -> int:
    return sum(count for name, count in counts.items() if name in names)


def _varies(spec: Spec, clients: int) -> str:
    """What a round's bytes depend on besides the protocol, if anything."""
    plan, protocol = spec.federation, spec.protocol
    if plan.joins:
        return "clients join later (federation.joins): counted as if they never did"
    if protocol.privacy.guarantee() is not None and any(
        protocol.privacy.limit(name) is not None for name in ("", *protocol.privacy.mentions())
    ):
        return "clients past their budgets send nothing: counted as if none were"
    if (plan.cohort or clients) == clients:
        return ""
    if protocol.release.tiered:
        return "buckets differ with who is invited: counted for the first two rounds' cohorts"
    if protocol.encode.every_round:
        return "who knows the last rule differs with who is invited: counted for the first two rounds' cohorts"
    return ""


def _epsilons(spec: Spec, made: Assembled) -> tuple[Mapping[str, Any], ...]:
    """By tier and budget, and for the records that are worst off: participations, and what they cost."""
    cohort, rounds = spec.federation.cohort or len(made.task.enrolled), spec.federation.rounds
    drawn = turns(len(made.task.enrolled), cohort, rounds)
    often = {"participations": rounds, "expected_participations": drawn.expected}
    return (*_locally(spec, made, often), *_by_record(spec, made, often))


def _locally(spec: Spec, made: Assembled, often: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    privacy, found = spec.protocol.privacy, dict[tuple[str, float | None], dict[str, Any]]()
    local = privacy.guarantee()
    if local is None:
        return []
    for name in made.task.enrolled:
        tier, limit = privacy.tier(name), privacy.limit(name)
        key = (rounded_up(tier.epsilon if tier else local.epsilon), limit)
        if key not in found:
            events = [privacy.of(name).event(number, str(number)) for number in range(often["participations"])]
            ledger = Ledger(tuple(event for event in events if isinstance(event, Event)))
            spent = ledger.epsilon(local.delta)
            found[key] = {
                "unit": "client", "adjacency": ADJACENCY["client"], "one": float(key[0]), "clients": 0, **often,
                "epsilon": spent if limit is None else min(spent, limit), "budget": limit, "delta": local.delta,
            }  # fmt: skip
        found[key]["clients"] += 1
    return [found[key] for key in sorted(found, key=lambda key: (float(key[0]), key[1] or 0.0))]


def _by_record(spec: Spec, made: Assembled, often: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What DP-SGD costs a record of the client whose records are worst off, most often one that has few.

    For one participation that may be another client than for all.
    """
    fit, learner = spec.task.fit.private, made.task.fit
    none = fit is None or not fit.claimed or spec.protocol.encode.claims_none()
    if fit is None or none or not isinstance(learner, Learner):
        return []
    sizes = [len(shard) for shard in learner.shards.values()]
    cost: dict[str, Any] = {"one": None, "epsilon": None}
    try:
        most, size = worst(fit, sizes, often["participations"])
        cost = {"one": worst(fit, sizes, 1)[0], "epsilon": most, "records": size}
    except SpecError as error:
        cost["why_not"] = str(error)
    return [
        {
            "unit": "record", "adjacency": ADJACENCY["record"], "clients": len(learner.shards), **often, **cost,
            "budget": None, "delta": DELTA,
        }
    ]  # fmt: skip


def _privacy(spec: Spec) -> str:
    return statement.explain(
        spec.protocol, noise=spec.task.fit.claims(), rounds=spec.federation.rounds
    ).differential_privacy


def _measured(trial: TrialRun, cohort: int) -> tuple[str, ...]:
    seen = trial.trained
    how = (
        f"a round's {seen.clients} clients were trained once"
        if seen.whole
        else f"parts of {seen.clients} of a round's {cohort} clients were trained, and scaled up by their records"
    )
    return (
        f"seconds and memory are estimates for this machine as busy as it is now: {how}, a model was tested twice, and "
        "messages were timed on two rounds; writing files is not counted",
    )


def _own(spec: Spec) -> tuple[str, ...]:
    keys = {"task.data.make": spec.task.data.own_function, "task.model.make": spec.task.model.own_function}
    called = [f"{key} = {function!r}" for key, function in keys.items() if function]
    return (f"your own code was called: {' and '.join(called)}",) if called else ()
