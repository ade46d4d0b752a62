"""Disaggregation: single updates out of sums, from cohorts that change between rounds and from clients that collude.

It gets views of several rounds, the models that were handed out in them, and what colluders know of themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from croupier.audit.seen import seen
from croupier.core.update import Gathered, Layout
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.place.placement import tiers_of
from croupier.release.bucketed import Tiered

# Over how many rounds what is common to clients, and what is a client's own, stays alike; how large the latter is
# against the former; and how much of a sum is neither, against a client's own.
COMMON, OWN = (0.0, 3.0, 10.0, math.inf), (3.0, 10.0, math.inf)
SIZES, REST = (0.01, 0.1, 1.0, 10.0), (1e-6, 1e-3, 1e-1)
_SAME = 1e-6


@dataclass(frozen=True)
class Sighting:
    """A sum of a round: whose updates it is of, the model they began with, the sum, its weight and the round.

    An update is what a client adds to the model it began with. A round with buckets has several sums.
    """

    present: tuple[str, ...]
    start: Tensor
    total: Tensor
    weight: float
    round: int


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


@dataclass(frozen=True)
class Spoken:
    """An update of a client, the mean update of its round, and the round."""

    update: Tensor
    mean: Tensor
    round: int


def sightings(rounds: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any], layout: Layout) -> list[Sighting]:
    """What views hold of sums. A round is its number (`round`), `views` by party, and the model `start` of it."""
    pipeline, found = Pipeline.parse(protocol), list[Sighting]()
    for one in rounds:
        got, start = seen(one["views"], protocol, layout, one["start"]), one["start"].double()
        for present, total, weight in _sums_of(got, pipeline):
            moved = total if got.form == "delta" else total - weight * start
            found.append(Sighting(present, start, moved, weight, one["round"]))
    return found


def _sums_of(got: Gathered, pipeline: Pipeline) -> Iterator[tuple[tuple[str, ...], Tensor, float]]:
    """Whose each sum is, the sum and its weight: one of all, or one of each bucket, as public tiers form them."""
    if got.sums is not None and got.weights is not None:
        yield got.present, got.sums.double(), float(got.weights)
        return
    if got.rows is None:
        raise SpecError("disaggregation needs sums or rows")
    rows, release = got.rows.double(), pipeline.release
    if not isinstance(release, Tiered) or got.ids is not None:
        yield got.present, rows.sum(0), float(len(rows))
        return
    buckets, at = release.buckets(tiers_of(pipeline, got.present)), 0
    for number, bucket in enumerate(buckets):
        # A bucket's mean, or as many rows as it has members.
        mean = rows[number] if release.grouped else rows[at : at + bucket.size].mean(0)
        yield tuple(got.present[i] for i in bucket.members), bucket.size * mean, float(bucket.size)
        at += bucket.size


def named(rounds: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any], layout: Layout) -> dict[str, Spoken]:
    """Updates that views hold with their senders' names: the last one of each client, and its round.

    Raises: SpecError where there are no names.
    """
    found: dict[str, Spoken] = {}
    for one in rounds:
        got = seen(one["views"], protocol, layout, one["start"])
        names = got.ids or got.present
        if got.rows is None or len(names) != len(got.rows):
            raise SpecError("updates by name need rows with their senders' names, which this view does not hold")
        rows = got.rows.double()
        if got.scaled and got.weights is not None:
            rows = rows / torch.where(got.weights > 0, got.weights, 1.0).unsqueeze(1)
        if got.form == "weights":
            rows = rows - one["start"].double()
        found |= {who: Spoken(row, rows.mean(0), one["round"]) for who, row in zip(names, rows, strict=True)}
    return found


def own_update(view: Mapping[str, Any]) -> Tensor:
    """What a colluding client knows that it sent: its trained weights, less the model it was handed."""
    handed = next(box[0]["body"]["model"] for box in view["inputs"] if isinstance(box, tuple))
    update = next(box for box in view["inputs"] if isinstance(box, Mapping) and "vector" in box)
    trained: Tensor = update["vector"].double() - handed.double()
    return trained


def recover(
    sums: Sequence[Sighting], clients: Sequence[str], own: Mapping[int, Mapping[str, Tensor]] | None = None
) -> Recovered:
    """Ridge regression over rounds. `own` is, by round, what colluders sent; they are not among `clients`.

    A client is something common and something of its own, and both move slowly. How slowly, and how large the client's
    own is, are those of a grid of beliefs that make the sums likeliest (each coordinate a draw of one Gaussian
    process). With one cohort in all rounds there is nothing to solve: everybody gets the round's mean. A client who is
    the only one left of a round has its update by subtraction. Raises: SpecError when a client was in no round.
    """
    left = [one for each in sums if (one := without(each, (own or {}).get(each.round, {}))).present]
    part = torch.tensor([[float(who in one.present) for who in clients] for one in left], dtype=torch.float64)
    if not len(part) or not bool((part.sum(0) > 0).all()):
        raise SpecError("a client that took part in no round has nothing to be found")
    last = [max(row for row in range(len(left)) if part[row, column]) for column in range(len(clients))]
    when = torch.tensor([one.round for one in left])
    gaps = (when.unsqueeze(1) - when).abs().double()
    how, explained = _believed(left, part, gaps)
    kernel, single = _kernel(part, gaps, how), _alike(gaps, how.own)
    across = _alike(gaps, how.common)[last] * part.sum(1) + how.size * single[last] * part.T
    each = across @ torch.linalg.solve(kernel, explained)
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
    models, spoken = (starts + updates).float(), tuple(left[row].round for row in last)
    return Recovered(tuple(clients), updates, models, spoken, rank, alone, tuple(sorted(exact)), how)


def without(one: Sighting, known: Mapping[str, Tensor]) -> Sighting:
    """A round less what colluders sent; they count one each."""
    took = [who for who in one.present if who in known]
    each = one.weight / len(one.present)
    total = one.total - each * sum((known[who] for who in took), torch.zeros_like(one.total))
    present = tuple(who for who in one.present if who not in known)
    return Sighting(present, one.start, total, one.weight - each * len(took), one.round)


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
