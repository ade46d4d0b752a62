"""Signed sums and products in two fields: compiled loops equal plain whole numbers, at every edge of size and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from croupier.core.coins import Coins
from croupier.kernels import field as kernel
from croupier.kernels.shares import P

# Compiled loops begin with 1,024 numbers.
SHAPES = [(1, 1), (1, 1023), (1, 1024), (1, 1025), (3, 341), (3, 342), (8, 128), (7, 147), (1031, 1), (33, 65)]
BOTH = [np.uint32, np.uint64]
MASKS = (1 << 128) - 1


def modulus(dtype: Any) -> int:
    """What numbers of a type are taken modulo."""
    return 1 << 32 if dtype == np.uint32 else P


def drawn(shape: tuple[int, int], dtype: Any, seed: int = 1) -> Any:
    """Numbers with the smallest and the largest among them."""
    values = Coins.from_seed(seed).secure().below(modulus(dtype), shape[0] * shape[1]).astype(dtype)
    values[-1], values[0] = 0, modulus(dtype) - 1
    return values.reshape(shape)


def bits(shape: tuple[int, int], seed: int = 2) -> Any:
    """Packed signs, their spare bits set: nothing may read these."""
    return np.frombuffer(Coins.from_seed(seed).secure().bytes(shape[0] * -(-shape[1] // 8)), np.uint8).reshape(
        shape[0], -1
    )


def one_by_one(numbers: Any, signs: Any, weights: Any) -> tuple[list[int], list[int], list[int]]:
    """Row sums, weighted column sums and weighted sums of signs, by nothing but Python."""
    whole = [
        [-int(n) if (row[j // 8] >> (j % 8)) & 1 else int(n) for j, n in enumerate(line)]
        for line, row in zip(numbers, signs, strict=True)
    ]
    turned = [[-1 if (row[j // 8] >> (j % 8)) & 1 else 1 for j in range(numbers.shape[1])] for row in signs]
    top = modulus(numbers.dtype)
    columns = [
        sum(int(w) * line[j] for w, line in zip(weights, whole, strict=True)) % top for j in range(len(whole[0]))
    ]
    votes = [sum(int(w) * t[j] for w, t in zip(weights, turned, strict=True)) for j in range(len(whole[0]))]
    return [sum(line) % top for line in whole], columns, votes


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_signed_sums(shape: tuple[int, int], dtype: Any) -> None:
    numbers, signs = drawn(shape, dtype), bits(shape)
    weights = Coins.from_seed(3).secure().below((1 << 20) + 1, shape[0])
    weights[0] = 1 << 20
    rows, columns, votes = one_by_one(numbers, signs, weights)
    into = np.full(shape[0], modulus(dtype) - 1, dtype)
    kernel.row_sums(numbers, signs, into)
    assert into.tolist() == [(row - 1) % modulus(dtype) for row in rows]
    assert kernel.row_sums_plain(numbers, signs).tolist() == rows
    for found in (kernel.column_sums(numbers, signs, weights), kernel.column_sums_plain(numbers, signs, weights)):
        assert found[0].tolist() == columns
        assert found[1].tolist() == votes
        assert found[0].dtype == dtype


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("sign", [0, 255])
@pytest.mark.parametrize("shape", [(2, 16), (2, 1024)], ids=str)
def test_the_heaviest_sum_that_is_allowed(shape: tuple[int, int], dtype: Any, sign: int) -> None:
    numbers = np.full(shape, modulus(dtype) - 1, dtype)
    signs = np.full((2, shape[1] // 8), sign, np.uint8)
    weights = np.array([(1 << 31) - 1 - (1 << 20), 1 << 20])
    found, votes = kernel.column_sums(numbers, signs, weights)
    total = int(weights.sum())
    turned = -total if sign else total
    assert set(votes.tolist()) == {turned}
    assert set(found.tolist()) == {turned * (modulus(dtype) - 1) % modulus(dtype)}
    rows = np.zeros(2, dtype)
    kernel.row_sums(numbers, signs, rows)
    assert set(rows.tolist()) == {(-1 if sign else 1) * shape[1] * (modulus(dtype) - 1) % modulus(dtype)}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inner_products(shape: tuple[int, int]) -> None:
    numbers, signs = drawn(shape, np.uint64), bits(shape)
    keys = drawn((1, shape[1]), np.uint64, 5).reshape(-1)
    numbers[0, 0] = keys[0] = P - 1
    into = drawn((1, shape[0]), np.uint64, 6).reshape(-1)
    want = [
        (int(start) + sum(k * n for k, n in zip(keys.tolist(), line, strict=True))) % P
        for start, line in zip(
            into, kernel.bits_of(signs, shape[1]).astype(object) * -2 * numbers + numbers.astype(object), strict=True
        )
    ]
    kernel.dots(numbers, signs, keys, into)
    assert into.tolist() == want


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_missing_to_a_bit(shape: tuple[int, int], dtype: Any) -> None:
    minus, ones = drawn(shape, dtype), kernel.packed(kernel.bits_of(bits(shape), shape[1]))
    value, top = (1 if dtype == np.uint32 else P - 1), modulus(dtype)
    found = kernel.spread(ones, value, minus)
    want = kernel.bits_of(ones, shape[1]).astype(object) * value
    assert ((found.astype(object) + minus.astype(object)) % top == want % top).all()
    assert (found < top).all()


EDGE = st.sampled_from([0, 1, 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, P - 2, P - 1])


@given(st.lists(st.tuples(EDGE | st.integers(0, P - 1), EDGE | st.integers(0, P - 1)), min_size=1, max_size=20))
@examples(60)
def test_products_modulo_a_prime(pairs: list[tuple[int, int]]) -> None:
    one, two = np.array(pairs, np.uint64).T
    want = [a * b % P for a, b in pairs]
    assert kernel.products(one, two).tolist() == want
    many = np.tile(one, 1100 // len(one) + 1), np.tile(two, 1100 // len(two) + 1)
    assert kernel.products(*many)[: len(want)].tolist() == want, "compiled"


def words(numbers: list[int]) -> Any:
    """Elements of GF(2^128) as pairs of words, low first."""
    return np.array([[n & ((1 << 64) - 1), n >> 64] for n in numbers], np.uint64)


def whole(elements: Any) -> list[int]:
    """The other way."""
    return [int(low) | int(high) << 64 for low, high in elements]


ELEMENT = st.sampled_from([0, 1, 2, 1 << 63, 1 << 64, 1 << 127, MASKS]) | st.integers(0, MASKS)


def times(one: int, two: int) -> int:
    """A product of polynomials, divided afterwards."""
    product = 0
    for place in range(128):
        product ^= one << place if two >> place & 1 else 0
    for place in range(255, 127, -1):
        if product >> place & 1:
            product ^= (1 << 128 | 0x87) << (place - 128)
    return product


@given(ELEMENT, ELEMENT, ELEMENT)
@examples(80)
def test_a_field_of_2_to_the_128(a: int, b: int, c: int) -> None:
    def mul(one: int, two: int) -> int:
        (found,) = whole(kernel.carryless(words([one]), words([two])))
        assert found == kernel.carryless_plain(one, two) == times(one, two)
        return found

    assert mul(a, 1) == a
    assert mul(a, 0) == 0
    assert mul(a, b) == mul(b, a)
    assert mul(mul(a, b), c) == mul(a, mul(b, c))
    assert mul(a, b ^ c) == mul(a, b) ^ mul(a, c)


def test_known_products() -> None:
    # x^127 times x is x^128, which is x^7 + x^2 + x + 1; and the square of x^64.
    assert whole(kernel.carryless(words([1 << 127, 1 << 64]), words([2, 1 << 64]))) == [0x87, 0x87]
    # The order of the group of units divides 2^128 - 1, so a^(2^128) = a: 128 squarings.
    start = power = words([0x123456789ABCDEF0FEDCBA9876543210, 3])
    for _ in range(128):
        power = kernel.carryless(power, power)
    assert whole(power) == whole(start)


def test_bits_are_packed_lowest_first_and_spare_ones_are_0() -> None:
    assert kernel.packed(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 1]])).tolist() == [[1, 1]]
    assert kernel.bits_of(np.array([[1, 0xFF]], np.uint8), 9).tolist() == [[1, 0, 0, 0, 0, 0, 0, 0, 1]]
