"""Can single updates be taken out of sums over rounds? Attacks on what one adversary sees of all rounds.

`recover` solves for every client's update by ridge regression over the sums of changing clients, less what colluders
sent. `audit.questions.separation` asks the attacks in the blind process; `audit.attacks.carries` takes its `study` from
here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from croupier.audit.client_view import handed
from croupier.audit.seen import seen
from croupier.core.update import Gathered, Layout, Slice
from croupier.errors import SpecError
from croupier.pipeline import Pipeline
from croupier.place.placement import tiers_of

Rounds = Sequence[Mapping[str, Any]]
# What is tried for each field of a `Belief`: over how many rounds the common part and a client's own part stay alike
# (COMMON, OWN), how large the own part is against the common one (SIZES), and how much of a sum is neither (REST).
COMMON, OWN = (0.0, 3.0, 10.0, math.inf), (3.0, 10.0, math.inf)
SIZES, REST = (0.01, 0.1, 1.0, 10.0), (1e-6, 1e-3, 1e-1)
_SAME = 1e-6


def study(known: Mapping[str, Any], device: str = "cpu") -> Layout:
    """What is known, before any view: which tensor lies where."""
    return Layout(tuple(Slice(one["name"], tuple(one["shape"]), one["role"]) for one in known["layout"]))


def mount(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """An update for every client but those whose own views these are, by attack.

    `asked` has `rounds`, each with its number (`round`), `views` by party and the model `start` that was handed out in
    it; the public `protocol`; and names of `attacks`. Of each client `when` says of which round its update is, and
    `means` the mean update of that round: with `less_own`, without those whose views these are.
    """
    attacks, own = {"named": _named, "sums": _sums}, asked.get("less_own", False)
    if strange := [name for name in asked["attacks"] if name not in attacks]:
        raise SpecError(f"no attack is called {strange[0]!r}; known: {', '.join(attacks)}")
    return {name: attacks[name](asked["rounds"], asked["protocol"], layout, own) for name in asked["attacks"]}


def _named(rounds: Rounds, protocol: Mapping[str, Any], layout: Layout, less_own: bool) -> dict[str, Any]:
    """The last update of each client, as it was seen with its sender's name. Raises: SpecError without names."""
    own = {who for known in _own(rounds).values() for who in known}
    found: dict[str, tuple[int, Tensor, Tensor]] = {}
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
        others = [at for at, who in enumerate(names) if who not in own]
        mean = rows[others if less_own else slice(None)].mean(0)
        found |= {names[at]: (one["round"], rows[at], mean) for at in others}
    if not found:
        raise SpecError("no client is left beside those who collude")
    when, updates, means = zip(*found.values(), strict=True)
    return {"clients": tuple(found), "when": when, "updates": torch.stack(updates), "means": torch.stack(means)}


def _sums(rounds: Rounds, protocol: Mapping[str, Any], layout: Layout, less_own: bool) -> dict[str, Any]:
    """Sums over changing clients, less what colluders sent, solved for the others."""
    sums, own = observed_sums(rounds, protocol, layout), _own(rounds)
    known = {who for each in own.values() for who in each}
    clients = tuple(dict.fromkeys(who for one in sums for who in one.present if who not in known))
    got = recover(sums, clients, own)
    left = [one.without(own[one.round]) for one in sums] if less_own else sums
    means = {number: _mean([one for one in left if one.round == number]) for number in set(got["when"])}
    return {**got, "means": torch.stack([means[number] for number in got["when"]]), "sums": len(sums)}


def _own(rounds: Rounds) -> dict[int, dict[str, Tensor]]:
    """By round, what each client sent that brought its own view."""
    return {
        one["round"]: {
            who: own_update(views[0])
            for who, views in one["views"].items()
            if views and who in views[0]["given"]["roster"]
        }
        for one in rounds
    }


def own_update(view: Mapping[str, Any]) -> Tensor:
    """The update that a colluding client sent, from its own view: its trained weights, less the model it was handed."""
    update = next(box for box in view["inputs"] if isinstance(box, Mapping) and "vector" in box)
    trained: Tensor = update["vector"].double() - handed(view).double()
    return trained


@dataclass(frozen=True)
class ObservedSum:
    """A sum of a round: whose updates it is of, the model they began with, the sum, its weight and the round.

    An update is what a client adds to the model it began with. A round with buckets has several sums.
    """

    present: tuple[str, ...]
    start: Tensor
    total: Tensor
    weight: float
    round: int

    def without(self, known: Mapping[str, Tensor]) -> ObservedSum:
        """The same less what colluders sent; they count one each."""
        took = [who for who in self.present if who in known]
        each = self.weight / len(self.present)
        total = self.total - each * sum((known[who] for who in took), torch.zeros_like(self.total))
        present = tuple(who for who in self.present if who not in known)
        return ObservedSum(present, self.start, total, self.weight - each * len(took), self.round)


def _mean(sums: Sequence[ObservedSum]) -> Tensor:
    return torch.stack([one.total for one in sums]).sum(0) / sum(one.weight for one in sums)


def observed_sums(rounds: Rounds, protocol: Mapping[str, Any], layout: Layout) -> list[ObservedSum]:
    """What views hold of sums. A round is its number (`round`), `views` by party, and the model `start` of it."""
    pipeline, found = Pipeline.parse(protocol), list[ObservedSum]()
    for one in rounds:
        got, start = seen(one["views"], protocol, layout, one["start"]), one["start"].double()
        for present, total, weight in _sums_of(got, pipeline):
            moved = total if got.form == "delta" else total - weight * start
            found.append(ObservedSum(present, start, moved, weight, one["round"]))
    return found


def _sums_of(got: Gathered, pipeline: Pipeline) -> Iterator[tuple[tuple[str, ...], Tensor, float]]:
    """Whose each sum is, the sum and its weight: one of all, or one of each bucket, as public tiers form them."""
    if got.sums is not None and got.weights is not None:
        yield got.present, got.sums.double(), float(got.weights)
        return
    if got.rows is None:
        raise SpecError("disaggregation needs sums or rows")
    rows, release = got.rows.double(), pipeline.release
    if not release.tiered or got.ids is not None:
        yield got.present, rows.sum(0), float(len(rows))
        return
    buckets, at = release.buckets(tiers_of(pipeline, got.present)), 0
    for number, bucket in enumerate(buckets):
        # A bucket's mean, or as many rows as it has members.
        mean = rows[number] if release.grouped else rows[at : at + bucket.size].mean(0)
        yield tuple(got.present[i] for i in bucket.members), bucket.size * mean, float(bucket.size)
        at += bucket.size


@dataclass(frozen=True)
class Belief:
    """How clients are believed to move.

    `stays` says what stays alike from round to round (updates or models). The part `common` to all clients and a
    client's `own` part stay alike over so many rounds; the own part has `size` times the variance of the common one,
    and what is neither `rest` times that of the own part.
    """

    stays: str
    common: float
    own: float
    size: float
    rest: float


def recover(
    sums: Sequence[ObservedSum], clients: Sequence[str], own: Mapping[int, Mapping[str, Tensor]] | None = None
) -> dict[str, Any]:
    """An update of every client (rows of `updates`) by ridge regression over rounds, and the round `when` it was.

    `own` is, by round, what colluders sent; they are not among `clients`. A client is something common and something of
    its own, and both move slowly: as slowly as makes the sums likeliest, each coordinate a draw of one Gaussian
    process; `stays` is what is held to be alike. With one cohort in all rounds everybody gets the round's mean. A
    client who alone is left of a round has its update by subtraction (`exact`), of the last such round. `rank` is how
    many combinations of clients the rounds tell apart, `alone` who is told from all others by linear algebra, were
    updates constant. Raises: SpecError when a client was in no round, or sums are not finite.
    """
    left = [one for each in sums if (one := each.without((own or {}).get(each.round, {}))).present]
    part = torch.tensor([[float(who in one.present) for who in clients] for one in left], dtype=torch.float64)
    if not len(part) or not bool((part.sum(0) > 0).all()):
        raise SpecError("a client that took part in no round has nothing to be found")
    last = [max(row for row in range(len(left)) if part[row, column]) for column in range(len(clients))]
    when = torch.tensor([one.round for one in left])
    gaps = (when.unsqueeze(1) - when).abs().double()
    how, explained = _likeliest(left, part, gaps)
    across = _alike(gaps, how.common)[last] * part.sum(1) + how.size * _alike(gaps, how.own)[last] * part.T
    updates = across @ torch.linalg.solve(_covariance(part, gaps, how), explained)
    if how.stays == "models":
        updates = updates - torch.stack([left[row].start for row in last])
    exact = {one.present[0]: row for row, one in enumerate(left) if len(one.present) == 1}
    for column, who in enumerate(clients):
        if who in exact:
            last[column] = exact[who]
            updates[column] = left[exact[who]].total / left[exact[who]].weight
    within = torch.linalg.pinv(part) @ part
    return {
        "clients": tuple(clients), "updates": updates, "when": tuple(left[row].round for row in last),
        "rank": int(torch.linalg.matrix_rank(part)), "exact": tuple(sorted(exact)), "stays": how.stays,
        "alone": tuple(who for row, who in enumerate(clients) if abs(float(within[row, row]) - 1) < _SAME),
    }  # fmt: skip


def _likeliest(left: Sequence[ObservedSum], part: Tensor, gaps: Tensor) -> tuple[Belief, Tensor]:
    """The belief under which the sums are likeliest, and what they are sums of then."""
    # What cohorts' parts should add up to, if updates stay as they are, and if models do; a client counts as one.
    moved = torch.stack([one.total * (len(one.present) / one.weight) for one in left])
    starts = torch.stack([len(one.present) * one.start for one in left])
    best, chosen = -math.inf, None
    for stays, sums in (("updates", moved), ("models", moved + starts)):
        products = sums @ sums.T / sums.shape[1]
        for common, own, size, rest in product(COMMON, OWN, SIZES, REST):
            how = Belief(stays, common, own, size, rest)
            if (likely := _likelihood(_covariance(part, gaps, how), products)) > best:
                best, chosen = likely, (how, sums)
    if chosen is None:
        raise SpecError("no sums to explain: they are not finite")
    return chosen


def _alike(gaps: Tensor, reach: float) -> Tensor:
    """How alike two rounds are: fully when the reach is endless, not at all beyond a round itself when it is 0."""
    return torch.exp(-gaps / reach) if reach else (gaps == 0).double()


def _covariance(part: Tensor, gaps: Tensor, how: Belief) -> Tensor:
    """The covariance of the rounds' sums under a belief."""
    many = part.sum(1)
    single = (part @ part.T) * _alike(gaps, how.own) + how.rest * torch.diag(many)
    return many.unsqueeze(1) * many * _alike(gaps, how.common) + how.size * single


def _likelihood(covariance: Tensor, products: Tensor) -> float:
    """The logarithm of the likelihood of the sums, for each coordinate, at the best overall size."""
    root = torch.linalg.cholesky(covariance)
    fit = float(torch.cholesky_solve(products, root).trace())
    if not fit > 0:
        return -math.inf
    return -0.5 * len(covariance) * math.log(fit) - float(root.diagonal().log().sum())
