"""The prior of the question `source`: whose record it is, as the adversary's knowledge alone guesses it.

What attacks find counts as a leak only beyond the best guess without a view, so this guess must be a good one: it
combines what labels tell with learners on the shadow records (`audit.records`), and is chosen on the shadow sets alone,
which are samples of each client's data that nobody trains on (`audit.knowledge`).
`audit.attacks.source` learns it once for each `Knowledge`, and joins its own findings with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from croupier.audit import records
from croupier.audit.knowledge import Knowledge
from croupier.core.coins import Coins

# Choices of doubt: so many imagined records are added to those counted, with a guessed mix of classes (`shares`).
DOUBTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
# Rounds of filling in, far more than the answer takes to stand still.
SETTLE = 30
# How much labels, and a learner's word about the whole record, may count; 1 is at face value.
LABELS = (0.0, 0.5, 1.0)
WORDS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
# By how many nats a learner must foretell the shadow records better than labels do: it brings two weights to fit.
MARGIN = 2.0
BY_LABELS = "labels"
BY_NOTHING = "nothing: no learner on records and targets foretells clients"


@dataclass(frozen=True)
class Prior:
    """The best guess without a view: log-probability of each client (rows) for each record (columns).

    `beyond` is what the records themselves add to what their labels tell; 0 where labels are all that helps.
    `carried` says which knowledge it is made of, for the report.
    """

    by_labels: Tensor
    beyond: Tensor
    carried: str

    @property
    def scores(self) -> Tensor:
        """Labels and records together."""
        return self.by_labels + self.beyond


def learn_prior(knowledge: Knowledge, coins: Coins) -> Prior:
    """The view-free attack that foretells left-out shadow records best: labels, or a learner weighed with them.

    It is chosen and weighed on the shadow sets alone, each record by the others, so that a view can be added.
    """
    # Quantities have no classes to count: all clients are alike.
    alike = -math.log(len(knowledge.clients))
    even = torch.full((len(knowledge.clients), len(knowledge.records[1])), alike).double()
    by_labels = label_posterior(knowledge) if knowledge.classes else even
    found = Prior(by_labels, torch.zeros_like(by_labels), BY_LABELS if knowledge.classes else BY_NOTHING)
    if len(knowledge.shadows) < 2:
        # Nobody to be told from, so that no learner is tried.
        return found
    kept = records.choose(knowledge.shadows, coins.child("kept"))
    shadows = tuple(y[some] for (_, y), some in zip(knowledge.shadows, kept, strict=True))
    owners = torch.repeat_interleave(torch.arange(len(shadows)), torch.tensor([len(y) for y in shadows]))
    none = torch.zeros(len(shadows), len(owners), dtype=torch.float64)
    labels = _labels_left_out(shadows, knowledge.classes) if knowledge.classes else none
    # As many records of each client are asked about, so that the few of a small shadow set count as much.
    weigh = (len(owners) / len(shadows) / torch.bincount(owners).double())[owners]
    bar = _foretold(labels, owners, weigh) + MARGIN
    for told in records.learn(knowledge, coins):
        for label, word in product(LABELS, WORDS):
            likely = _foretold(label * labels + word * told.left_out, owners, weigh)
            if likely > bar:
                bar = likely
                scores = _levelled(label * by_labels + word * told.asked)
                found = Prior(by_labels, scores - by_labels, f"labels and {told.title}" if label else told.title)
    return found


def _foretold(scores: Tensor, owners: Tensor, weigh: Tensor) -> float:
    """The log-likelihood of the true owners, each record with its weight; `scores` has a row for each client."""
    return float(weigh @ torch.log_softmax(scores, 0)[owners, torch.arange(len(owners))])


def _labels_left_out(labels: tuple[Tensor, ...], classes: int) -> Tensor:
    """What labels tell of each shadow record (columns) when it is not counted itself."""
    known, even, doubt = _counted(labels, classes)
    columns = []
    for at, own in enumerate(labels):
        for label in own.tolist():
            less = known.clone()
            less[at, label] -= 1
            columns.append(torch.log(shares(less, even, doubt)[:, label]))
    return torch.log_softmax(torch.stack(columns, 1), 0)


def _levelled(scores: Tensor) -> Tensor:
    """Log-probabilities by which each client owns as many of the asked records as any other: as many were asked."""
    each = torch.tensor(scores.shape[1] / scores.shape[0], dtype=torch.float64)
    for _ in range(SETTLE):
        held = torch.softmax(scores, 0).sum(1, keepdim=True)
        scores = scores + torch.log(each / held.clamp(min=1e-300))
    return torch.log_softmax(scores, 0)


def counts(labels: Iterable[Tensor], classes: int) -> Tensor:
    """Records of each class (columns) that each client (rows) is known to have."""
    return torch.stack([torch.bincount(y, minlength=classes) for y in labels]).double()


def _counted(labels: Iterable[Tensor], classes: int) -> tuple[Tensor, Tensor, float]:
    """Counts, all classes alike as `lean`, and the doubt that best foretells each record by its client's others."""
    known = counts(labels, classes)
    even = torch.full_like(known, 1 / classes)

    def likely(doubt: float) -> float:
        others = (known - 1).clamp(min=0) + doubt * even
        return float((known * torch.log(others / (known.sum(1, keepdim=True) - 1 + doubt))).sum())

    return known, even, max(DOUBTS, key=likely)


def shares(known: Tensor, lean: Tensor, doubt: float | Tensor) -> Tensor:
    """Each client's shares of the classes: its counts, and `doubt` more records spread as `lean` says."""
    return (known + doubt * lean) / (known.sum(1, keepdim=True) + doubt)


def label_posterior(knowledge: Knowledge) -> Tensor:
    """Log-probability of each client (rows) for each record (columns), from the labels of shadow sets and records.

    As many records are asked about for each client, so clients are equally likely before the label is seen.
    """
    labels = knowledge.records[1]
    return by_label(settled(*_counted([y for _, y in knowledge.shadows], knowledge.classes), labels), labels)


def settled(known: Tensor, lean: Tensor, doubt: float, labels: Tensor) -> Tensor:
    """Shares of classes that also explain the asked labels: each client owns as many of them as any other.

    Who owns how many records of a class is filled in to fit the totals on both sides, and counted with what is known;
    repeated until it settles.
    """
    asked = torch.bincount(labels, minlength=known.shape[1]).double()
    held = shares(known, lean, doubt)
    for _ in range(SETTLE):
        held = shares(known + _filled(held, asked), lean, doubt)
    return held


def _filled(held: Tensor, asked: Tensor) -> Tensor:
    """The table nearest to the shares whose columns add up to the asked labels and whose rows are equal."""
    table, each = held, asked.sum() / len(held)
    for _ in range(SETTLE):
        table = table * (asked / table.sum(0).clamp(min=1e-300))
        table = table * (each / table.sum(1, keepdim=True).clamp(min=1e-300))
    return table


def by_label(held: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each client for each record, when shares of classes are known."""
    return torch.log_softmax(torch.log(held)[:, labels], 0)
