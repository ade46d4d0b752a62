"""Moduli for residues: the cheapest set that keeps every possible sum apart, and a check of sets that are given.

Residues in unary cost a bit for each unit of a modulus, so that their sum is to be least while their product is large
enough: the question behind Landau's function. Splitting a modulus into coprime factors only lowers the cost, so powers
of distinct primes are best, and the largest product for each cost follows by dynamic programming over primes.

`croupier.moduli` and `croupier explain rns --table` show them; `encode.residues` takes the cheapest unless a
description names its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

from croupier.errors import SpecError

# What a modulus m costs: the m - 1 bits that a canonical residue takes in unary, or the m bits that the paper spends.
Cost = Literal["bits", "sum"]


@dataclass(frozen=True)
class Moduli:
    """Pairwise coprime moduli whose product is at least `bound`, with what they cost. Raises: SpecError."""

    values: tuple[int, ...]
    bound: int

    def __post_init__(self) -> None:
        if any(m < 2 for m in self.values) or not self.values:
            raise SpecError(f"moduli = {list(self.values)}: each must be 2 or more, and one is needed at least")
        for one, two in combinations(self.values, 2):
            if (shared := math.gcd(one, two)) > 1:
                raise SpecError(
                    f"moduli = {list(self.values)}: {one} and {two} share the factor {shared}; use coprime ones"
                )
        if self.product < self.bound:
            raise SpecError(
                f"moduli = {list(self.values)}: their product is less than the number of values that a sum can take "
                f"({self.product} < {self.bound}), so that sums would be confused; use croupier.moduli(...)"
            )

    @property
    def product(self) -> int:
        """How many sums can be told apart."""
        return math.prod(self.values)

    @property
    def bits(self) -> int:
        """Bits a parameter takes in unary, one for each value of a residue but 0."""
        return sum(self.values) - len(self.values)

    @property
    def literal_bits(self) -> int:
        """Bits a parameter takes as the paper prints it, one for each value of a residue."""
        return sum(self.values)

    @property
    def packed_bits(self) -> int:
        """Bits a parameter takes when each residue is a binary number."""
        return sum((m - 1).bit_length() for m in self.values)


def values_of(clients: int, top: int) -> int:
    """How many values a sum of that many integers within -top and top can take. Raises: SpecError."""
    if clients < 1 or top < 1:
        raise SpecError(f"clients = {clients}, largest value = {top}: both must be 1 or more")
    return 2 * clients * top + 1


def moduli(clients: int, digits: int, cost: Cost = "bits") -> Moduli:
    """The cheapest moduli for sums of that many clients' values with that many decimal digits.

    clients: the most that are ever summed.
    digits: decimal digits of a value, 1 to 30.
    cost: what is least: see `Cost`.

    Lossless for every input in range. Raises: SpecError when clients or digits are out of range.
    """
    for name, value in (("clients", clients), ("digits", digits)):
        if not isinstance(value, int) or value < 1:
            raise SpecError(f"{name} = {value!r}: a whole number of 1 or more is wanted")
    if digits > 30:
        raise SpecError(f"digits = {digits}: 1 to 30 decimal digits have moduli here, and an encoder takes 9 at most")
    return cheapest(values_of(clients, 10**digits - 1), cost)


def one_modulus(bound: int) -> Moduli:
    """A single power of two, the modulus of `encode.fixed`: for comparison with what residues cost."""
    return Moduli((1 << max(1, (bound - 1).bit_length()),), bound)


@lru_cache(maxsize=256)
def cheapest(bound: int, cost: Cost = "bits") -> Moduli:
    """The set of least cost whose product is at least `bound`; among those of one cost, the largest product."""
    budget = 8
    while True:
        for product, chosen in _largest(budget, cost):
            if product >= bound:
                return Moduli(tuple(sorted(chosen)), bound)
        budget *= 2


def largest(total: int, cost: Cost = "sum") -> int:
    """How many sums moduli of that cost can tell apart at most: no set of them has a larger product."""
    return _largest(total, cost)[total][0]


@lru_cache(maxsize=32)
def _largest(budget: int, cost: Cost) -> list[tuple[int, tuple[int, ...]]]:
    """For each cost up to the budget, the largest product of coprime moduli that cost no more, and the moduli."""
    best: list[tuple[int, tuple[int, ...]]] = [(1, ()) for _ in range(budget + 1)]
    off = 1 if cost == "bits" else 0
    for prime in _primes(budget + off):
        after = list(best)
        power = prime
        while power - off <= budget:
            price = power - off
            for total in range(price, budget + 1):
                product, chosen = best[total - price]
                if product * power > after[total][0]:
                    after[total] = (product * power, (*chosen, power))
            power *= prime
        best = after
    return best


def _primes(last: int) -> list[int]:
    return [n for n in range(2, last + 1) if all(n % d for d in range(2, math.isqrt(n) + 1))]
