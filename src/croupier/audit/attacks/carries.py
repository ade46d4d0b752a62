"""Does a view tell more than the sum of updates? Asked of counts of ones, and of opened sums of weighted rows.

Counts of ones give sums of residues that are not reduced. So they also tell the carries, and with them how far apart
clients' values lie, though not whose they are (`candidates`). Given the sum, clients are taken to be normally
distributed around its mean with one of several spreads; how common each spread is, is learnt from the view itself.
`audit.questions.carries` asks it in the blind process, and `audit.unshuffle` uses `candidates`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.audit.attacks.separation import study as study
from croupier.audit.client_view import letters
from croupier.audit.seen import counted
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.encode.residues import Counted
from croupier.errors import RangeError, Unsuited
from croupier.pipeline import Pipeline
from croupier.release.counted_ones import carries, estimate_carry_bits, pairs_fit
from croupier.release.opened_sums import Floats, Ints, row_leakage, sum_leakage

# Draws of clients for each spread; by what factor (its logarithm) a draw is less likely for each unit that a carry is
# off; and how often the shares of spreads are fitted again.
DRAWS = 512
_OFF = 3.0
_SETTLE = 100
# In units of the largest modulus: clients farther apart wrap round all moduli many times, and carries tell no spread.
_FARTHEST = 2


def mount(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """At most how many bits a parameter a view tells (`bits`), and how many a plain sum does (`plain`).

    `asked` has a round's `views` by party, the `protocol`, the `attack` and `coins`. `unsuited`: why nothing is told.
    """
    attacks = {"counts": _counts, "opened": _opened}
    try:
        found = attacks[asked["attack"]](layout, asked)
    except (RangeError, Unsuited) as error:
        return {"unsuited": str(error)}
    return {**found, "unsuited": ""}


def _counts(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the carries tell beyond a sum, which needs none."""
    found = counted(asked["views"], asked["protocol"], layout)
    if found is None:
        raise Unsuited("its counts are not one of each parameter, in which all clients count alike")
    rate = estimate_carry_bits(found.ones.numpy(), found.clients, found.moduli, Coins(asked["coins"]))
    return {"bits": rate.rate, "plain": 0.0, "clients": found.clients, "moduli": found.moduli}


def _opened(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What an opened sum tells of the row that it tells most of; its weights follow from the open distances."""
    rule = Pipeline.parse(asked["protocol"]).release.scoring
    bodies = (one.get("body", {}) for one in letters(asked["views"]["server"][0]))
    opened = next((body["distances"] for body in bodies if "distances" in body), None)
    if opened is None or rule is None:
        raise Unsuited("its view holds no distances, from which weights would follow")
    distances = opened.numpy().astype(np.int64)
    weights = rule.judge(distances, layout.size).weights
    near = weights > 0
    if not near.any():
        raise Unsuited("no row counted, so that there is no sum")
    flip = float(distances[near].mean() / layout.size)
    found, many = sum_leakage(weights[near].tolist(), flip), int(near.sum())
    plain = row_leakage([1] * many, [1 - flip] * many, 0).bits
    return {"bits": found.best_row.bits, "plain": plain, "unique_columns": found.unique_columns, "rows": many}


def candidates(counted: Counted, places: Tensor, generator: torch.Generator) -> Tensor:
    """The expected values of all clients in ascending order (rows), for some parameters (columns).

    For two clients every pair is looked at; for more, draws whose carries are close to the counted ones.
    """
    ones = counted.ones.numpy()
    sums, carried = carries(ones, counted.moduli)
    spreads = np.exp2(np.arange(math.ceil(math.log2(_FARTHEST * max(counted.moduli)))))
    rows = places.tolist()
    if counted.clients == 2:
        found = [_pairs(int(sums[at]), ones[at], counted, spreads) for at in rows]
    else:
        draws = torch.randn(DRAWS, counted.clients, generator=generator, dtype=torch.float64).sort(1).values.numpy()
        apart = (draws - draws.mean(1, keepdims=True)) * np.sqrt(counted.clients / (counted.clients - 1))
        found = [_drawn(int(sums[at]), carried[at], counted, spreads[:, None, None] * apart) for at in rows]
    share = _shares(np.stack([fits for fits, _ in found]))
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
    each = zip(counted.moduli, carried.tolist(), strict=True)
    off = np.sum([np.abs((values % m).sum(-1) // m - carry) for m, carry in each], axis=0)
    return _under(np.exp(-_OFF * off) / values.shape[1], values)


def _under(chance: Floats, values: Ints) -> tuple[Floats, Floats]:
    """Likelihood of each spread, and expected values under it; where nothing fits, the plain mean of them all."""
    likely = chance.sum(1)
    weights = np.where(likely[:, None] > 0, chance, 1.0)
    weights = weights / weights.sum(1, keepdims=True)
    if values.ndim == 2:
        return likely + 1e-300, weights @ values
    return likely + 1e-300, np.einsum("sd,sdn->sn", weights, values)


def _shares(likely: Floats) -> Floats:
    """Each parameter's (rows) share of each spread, as common as makes all likelihoods largest together."""
    common = np.full(likely.shape[1], 1 / likely.shape[1])
    for _ in range(_SETTLE + 1):
        share: Floats = likely * common
        share /= share.sum(1, keepdims=True)
        common = share.mean(0)
    return share
