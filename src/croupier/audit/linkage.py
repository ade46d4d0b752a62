"""Linking updates of one client across rounds: each row's nearest neighbour among the rows of earlier rounds.

From: IntraShuffler section 5, stage 3: cosine, top-1, a window of rounds. Names and rosters are left out of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from croupier.audit.glimpse import Stack
from croupier.core.coins import Coins

WINDOW = 10


def candidates(stack: Stack, window: int = WINDOW) -> Tensor:
    """Which earlier rows (columns) each row (rows) may be linked to: within the window, of a tier that it may have."""
    ago = stack.rounds.unsqueeze(1) - stack.rounds
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(stack.tiers))}
    meet = torch.tensor([[bool(one & other) for other in kinds] for one in kinds])
    place = torch.tensor([kinds[kind] for kind in stack.tiers])
    return (ago > 0) & (ago < window) & meet[place][:, place]


def link(rows: Tensor, allowed: Tensor, coins: Coins) -> Tensor:
    """The place of the most similar allowed row, ties at random; -1 where none is allowed."""
    sizes = rows.double().norm(dim=1, keepdim=True).clamp_min(1e-300)
    unit = rows.double() / sizes
    likeness = (unit @ unit.T).masked_fill(~allowed, -torch.inf)
    best = likeness == likeness.max(1, keepdim=True).values
    lots = torch.rand(best.shape, generator=coins.fast(), dtype=torch.float64)
    chosen = lots.masked_fill(~(best & allowed), -1.0).argmax(1)
    return torch.where(allowed.any(1), chosen, -1)
