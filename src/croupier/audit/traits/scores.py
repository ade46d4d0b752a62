"""Scores of attacks on clients' traits and links: the answers of the attacks' process, held against the truth.

The same knowledge without a view is scored beside them, because common traits can be guessed. `AttackInput.asked_of`
sends what attacks may know to a `Panel` and keeps the truth here. `audit.traits.findings` and `audit.traits.tiers` use
it for an audit, and the laboratory's `attacks/tiers` for the paper IntraShuffler.

A row's owner is the client from whom most of its coordinates come, which is its sender where rows are intact. A mean of
a bucket belongs to each of its members alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from croupier.audit.attacks.traits.views import RoundView
from croupier.audit.blind import Panel
from croupier.learn.attributes import Attribute

Measures = dict[str, float]
RIGHT, ALWAYS, ROWS = "{}: clients named right", "{}: clients named right, all rounds", "{}: rows named right"
ROW, BUCKET = "linked to its owner's row", "linked to its owner's bucket"
CENTRED = "{} (centred)"
# No single round may decide on its own.
_LEAST = 1e-3


@dataclass(frozen=True)
class RoundTruth:
    """What is seen of a round, who took part, and from which of them each coordinate of each row came.

    A row of sums comes from nobody: `sources` is then None.
    """

    view: RoundView
    names: tuple[str, ...]
    sources: Tensor | None

    @classmethod
    def of_named(cls, view: RoundView) -> RoundTruth:
        """Of a view that tells whose each row is."""
        count, size = view.rows.shape
        return cls(view, view.names, torch.arange(count).unsqueeze(1).expand(count, size))


@dataclass(frozen=True)
class TraitTruth:
    """The truth about all rounds: from which client each row came, and the clients' attributes."""

    rounds: tuple[RoundTruth, ...]
    attributes: Mapping[str, Attribute]

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, round and member: each row with its owner, or a bucket's mean with each of its members."""
        rows, rounds, who, first = list[int](), list[int](), list[int](), 0
        for at, one in enumerate(self.rounds):
            # The member from whom most of a row's coordinates came; of several the first.
            owners = None if one.sources is None else one.sources.mode(1).values.tolist()
            for row, bucket in enumerate(one.view.bucket.tolist()):
                mates = (
                    [one.names.index(name) for name in one.view.members[bucket]] if owners is None else [owners[row]]
                )
                rows += [first + row] * len(mates)
                who += mates
                rounds += [at] * len(mates)
            first += len(one.view.rows)
        return torch.tensor(rows), torch.tensor(rounds), torch.tensor(who)

    @cached_property
    def names(self) -> list[str]:
        """The client of each pair."""
        _, rounds, who = self.pairs
        return [self.rounds[r].names[w] for r, w in zip(rounds.tolist(), who.tolist(), strict=True)]

    @cached_property
    def mates(self) -> list[tuple[str, ...]]:
        """The members of the bucket of each row."""
        return [one.view.members[bucket] for one in self.rounds for bucket in one.view.bucket.tolist()]


Scored = dict[str, tuple[Measures, Measures]]


@dataclass(frozen=True)
class AttackInput:
    """What attacks are sent (`known`, `asked`), and the truth about each view, which stays here.

    `guesses` has, by attribute, classes that are named without a view.
    """

    known: Mapping[str, Any]
    asked: Mapping[str, Any]
    truths: Mapping[str, TraitTruth]
    guesses: Mapping[str, set[int]]

    def asked_of(self, panel: Panel) -> Callable[[], Scored]:
        """The scores of what attacks answer, by view: asked at once, scored when called."""
        answer = panel.ask("traits", self.known, self.asked)
        # Not the views that were asked about: whoever waits for the scores would hold them.
        truths, guesses = self.truths, self.guesses

        def done() -> Scored:
            # As in the attacks' process: many small problems.
            with threadpool_limits(1):
                found = answer.result()
                return {view: score(found[view], truth, guesses) for view, truth in truths.items()}

        return cache(done)


def score(
    answer: Mapping[str, Any], truth: TraitTruth, guesses: Mapping[str, set[int]]
) -> tuple[Measures, Measures]:  # fmt: skip
    """What an attack's answer on one view comes to, and what its knowledge alone would come to (see `prior`)."""
    measures, chances = links(answer, truth)
    for key in truth.attributes:
        measures |= inference(key, answer["chances"][key], truth)
    return measures, chances | prior(truth, guesses)


def client_chances(chances: Tensor, truth: TraitTruth) -> Iterator[tuple[str, Tensor]]:
    """Round by round each client with the chances of classes that its own row, or its bucket's rows together, show."""
    first = 0
    for one in truth.rounds:
        mine = chances[first : first + len(one.view.rows)]
        for bucket, members in enumerate(one.view.members):
            seen = mine[one.view.bucket == bucket].double().mean(0)
            yield from ((name, seen) for name in members)
        first += len(one.view.rows)


def inference(key: str, chances: Tensor, truth: TraitTruth) -> Measures:
    """How often a client's class is named right, from its own row or from its bucket's rows together.

    Beside it stands the paper's reading: how often a row's class is that of its owner.
    """
    labels = truth.attributes[key]
    hits: list[bool] = []
    pooled: dict[str, Tensor] = {}
    for name, seen in client_chances(chances, truth):
        hits.append(int(seen.argmax()) == labels.labels[name])
        pooled[name] = pooled.get(name, torch.zeros_like(seen)) + seen.clamp_min(_LEAST).log()
    rowwise = (chances[truth.pairs[0]].argmax(1) == labels.of(truth.names)).double()
    # The roster is known: what all rounds say of a client, by its own rows or its buckets', is put together.
    together = [int(sums.argmax()) == labels.labels[name] for name, sums in pooled.items()]
    return {
        RIGHT.format(key): mean(hits), ALWAYS.format(key): mean(together), ROWS.format(key): float(rowwise.mean()),
    }  # fmt: skip


def prior(truth: TraitTruth, guesses: Mapping[str, set[int]]) -> Measures:
    """The prior of attributes: the best of the guesses for everybody, or any class at random."""
    present = [name for one in truth.rounds for name in one.names]
    asked = {RIGHT: present, ALWAYS: list(dict.fromkeys(present)), ROWS: truth.names}
    found: Measures = {}
    for key, classes in guesses.items():
        attribute = truth.attributes[key]
        for title, names in asked.items():
            hits = [mean([attribute.labels[name] == guess for name in names]) for guess in classes]
            # Where a common class misleads, a guess at random needs no view either.
            found[title.format(key)] = max(*hits, 1 / len(attribute.classes))
    return found


def link_hits(links: Tensor, allowed: Tensor, truth: TraitTruth) -> dict[str, list[tuple[int, float, float]]]:
    """Links, question by question: the round, whether it was hit, and the chance of a candidate picked at random.

    Of rows whose owner has a candidate: is the linked row its owner's (`ROW`), is its owner in that bucket (`BUCKET`)?
    """
    at, rounds, _ = truth.pairs
    everybody = set(truth.names)
    whose = {BUCKET: {who: torch.tensor([who in mates for mates in truth.mates]) for who in everybody}}
    if all(one.sources is not None for one in truth.rounds):
        # Each row has one owner, and rows are in order.
        whose[ROW] = {who: torch.tensor([who == name for name in truth.names]) for who in everybody}
    found: dict[str, list[tuple[int, float, float]]] = {ROW: [], BUCKET: []}
    for row, place, who in zip(at.tolist(), rounds.tolist(), truth.names, strict=True):
        may, number = allowed[row], truth.rounds[place].view.number
        for kind, rows in whose.items():
            right = rows[who]
            if bool((may & right).any()):
                chance = float((may & right).sum() / may.sum())
                found[kind].append((number, float(right[int(links[row])]), chance))
    return found


def links(answer: Mapping[str, Any], truth: TraitTruth) -> tuple[Measures, Measures]:
    """How often rows are linked rightly, as they are and around the mean, and how often by chance.

    Chance is a candidate picked at random.
    """
    measures, chances = Measures(), Measures()
    for name, title in (("links", "{}"), ("links_centred", CENTRED)):
        for kind, each in link_hits(answer[name], answer["allowed"], truth).items():
            if each:
                measures[title.format(kind)] = mean([hit for _, hit, _ in each])
                chances[title.format(kind)] = mean([chance for _, _, chance in each])
    return measures, chances


def mean(values: Sequence[float]) -> float:
    """The mean, added up in the order given, so that its last bits do not vary."""
    return sum(values) / len(values)
