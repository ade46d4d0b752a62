"""The zero of the audit: what the adversary's knowledge guesses without any view."""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.audit.knowledge import Knowledge


def label_posterior(knowledge: Knowledge) -> Tensor:
    """Log-probability of each client (rows) for each record (columns), from the shadow sets' labels alone.

    As many records are asked about for each client, so clients are equally likely before the label is seen. Where
    clients differ in their labels only, no attack without a view does better.
    """
    _, labels = knowledge.records
    counts = torch.stack([torch.bincount(y, minlength=knowledge.classes) for _, y in knowledge.shadows]).double()
    # Half a record of every class: a class that a small shadow set lacks is rare there, not impossible.
    shares = (counts + 0.5) / (counts.sum(1, keepdim=True) + 0.5 * knowledge.classes)
    return torch.log_softmax(torch.log(shares)[:, labels], 0)
