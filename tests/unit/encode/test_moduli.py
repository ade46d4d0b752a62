"""Moduli: exact optima against a frozen table and brute force, and sets that must be refused."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import pytest

from croupier.encode.moduli import Cost, Moduli, cheapest, largest, moduli, one_modulus, values_of
from croupier.errors import SpecError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "moduli.json").read_text("utf-8"))


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda c: f"n{c['clients']}r{c['digits']}")
def test_the_table(case: dict[str, int]) -> None:
    literal = moduli(case["clients"], case["digits"], "sum")
    ours = moduli(case["clients"], case["digits"])
    assert (literal.literal_bits, len(literal.values), literal.packed_bits) == (
        case["sum"],
        case["count"],
        case["packed"],
    )
    assert ours.bits == case["bits"]
    bound = values_of(case["clients"], 10 ** case["digits"] - 1)
    assert one_modulus(bound).packed_bits == case["binary"]
    assert ours.product >= bound


@pytest.mark.parametrize("case", VECTORS["sets"], ids=lambda c: f"n{c['clients']}r{c['digits']}")
def test_sets_written_out(case: dict[str, int | list[int]]) -> None:
    assert isinstance(case["moduli"], list)
    given = Moduli(tuple(case["moduli"]), int(case["bound"]))  # type: ignore[arg-type]
    assert given.literal_bits == case["sum"]
    assert moduli(int(case["clients"]), int(case["digits"])).bits == case["bits"]  # type: ignore[arg-type]


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda c: str(c["moduli"]))
def test_refused(case: dict[str, int | str | list[int]]) -> None:
    assert isinstance(case["moduli"], list)
    bound = values_of(int(case["clients"]), 10 ** int(case["digits"]) - 1)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=str(case["why"])):
        Moduli(tuple(case["moduli"]), bound)


def brute(bound: int, off: int) -> int:
    """The least cost of any set of coprime moduli, by trying every set up to 14."""
    best = bound
    for count in range(1, 5):
        for chosen in combinations(range(2, 15), count):
            if math.prod(chosen) >= bound and all(math.gcd(a, b) == 1 for a, b in combinations(chosen, 2)):
                best = min(best, sum(chosen) - off * count)
    return best


@pytest.mark.parametrize("bound", [3, 4, 7, 19, 55, 61, 109, 211, 397, 421])
def test_no_set_of_small_moduli_is_cheaper(bound: int) -> None:
    assert cheapest(bound).bits == brute(bound, 1)
    assert cheapest(bound, "sum").literal_bits == brute(bound, 0)


def test_ten_clients_with_five_digits_take_57_bits() -> None:
    found = moduli(clients=10, digits=5)
    assert found.bits == 57
    assert found.product >= 1_999_981
    # The paper's figure of 58 bits is the sum of the first seven primes, which cannot tell all these sums apart.
    with pytest.raises(SpecError, match="510510 < 1999981"):
        Moduli((2, 3, 5, 7, 11, 13, 17), found.bound)


def test_bad_input_is_named() -> None:
    with pytest.raises(SpecError, match="digits = 0"):
        moduli(10, 0)
    with pytest.raises(SpecError, match="clients = 0"):
        moduli(0, 3)


@pytest.mark.parametrize(("total", "product"), [(1, 1), (2, 2), (5, 6), (10, 30), (15, 105), (33, 5460), (41, 30_030)])
def test_no_moduli_of_a_sum_have_a_larger_product_than_landaus(total: int, product: int) -> None:
    assert largest(total) == product


@pytest.mark.parametrize("bound", [55, 397, 19_981, 1_999_981])
def test_the_largest_product_of_a_cost_reaches_a_bound_at_the_cheapest(bound: int) -> None:
    costs: tuple[Cost, Cost] = ("bits", "sum")
    for cost in costs:
        least = cheapest(bound, cost)
        price = least.bits if cost == "bits" else least.literal_bits
        assert largest(price, cost) == least.product >= bound > largest(price - 1, cost)
