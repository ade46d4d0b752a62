"""Values that clients may hold for a parameter, out of its carries: how far apart they lie, not whose they are.

Given the sum, clients are thought of as normal around its mean, with one of several spreads. How common each spread is,
is learnt from the view itself: the spreads that make all its carries likeliest. `audit.unshuffle.carried` tries them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from croupier.audit.attacks.carries import carries, pairs_fit
from croupier.audit.weighted_sums import Floats, Ints
from croupier.encode.encoder import Counted

# Draws of clients for each spread, and how much less likely a draw is for each unit that a carry of it is off.
DRAWS = 512
_OFF = 3.0
_SETTLE = 100
# In units of the largest modulus: clients farther apart wrap round all moduli many times, and carries tell no spread.
_FARTHEST = 2


def candidates(counted: Counted, places: Tensor, generator: torch.Generator) -> Tensor:
    """The expected values of all clients in ascending order (rows), for some parameters (columns).

    For two clients every pair is looked at; for more, draws whose carries are close to the counted ones.
    """
    sums, carried = carries(counted.ones.numpy(), counted.moduli)
    spreads = np.exp2(np.arange(math.ceil(math.log2(_FARTHEST * max(counted.moduli)))))
    rows = places.tolist()
    if counted.clients == 2:
        ones = counted.ones.numpy()
        found = [_pairs(int(sums[at]), ones[at], counted, spreads) for at in rows]
    else:
        draws = torch.randn(DRAWS, counted.clients, generator=generator, dtype=torch.float64).sort(1).values.numpy()
        apart = (draws - draws.mean(1, keepdims=True)) * np.sqrt(counted.clients / (counted.clients - 1))
        found = [_drawn(int(sums[at]), carried[at], counted, spreads[:, None, None] * apart) for at in rows]
    likely = np.stack([fits for fits, _ in found])
    common = _common(likely)
    share = likely * common
    share /= share.sum(1, keepdims=True)
    values = np.stack([(part[:, None] * guess).sum(0) for part, (_, guess) in zip(share, found, strict=True)], 1)
    return (torch.from_numpy(values) * counted.units[places]).float()


def _pairs(total: int, ones: Ints, counted: Counted, spreads: Floats) -> tuple[Floats, Floats]:
    """How likely the counts are under each spread, and the expected pair then."""
    half = total // 2
    low = half - np.arange(0, min(int(8 * spreads[-1]), counted.top + half) + 1)
    low = low[total - low <= counted.top]
    fits = pairs_fit(low, total, ones, counted.moduli)
    apart = (total - 2 * low)[None] ** 2 / (4 * spreads[:, None] ** 2)
    # Unordered pairs: one whose halves are equal has one order, the others two.
    chance = np.exp(-apart) * np.where(total == 2 * low, 1, 2)
    return _under(chance / chance.sum(1, keepdims=True) * fits, np.stack([low, total - low], 1))


def _drawn(total: int, carried: Ints, counted: Counted, apart: Floats) -> tuple[Floats, Floats]:
    """The same from draws (spreads, draws, clients) around the mean."""
    values = np.rint(total / counted.clients + apart).astype(np.int64)
    # What rounding added is taken from the middle client, so that the sum is the one that came out.
    values[..., counted.clients // 2] += total - values.sum(-1)
    values.sort(-1)
    off = np.zeros(values.shape[:2])
    for m, carry in zip(counted.moduli, carried.tolist(), strict=True):
        off += np.abs((values % m).sum(-1) // m - carry)
    return _under(np.exp(-_OFF * off) / values.shape[1], values)


def _under(chance: Floats, values: Ints) -> tuple[Floats, Floats]:
    """Likelihood of each spread, and expected values under it; where nothing fits, the plain mean of them all."""
    likely = chance.sum(1)
    weights = np.where(likely[:, None] > 0, chance, 1.0)
    weights = weights / weights.sum(1, keepdims=True)
    if values.ndim == 2:
        return likely + 1e-300, weights @ values
    return likely + 1e-300, np.einsum("sd,sdn->sn", weights, values)


def _common(likely: Floats) -> Floats:
    """How common each spread is: the shares that make all parameters' likelihoods (rows) largest together."""
    common = np.full(likely.shape[1], 1 / likely.shape[1])
    for _ in range(_SETTLE):
        share = likely * common
        common = (share / share.sum(1, keepdims=True)).mean(0)
    return common
