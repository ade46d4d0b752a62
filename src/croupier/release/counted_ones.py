"""What counts of ones tell beyond the sum: the releases `bits` and `counts` show carries, and a sum needs none.

For each parameter and modulus m they show the sum of the clients' residues as an integer: the sum modulo m, and m times
a carry. Whatever carries tell of the clients is leaked. The audit's question `carries` asks it of RNS
(`audit.attacks.carries`), and the laboratory measures it for many settings.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.core.intervals import Rate, over_runs
from croupier.errors import RangeError
from croupier.kernels import residues
from croupier.release.opened_sums import Ints

Moduli = tuple[int, ...]

# Parts of the parameters that an interval leaves out one by one.
PARTS = 20
# The fewest parameters of a part: with less, an estimate has fewer samples than cells.
_FEWEST = 10


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
    """Which of these values of one client, with the rest of the total as another's, make exactly these counts."""
    each = zip(moduli, ones.tolist(), strict=True)
    fits: npt.NDArray[np.bool_] = np.all([first % m + (total - first) % m == many for m, many in each], axis=0)
    return fits
