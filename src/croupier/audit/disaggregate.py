"""Disaggregation: single updates out of sums, from cohorts that change between rounds and from clients that collude.

The attack (`sightings`, `recover`) gets server views, the first model and what colluders know of themselves. The
experiment (`disaggregation`) holds the truth, and asks afterwards whose records the recovered models remember.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from croupier.audit.blind import Answer, Panel, Question
from croupier.audit.experiment import Setting, Watch, _Stage
from croupier.audit.knowledge import read
from croupier.audit.score import gain, over_runs, share
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.sitting import Drive
from croupier.core.update import Gathered, Layout
from croupier.core.view import facts
from croupier.encode.floats import Floats
from croupier.errors import SpecError
from croupier.federate import rounds
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.release.rows import Rows

# Over how many rounds what is common to clients, and what is a client's own, stays alike; how large the latter is
# against the former; and how much of a sum is neither, against a client's own.
COMMON, OWN = (0.0, 3.0, 10.0, math.inf), (3.0, 10.0, math.inf)
SIZES, REST = (0.01, 0.1, 1.0, 10.0), (1e-6, 1e-3, 1e-1)
ATTACKS = ("named", "named+prior")
NAMED = Pipeline(encode=Floats(), release=Rows(), place=Direct())
_SAME = 1e-6


@dataclass(frozen=True)
class Sighting:
    """One round as a server has it: who took part, the model they began with, and their updates' sum and weight.

    An update is what a client adds to the model it began with.
    """

    present: tuple[str, ...]
    start: Tensor
    total: Tensor
    weight: float


@dataclass(frozen=True)
class Belief:
    """How clients move: what stays alike (updates or models), over how many rounds, and how large a client's own is."""

    stays: str
    common: float
    own: float
    size: float
    rest: float


@dataclass(frozen=True)
class Recovered:
    """An update of every client (rows), and the model that it made; `when` is the round of which it speaks.

    That is the last one in which the client alone was left, or else the last one in which it took part. `rank` is how
    many combinations of clients the rounds tell apart, `alone` who is told from all others by linear algebra alone,
    were updates constant; `exact` whose update came out by subtraction. `how` is what explained the sums best.
    """

    clients: tuple[str, ...]
    updates: Tensor
    models: Tensor
    when: tuple[int, ...]
    rank: int
    alone: tuple[str, ...]
    exact: tuple[str, ...]
    how: Belief


def sightings(
    views: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any], first: Tensor, layout: Layout
) -> list[Sighting]:
    """What consecutive server views hold; `first` is the model that the server began with."""
    found, start = [], first
    for view in views:
        found.append(_sighting(read(view, protocol, layout), start))
        start = _next(view)
    return found


def _sighting(seen: Gathered, start: Tensor) -> Sighting:
    if seen.sums is not None and seen.weights is not None:
        total, weight = seen.sums.double(), float(seen.weights)
    elif seen.rows is not None:
        total, weight = seen.rows.double().sum(0), float(len(seen.rows))
    else:
        raise SpecError("disaggregation needs sums or rows")
    moved = total if seen.form == "delta" else total - weight * start.double()
    return Sighting(seen.present, start.double(), moved, weight)


def _next(view: Mapping[str, Any]) -> Tensor:
    """The model that the server made of a round: the result of its work, in its view."""
    for box in reversed(view["inputs"]):
        if isinstance(box, tuple) and box and isinstance(box[0], tuple) and box[0] and "vector" in box[0][0]:
            model: Tensor = box[0][0]["vector"]
            return model
    raise SpecError("a view without the server's aggregation tells no next model")


def own_update(view: Mapping[str, Any]) -> Tensor:
    """What a colluding client knows that it sent: its trained weights, less the model it was handed."""
    handed = next(box[0]["body"]["model"] for box in view["inputs"] if isinstance(box, tuple))
    update = next(box for box in view["inputs"] if isinstance(box, Mapping) and "vector" in box)
    trained: Tensor = update["vector"].double() - handed.double()
    return trained


def recover(
    seen: Sequence[Sighting], clients: Sequence[str], own: Sequence[Mapping[str, Tensor]] | None = None
) -> Recovered:
    """Ridge regression over rounds. `own` is, round by round, what colluders sent; they are not among `clients`.

    A client is something common and something of its own, and both move slowly. How slowly, and how large the client's
    own is, are those of a grid of beliefs that make the sums likeliest (each coordinate a draw of one Gaussian
    process). With one cohort in all rounds there is nothing to solve: everybody gets the round's mean. A client who is
    the only one left of a round has its update by subtraction. Raises: SpecError when a client was in no round.
    """
    left = [_without(one, known) for one, known in zip(seen, own or [{}] * len(seen), strict=True)]
    when = [number for number, one in enumerate(left) if one.present]
    left = [left[number] for number in when]
    part = torch.tensor([[float(who in one.present) for who in clients] for one in left], dtype=torch.float64)
    if not len(part) or not bool((part.sum(0) > 0).all()):
        raise SpecError("a client that took part in no round has nothing to be found")
    last = [max(row for row in range(len(left)) if part[row, column]) for column in range(len(clients))]
    gaps = (torch.tensor(when).unsqueeze(1) - torch.tensor(when)).abs().double()
    how, sums = _believed(left, part, gaps)
    kernel, single = _kernel(part, gaps, how), _alike(gaps, how.own)
    across = _alike(gaps, how.common)[last] * part.sum(1) + how.size * single[last] * part.T
    each = across @ torch.linalg.solve(kernel, sums)
    starts = torch.stack([left[row].start for row in last])
    updates = each if how.stays == "updates" else each - starts
    exact = {one.present[0]: row for row, one in enumerate(left) if len(one.present) == 1}
    for column, who in enumerate(clients):
        if who in exact:
            one, last[column] = left[exact[who]], exact[who]
            updates[column], starts[column] = one.total / one.weight, one.start
    within = torch.linalg.pinv(part) @ part
    alone = tuple(who for row, who in enumerate(clients) if abs(float(within[row, row]) - 1) < _SAME)
    rank = int(torch.linalg.matrix_rank(part))
    models, spoken = (starts + updates).float(), tuple(when[row] for row in last)
    return Recovered(tuple(clients), updates, models, spoken, rank, alone, tuple(sorted(exact)), how)


def _without(one: Sighting, known: Mapping[str, Tensor]) -> Sighting:
    """A round less what colluders sent; they count one each."""
    took = [who for who in one.present if who in known]
    total = one.total - sum((known[who] for who in took), torch.zeros_like(one.total))
    each = one.weight / len(one.present)
    present = tuple(who for who in one.present if who not in known)
    return Sighting(present, one.start, total, one.weight - each * len(took))


def _sums(left: Sequence[Sighting]) -> dict[str, Tensor]:
    """What cohorts' parts should add up to, if updates stay as they are, and if models do; a client counts as one."""
    moved = torch.stack([one.total * (len(one.present) / one.weight) for one in left])
    starts = torch.stack([len(one.present) * one.start for one in left])
    return {"updates": moved, "models": moved + starts}


def _believed(left: Sequence[Sighting], part: Tensor, gaps: Tensor) -> tuple[Belief, Tensor]:
    """The belief under which the sums are likeliest, and what they are sums of then."""
    best, chosen = -math.inf, None
    for stays, sums in _sums(left).items():
        products = sums @ sums.T / sums.shape[1]
        for common, own, size, rest in product(COMMON, OWN, SIZES, REST):
            how = Belief(stays, common, own, size, rest)
            if (likely := _likely(_kernel(part, gaps, how), products)) > best:
                best, chosen = likely, (how, sums)
    if chosen is None:
        raise SpecError("no sums to explain: they are not finite")
    return chosen


def _alike(gaps: Tensor, reach: float) -> Tensor:
    """How alike two rounds are: fully when the reach is endless, not at all beyond a round itself when it is 0."""
    return torch.exp(-gaps / reach) if reach else (gaps == 0).double()


def _kernel(part: Tensor, gaps: Tensor, how: Belief) -> Tensor:
    """The covariance of the rounds' sums."""
    many = part.sum(1)
    single = (part @ part.T) * _alike(gaps, how.own) + how.rest * torch.diag(many)
    return many.unsqueeze(1) * many * _alike(gaps, how.common) + how.size * single


def _likely(kernel: Tensor, products: Tensor) -> float:
    """The log-likelihood a coordinate, at the best overall size."""
    root = torch.linalg.cholesky(kernel)
    fit = float(torch.cholesky_solve(products, root).trace())
    if not fit > 0:
        return -math.inf
    return -0.5 * len(kernel) * math.log(fit) - float(root.diagonal().log().sum())


def disaggregation(
    setting: Setting,
    pipeline: Callable[[int], Pipeline],
    cohorts: Sequence[int],
    seeds: Sequence[int],
    drive: Drive,
    colluders: int = 0,
    watch: Watch = lambda _: None,
) -> dict[str, Any]:
    """Recover every client from several rounds' sums, for cohorts of each size, and infer whose records they hold.

    `pipeline` makes the protocol for so many clients a round. The first `colluders` clients share their views with the
    server. Rates are over seeds: cosines to the true update that is spoken of, beside those of the aggregate of that
    round as the guess, and source inference on the recovered models, beside the prior and beside the true models.
    """
    found: dict[int, list[dict[str, Any]]] = {cohort: [] for cohort in cohorts}
    with Panel(1, setting.device) as panel:
        for seed in seeds:
            stage = _Stage(setting, Coins.from_seed(seed), panel, False)
            for cohort in cohorts:
                watch(f"seed {seed}: cohorts of {cohort}")
                found[cohort].append(_played(stage, pipeline(cohort), cohort, colluders, drive))
    return {
        "rounds": setting.plan.rounds,
        "colluders": colluders,
        "runs": len(seeds),
        "rows": [{"cohort": cohort, **_together(runs)} for cohort, runs in found.items()],
    }


def _played(stage: _Stage, pipeline: Pipeline, cohort: int, colluders: int, drive: Drive) -> dict[str, Any]:
    """One run: what happened, what the adversary makes of its part of it, and how the two compare."""
    task, plan = stage.task, stage.setting.plan.model_copy(update={"cohort": cohort})
    team = task.enrolled[:colluders]
    views, own, truth, accuracy = [], [], dict[tuple[str, int], Tensor](), 0.0
    for done in rounds(pipeline, task, plan, stage.coins, drive, keep={"*": "keep"}):
        views.append(facts(done.views["server"]))
        sent = {who: own_update(facts(done.views[who])) for who in done.present}
        own.append({who: update for who, update in sent.items() if who in team})
        truth |= {(who, done.number): update for who, update in sent.items()}
        accuracy = done.metrics["accuracy"]
    took_part = {who for who, _ in truth} - set(team)
    targets = tuple(who for who in task.enrolled if who in took_part)
    if len(targets) < 2:
        raise SpecError(f"{len(targets)} client is left beside {colluders} colluders; source inference needs two")
    # Through bytes: the attack holds views and what colluders know, and nothing else of the run.
    sealed = canon.load(canon.dump({"views": tuple(views), "own": tuple(own), "first": task.first.vector}))
    seen = sightings(sealed["views"], pipeline.plain(), sealed["first"], task.layout)
    got = recover(seen, targets, sealed["own"])
    spoken = list(zip(targets, got.when, strict=True))
    true = torch.stack([truth[key] for key in spoken])
    guess = torch.stack([seen[number].total / seen[number].weight for _, number in spoken])
    starts = torch.stack([seen[number].start for _, number in spoken])
    answers = {
        "success": _asked(stage, targets, got.models, "recovered", cohort),
        "control": _asked(stage, targets, (starts + true).float(), "true", cohort),
    }
    _, held, prior = stage._about(targets, stage.setting.noise)
    hit = {key: {name: _rate(g, held.owners) for name, g in one.guesses.items()} for key, one in answers.items()}
    return {
        "clients": len(targets), "rank": got.rank, "alone": len(got.alone), "exact": len(got.exact),
        "stays": got.how.stays, "accuracy": accuracy, "chance": 1 / len(targets),
        "cosine": _cosine(got.updates, true), "baseline": _cosine(guess, true),
        "prior": _rate(prior.result().guesses["prior"], held.owners), **hit,
    }  # fmt: skip


def _asked(stage: _Stage, clients: tuple[str, ...], models: Tensor, what: str, cohort: int) -> Answer:
    """Source inference in a fresh process, on models as if their owners had sent them by name."""
    letters = tuple(
        {"kind": "up", "source": who, "body": {"vector": row}} for who, row in zip(clients, models, strict=True)
    )
    view = {"inputs": (letters,), "given": {"roster": clients}}
    node = stage.coins.child("disaggregation", what, cohort)
    return stage.panel.ask(
        stage._about(clients, stage.setting.noise)[0], stage._quiet(clients),
        Question(view, NAMED.plain(), ATTACKS, (), node),
    ).result()  # fmt: skip


def _rate(guesses: Tensor, owners: Tensor) -> float:
    return float((guesses == owners).double().mean())


def _cosine(guess: Tensor, true: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(guess, true, 1).mean())


def _together(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All runs of one size of cohorts."""
    plain = {key: asdict(over_runs([float(run[key]) for run in runs])) for key in ("cosine", "baseline")}
    plain["prior"] = asdict(share([float(run["prior"]) for run in runs]))
    gained = over_runs([run["cosine"] - run["baseline"] for run in runs])
    sources = {
        key: {
            name: {
                **asdict(share([run[key][name] for run in runs])),
                "leak": asdict(gain([run[key][name] - run["prior"] for run in runs])),
            }
            for name in ATTACKS
        }
        for key in ("success", "control")
    }
    spans = {key: sorted({run[key] for run in runs}) for key in ("clients", "rank", "alone", "exact", "stays")}
    mean = {key: sum(run[key] for run in runs) / len(runs) for key in ("accuracy", "chance")}
    return {**spans, **mean, **plain, "gained": asdict(gained), **sources}
