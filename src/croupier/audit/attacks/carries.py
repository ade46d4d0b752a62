"""Does a view tell more than the sum of updates? Asked of counts of ones, and of weighted sums that were opened.

The releases `bits` and `counts` show, for each parameter and modulus m, the sum of the clients' residues as an integer:
the sum modulo m, and m times a carry. A sum needs no carries, so whatever they tell of the clients is leaked.
A scored release opens z_j = sum of w_i b_ij of rows of signs, whose weights follow from open distances
(`release/opened_sums`).

Carries also tell how far apart the clients' values lie, not whose they are (`candidates`). Given the sum, clients are
thought of as normal around its mean, with one of several spreads; how common each is, is learnt from the view itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from croupier.audit.attacks.separation import study as study
from croupier.audit.seen import counted
from croupier.core.coins import Coins
from croupier.core.intervals import Rate, over_runs
from croupier.core.update import Layout
from croupier.encode.residues import Counted
from croupier.errors import RangeError, Unsuited
from croupier.kernels import residues
from croupier.pipeline import Pipeline
from croupier.release.opened_sums import Floats, Ints, row_leakage, sum_leakage

Moduli = tuple[int, ...]

# Parts of the parameters that an interval leaves out one by one.
PARTS = 20
# Below this many parameters in a part there are fewer samples than cells.
_FEWEST = 10
# Draws of clients for each spread, and how much less likely a draw is for each unit that a carry of it is off.
DRAWS = 512
_OFF = 3.0
_SETTLE = 100
# In units of the largest modulus: clients farther apart wrap round all moduli many times, and carries tell no spread.
_FARTHEST = 2


def mount(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """At most how many bits a parameter a view tells (`bits`), and how many a plain sum does (`plain`).

    `asked` has the `views` of a round by party, the public `protocol`, the `attack` and `coins`. `unsuited` says why
    nothing can be told of it.
    """
    attacks = {"counts": _counts, "opened": _opened}
    try:
        found = attacks[asked["attack"]](layout, asked)
    except (RangeError, Unsuited) as error:
        return {"unsuited": str(error)}
    return {**found, "unsuited": ""}


def _counts(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What carries tell, for a sum needs none."""
    found = counted(asked["views"], asked["protocol"], layout)
    if found is None:
        raise Unsuited("its counts are not one of each parameter, in which all clients count alike")
    rate = estimate_carry_bits(found.ones.numpy(), found.clients, found.moduli, Coins(asked["coins"]))
    return {"bits": rate.rate, "plain": 0.0, "clients": found.clients, "moduli": found.moduli}


def carries(ones: Ints, moduli: Moduli) -> tuple[Ints, Ints]:
    """The sums, and the carry of every parameter (rows) and modulus (columns)."""
    return residues.join(np.ascontiguousarray(ones), moduli), ones // np.array(moduli)


def estimate_carry_bits(ones: Ints, clients: int, moduli: Moduli, coins: Coins) -> Rate:
    """At most H(counts | sum) in bits for the parameters of one view, with a 95 % interval.

    Parameters count as draws of one distribution. For each modulus m, H(carry | sum modulo n m): that is the residue,
    and the carry that n clients would have if they all held the mean. Less than the whole sum is conditioned on, so
    that this still is no less than H(carry | sum). Plug-in entropies with the Miller-Madow correction in each cell; the
    interval is of the jackknife that leaves out one of twenty random parts of the parameters at a time. Raises:
    RangeError when there are too few parameters.
    """
    if len(ones) < _FEWEST * PARTS:
        raise RangeError(f"{len(ones)} parameters are too few for an estimate; {_FEWEST * PARTS} at least")
    sums, carried = carries(ones, moduli)
    part = coins.sampler().permutation(len(ones)) % PARTS

    def bits(some: npt.NDArray[np.bool_]) -> float:
        return sum(_conditional(sums[some] % (clients * m), carried[some, j]) for j, m in enumerate(moduli))

    whole = bits(part >= 0)
    return over_runs([PARTS * whole - (PARTS - 1) * bits(part != left_out) for left_out in range(PARTS)])


def _conditional(cells: Ints, values: Ints) -> float:
    """H(value | cell), Miller-Madow."""
    table = np.zeros((int(cells.max()) + 1, int(values.max()) + 1))
    np.add.at(table, (cells, values), 1)
    each = table.sum(1, keepdims=True)
    share = table / np.maximum(each, 1)
    plug = -np.where(table > 0, share * np.log2(np.where(table > 0, share, 1)), 0).sum(1)
    extra = np.maximum((table > 0).sum(1) - 1, 0) / (2 * math.log(2) * np.maximum(each[:, 0], 1))
    return float((each[:, 0] / len(cells)) @ (plug + extra))


def pairs_fit(first: Ints, total: int, ones: Ints, moduli: Moduli) -> npt.NDArray[np.bool_]:
    """Which first values, with what is left of the total, make these counts."""
    each = zip(moduli, ones.tolist(), strict=True)
    fits: npt.NDArray[np.bool_] = np.all([first % m + (total - first) % m == many for m, many in each], axis=0)
    return fits


def _opened(layout: Layout, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What weights, which follow from open distances, tell of the row that they tell most of."""
    rule = Pipeline.parse(asked["protocol"]).release.scoring
    letters = (one for box in asked["views"]["server"][0]["inputs"] if isinstance(box, tuple) for one in box)
    bodies = (one.get("body", {}) for one in letters if isinstance(one, Mapping))
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
