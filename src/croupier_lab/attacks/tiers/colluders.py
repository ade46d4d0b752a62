"""What colluding clients take out of a bucket's shuffle: all members but one, with the server, read the last one's row.

It is exact, bit for bit, and sets the limit of what shuffling in small buckets can promise. `attacks.tiers.experiment`
calls `share_uncovered` on the first round and keeps the share in its `SeedResult`; no table prints it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.audit.attacks.traits.views import RoundView
from croupier.audit.traits.scores import RoundTruth
from croupier.errors import RangeError


def share_uncovered(one: RoundView, truth: RoundTruth) -> float:
    """The share of clients whose noised row the other members of their bucket take out of the shuffle exactly."""
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

    Each coordinate's values are a multiset. The exclusive-or of the bits of all values and those of the colluders is
    the victim's value. Raises: RangeError unless there is one colluder less than there are rows.
    """
    if len(own) != len(released) - 1:
        raise RangeError(f"{len(own)} colluders of a bucket of {len(released)}: all but one take part in this")
    left = torch.zeros_like(released[0].view(torch.int32))
    for row in (*released, *own):
        left = left ^ row.contiguous().view(torch.int32)
    return left.view(torch.float32)
