"""What counts of ones tell beyond the sum, for the releases `bits` and `counts` (`release.bits`).

For each parameter and modulus m these show the sum of the clients' residues as an integer: the sum modulo m, and m
times a carry. To compute the clients' sum nobody needs the carry, so whatever carries tell of the clients is leaked.
The audit's question `carries` asks it of RNS (`audit.attacks.carries`), and the laboratory measures it for many
settings (`attacks.residue_sums`).
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
# The fewest parameters of a part. No more than a floor: what an estimate needs grows with clients and moduli.
_FEWEST = 10


def carries(ones: Ints, moduli: Moduli) -> tuple[Ints, Ints]:
    """The sums, and the carry of every parameter (rows) and modulus (columns)."""
    return residues.join(np.ascontiguousarray(ones), moduli), ones // np.array(moduli)


def estimate_carry_bits(ones: Ints, clients: int, moduli: Moduli, coins: Coins) -> Rate:
    """An estimated upper bound of H(counts | sum), in bits a parameter, with a 95 % interval.

    The parameters of one view count as draws of one distribution. For n clients the bound is the sum of
    H(carry | sum modulo n m) over the moduli m. The sum modulo n m says the residue, and the carry that there would be
    if all clients held the mean. It follows from the whole sum, and conditioning on less leaves no less entropy, so
    that each term is no less than H(carry | sum).

    Plug-in entropies with the Miller-Madow correction in each cell; the interval is of the jackknife that leaves out
    one of twenty random parts of the parameters at a time. Raises: RangeError when there are too few parameters.
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
