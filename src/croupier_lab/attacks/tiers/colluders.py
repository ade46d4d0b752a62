"""What all members of a bucket but one, with the server, take out of a shuffle: the last one's row, bit for bit.

IntraShuffler's tables say it beside each view (`attacks.tiers.experiment`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.audit.attacks.traits.views import RoundView
from croupier.audit.traits.scores import RoundTruth
from croupier.errors import RangeError


def share_uncovered(one: RoundView, truth: RoundTruth) -> float:
    """The share of clients whose noised row all other members of their bucket take out of the shuffle, exactly."""
    hits = []
    for bucket, members in enumerate(truth.view.members):
        rows = truth.view.rows[truth.view.bucket == bucket]
        places = [one.names.index(name) for name in members]
        for victim in places:
            others = one.rows[[place for place in places if place != victim]]
            hits.append(torch.equal(uncovered(rows, others), one.rows[victim]))
    return sum(hits) / len(hits)


def uncovered(released: Tensor, own: Tensor) -> Tensor:
    """What is left of a bucket's shuffled float32 rows when all members but one take out their own values, exactly.

    Each coordinate's values are a multiset: the bits of all, exclusive-or those of the colluders, are the victim's.
    """
    if len(own) != len(released) - 1:
        raise RangeError(f"{len(own)} colluders of a bucket of {len(released)}: all but one take part in this")
    left = torch.zeros_like(released[0].view(torch.int32))
    for row in (*released, *own):
        left = left ^ row.contiguous().view(torch.int32)
    return left.view(torch.float32)
