"""The zero of the audit: what the adversary's knowledge guesses without any view."""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge

# How many records' worth of doubt stands behind a lean.
DOUBTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
# Rounds of filling in, far more than the answer takes to stand still.
SETTLE = 30


def counts(labels: tuple[Tensor, ...], classes: int) -> Tensor:
    """Records of each class (columns) that each client (rows) is known to have."""
    return torch.stack([torch.bincount(y, minlength=classes) for y in labels]).double()


def shares(known: Tensor, lean: Tensor, doubt: float) -> Tensor:
    """Each client's shares of the classes: its counts, and `doubt` more records spread as `lean` says."""
    return (known + doubt * lean) / (known.sum(1, keepdim=True) + doubt)


def label_posterior(knowledge: Knowledge) -> Tensor:
    """Log-probability of each client (rows) for each record (columns), from the labels of shadow sets and records.

    As many records are asked about for each client, so clients are equally likely before the label is seen. Where
    clients differ in their labels only, nothing else than labels can help without a view.
    """
    known = counts(tuple(y for _, y in knowledge.shadows), knowledge.classes)
    even = torch.full_like(known, 1 / knowledge.classes)
    doubt = max(DOUBTS, key=lambda doubt: _left_out(known, even, doubt))
    return by_label(settled(known, even, doubt, knowledge.records[1]), knowledge.records[1])


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


def _left_out(known: Tensor, lean: Tensor, doubt: float) -> float:
    """How likely each shadow record's label is, by its client's other shadow records."""
    others = (known - 1).clamp(min=0) + doubt * lean
    return float((known * torch.log(others / (known.sum(1, keepdim=True) - 1 + doubt))).sum())
