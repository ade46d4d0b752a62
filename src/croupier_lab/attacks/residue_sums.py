"""What sums of residues tell beyond the sum: distinguishers, leaked bits, candidates left over.

For each parameter and modulus m, the releases `bits` and `counts` show the sum of the clients' residues as an integer.
(Residues travel as so many ones, and the sum is how many ones there are.) It is the sum's own residue plus m times a
*carry*, and carries depend on more than the true sum.

Where the distribution of the clients' values is known, the leak is computed here: exactly in `leaked`, and as an upper
bound that also serves for many clients in `most_leaked`. From one view alone `view_leakage` estimates it, as
`croupier.audit.attacks.carries` does. `bench.leakage.residue_sums` (`croupier bench reveal`) prints the results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft
from scipy.special import ndtr

from croupier.audit.seen import counted
from croupier.core.coins import Coins
from croupier.core.intervals import Rate, over_runs
from croupier.core.update import Layout
from croupier.errors import RangeError
from croupier.release.counted_ones import Moduli, estimate_carry_bits, pairs_fit
from croupier.release.opened_sums import Floats, Ints

# Deviations beyond which a rounded normal has no mass that a double would show.
_REACH = 9.0


def counts_of(values: Ints, moduli: Moduli, integers: bool = True) -> Ints:
    """What a server is shown of values (clients, parameters): sums of residues, or these modulo each modulus."""
    many = np.array(moduli)
    ones: Ints = (values[:, :, None] % many).sum(0)
    return ones if integers else ones % many


def log_ratio(seen: Ints, first: Ints, second: Ints, moduli: Moduli, integers: bool = True) -> float:
    """The logarithm of how much likelier a view is under the first values of the clients than under the second.

    A view is a function of the values. So the result is 0 where both explain it, and infinite in favour of the one that
    does. Raises: RangeError when neither does.
    """
    fits = [bool(np.array_equal(seen, counts_of(values, moduli, integers))) for values in (first, second)]
    if not any(fits):
        raise RangeError("neither candidate explains the view")
    return 0.0 if all(fits) else math.inf if fits[0] else -math.inf


def distinguisher_success(first: Ints, second: Ints, moduli: Moduli, integers: bool = True) -> float:
    """How often the best guess between two equally likely inputs is right.

    Raises: RangeError when their sums differ.
    """
    if not np.array_equal(first.sum(0), second.sum(0)):
        raise RangeError("the two inputs have different sums: the sum itself tells them apart")
    pair = (first, second)
    ratios = [log_ratio(counts_of(truth, moduli, integers), *pair, moduli, integers) for truth in pair]
    rights = [0.5 if ratio == 0 else float((ratio > 0) == (at == 0)) for at, ratio in enumerate(ratios)]
    return float(np.mean(rights))


@dataclass(frozen=True)
class Inputs:
    """What one client may hold for a parameter: integers and their probabilities. Clients are independent."""

    values: Ints
    chances: Floats


def rounded_normal(deviation: float, top: int) -> Inputs:
    """A normal variable of mean 0 rounded to integers and clamped to -top and top."""
    reach = min(top, math.ceil(_REACH * deviation))
    values = np.arange(-reach, reach + 1)
    edges = ndtr((np.arange(-reach, reach) + 0.5) / deviation)
    return Inputs(values, np.diff(edges, prepend=0.0, append=1.0))


def entropy(chances: Floats) -> float:
    """The entropy of a distribution, in bits."""
    some = chances[chances > 1e-18]
    return float(-(some * np.log2(some)).sum())


def _gathered(places: Ints, chances: Floats) -> Floats:
    """The sum of the chances of each place."""
    return np.asarray(np.bincount(places.reshape(-1), chances.reshape(-1)), np.float64)


def joint_chances(inputs: Inputs, clients: int, moduli: Moduli) -> tuple[Ints, Floats]:
    """Every (sum, counts...) that clients can make, as rows, and its probability: client after client, exactly.

    For small cases: the rows are as many as there are views.
    """
    one = np.concatenate([inputs.values[:, None], inputs.values[:, None] % np.array(moduli)], 1)
    rows, chances = np.zeros((1, one.shape[1]), np.int64), np.asarray(np.ones(1))
    for _ in range(clients):
        every = (rows[:, None] + one[None]).reshape(-1, one.shape[1])
        rows, place = np.unique(every, axis=0, return_inverse=True)
        chances = _gathered(place, (chances[:, None] * inputs.chances))
    return rows, chances


def leaked(inputs: Inputs, clients: int, moduli: Moduli) -> float:
    """H(counts | sum) in bits a parameter, exactly."""
    rows, chances = joint_chances(inputs, clients, moduli)
    _, place = np.unique(rows[:, 0], return_inverse=True)
    return entropy(chances) - entropy(_gathered(place, chances))


def leaked_by_modulus(inputs: Inputs, clients: int, modulus: int) -> float:
    """H(carry | sum) in bits a parameter for one modulus, by a transform: exact but for the last digits of doubles.

    A value is its residue and a multiple of the modulus, and both add up over clients, so that one power of a
    transform in two dimensions gives their joint distribution.
    """
    multiple, rest = inputs.values // modulus, inputs.values % modulus
    spread = math.sqrt(float(inputs.chances @ inputs.values.astype(float) ** 2) * clients) / modulus
    # How many sums of all clients' multiples there is room for: all that are possible or, where these are too many,
    # those within `_REACH` deviations of the mean and as many more as there are clients; what lies beyond has no mass.
    # Division rounds down, by a half on average, so that the room lies around -clients / 2.
    wide = min(clients * int(np.ptp(multiple)) + 1, 2 * math.ceil(_REACH * spread + clients) + 1)
    lowest = clients * int(multiple.min()) if wide > clients * int(np.ptp(multiple)) else -(wide // 2) - clients // 2
    wide = fft.next_fast_len(wide, real=False)
    shape = (wide, fft.next_fast_len(clients * (modulus - 1) + 1, real=True))
    table = np.zeros(shape)
    np.add.at(table, (multiple % wide, rest), inputs.chances)
    both = fft.irfft2(fft.rfft2(table) ** clients, shape).clip(0)
    total = lowest + (np.arange(wide) - lowest) % wide
    sums = modulus * total[:, None] + np.arange(shape[1])
    by_sum = _gathered(sums - sums.min(), both)
    return max(0.0, entropy(both.reshape(-1)) - entropy(by_sum))


def most_leaked(inputs: Inputs, clients: int, moduli: Moduli) -> float:
    """An upper bound of H(counts | sum): the sum of H(carry | sum) over the moduli."""
    return sum(leaked_by_modulus(inputs, clients, modulus) for modulus in moduli)


def view_leakage(view: Mapping[str, Any], protocol: Mapping[str, Any], layout: Layout, coins: Coins) -> Rate:
    """At most how many bits a parameter a server's view tells beyond the sums; 0 where it holds no counts."""
    found = counted({"server": (view,)}, protocol, layout)
    if found is None:
        return Rate(0.0, 0.0, 0.0)
    return estimate_carry_bits(found.ones.numpy(), found.clients, found.moduli, coins)


def candidate_shrinkage(pairs: Ints, top: int, moduli: Moduli) -> Rate:
    """By what factor counts shrink the set of pairs that a sum of two leaves: its logarithm to base 2, with interval.

    `pairs` (2, samples) are what clients hold; candidates are all pairs of integers within -top and top.
    """
    return over_runs([math.log2(before / after) for before, after in _candidates_left(pairs, top, moduli)])


def _candidates_left(pairs: Ints, top: int, moduli: Moduli) -> list[tuple[int, int]]:
    found = []
    for one, two in pairs.T:
        first = np.arange(max(-top, one + two - top), min(top, one + two + top) + 1)
        fits = pairs_fit(first, one + two, counts_of(np.array([[one], [two]]), moduli)[0], moduli)
        found.append((len(first), int(fits.sum())))
    return found
