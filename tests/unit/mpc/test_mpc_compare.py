"""Shared bits, products and comparisons: what two parties compute on shares is what the plain numbers give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.two import play

from croupier.core.coins import Coins
from croupier.errors import ProtocolError, RangeError, SpecError
from croupier.mpc import boolean, compare, dealt_shares, products, signs
from croupier.mpc.dealt_shares import DealtShare
from croupier.mpc.ring import Z32, Z64, Ring
from croupier_lab.bench.speed.two_server_gates import seated

RINGS = (Z32, Z64)
SOME = Coins.from_seed(7)


def extremes(ring: Ring) -> list[int]:
    """Numbers where something ends: the range, 0, and every power of two."""
    half = 1 << (ring.bits - 1)
    powers = [1 << place for place in range(ring.bits - 1)]
    return [0, 1, -1, half - 1, -half, -half + 1, *powers, *(-p for p in powers), *(p - 1 for p in powers)]


def compared(numbers: np.ndarray, ring: Ring, zero: bool, seed: int = 1) -> tuple[np.ndarray, Any]:
    """The opened planes, and how they came about."""
    shares = ring.split(numbers, Coins.from_seed(seed).child("split"))
    dealt = compare.deal(len(numbers), Coins.from_seed(seed), ring, zero)
    played = play(
        lambda me, peer: compare.flow(me, peer, "x", shares[me], dealt[me], ring, zero),
        compare.schemas("x", len(numbers), ring, zero),
    )
    return boolean.unpacked(played.got[0] ^ played.got[1], len(numbers)), played


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("zero", [False, True])
def test_the_ends_of_the_range_compare(ring: Ring, zero: bool) -> None:
    numbers = np.array(extremes(ring))
    planes, played = compared(numbers, ring, zero)
    assert np.array_equal(planes[0], numbers < 0)
    assert len(planes) == 1 + zero
    if zero:
        assert np.array_equal(planes[1], numbers == 0)
    # One round opens the masked number; the dealt pairs leave log2 of half the places.
    assert played.rounds == {32: 5, 64: 6}[ring.bits]


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=150), st.integers(0, 999), st.booleans())
@examples(40)
def test_numbers_compare(numbers: list[int], seed: int, zero: bool) -> None:
    planes, _ = compared(np.array(numbers), Z32, zero, seed)
    assert planes[0].tolist() == [number < 0 for number in numbers]
    if zero:
        assert planes[1].tolist() == [number == 0 for number in numbers]


def test_every_small_difference_of_number_and_mask_compares() -> None:
    """One number against many masks: the borrow runs through every place."""
    for number in (0, 1, -1, (1 << 31) - 1, -(1 << 31)):
        planes, _ = compared(np.full(5000, number), Z32, True)
        assert set(planes[0].tolist()) == {int(number < 0)}
        assert set(planes[1].tolist()) == {int(number == 0)}


@pytest.mark.parametrize("sealed", [False, True])
def test_the_runtime_carries_a_comparison(sealed: bool) -> None:
    numbers = np.array([5, -5, 0, 1 << 30, -(1 << 31)] * 30)
    shares, dealt = Z32.split(numbers, SOME), compare.deal(len(numbers), SOME.child("deal"))
    (one, two), result = seated(
        lambda me, peer: compare.flow(me, peer, "x", shares[me], dealt[me]),
        compare.schemas("x", len(numbers)), SOME.child("links") if sealed else None,
    )  # fmt: skip
    assert np.array_equal(boolean.unpacked(one ^ two, len(numbers))[0], numbers < 0)
    body = 4 * len(numbers) + 41 * -(-len(numbers) // 8)
    assert set(result.traffic.sent.values()) == {body + 5 * 148}


def test_a_comparison_opens_uniform_numbers_and_bits() -> None:
    """Whatever the number is: the same checks pass for 0 and for the largest, and fail for an unmasked number."""
    count = 64 * 1024
    for number in (0, (1 << 31) - 1):
        _, played = compared(np.full(count, number), Z32, True)
        mine, yours = played.sent
        for kind, body in mine.items():
            for name, one in body.items():
                two = yours[kind][name]
                assert all(_even(some) for some in (one, two, one + two if name == "value" else one ^ two)), kind
    assert not _even(np.full(count, 5, np.int32))
    assert not _even(np.arange(count, dtype=np.int32))


def _even(values: np.ndarray) -> bool:
    """Whether bytes are equally frequent: chi-square of 255 degrees of freedom below a bound passed once in 10^9."""
    bytes_ = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    for column in bytes_.T if values.dtype == np.int32 else [bytes_.reshape(-1)]:
        counts = np.bincount(column, minlength=256)
        expected = column.size / 256
        if expected < 5 or ((counts - expected) ** 2 / expected).sum() > 420:
            return False
    return True


def test_two_runs_mask_one_number_differently() -> None:
    numbers = np.arange(100)
    first, second = (compared(numbers, Z32, False, seed)[1].sent[0]["x.c"]["value"] for seed in (1, 2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("ring", RINGS)
def test_bits_become_numbers(ring: Ring) -> None:
    coins = Coins.from_seed(5)
    bits = coins.child("bits").secure().below(2, 130)
    first = coins.child("half").secure().words(3)
    shares, dealt = (first, first ^ boolean.packed(bits)), products.deal_numbers(130, coins, ring)
    played = play(
        lambda me, peer: products.numbers(me, peer, "n", shares[me], 130, dealt[me], ring),
        products.numbers_schemas("n", 130),
    )
    assert np.array_equal(ring.signed(played.got[0] + played.got[1]), bits)
    assert not np.array_equal(played.got[0], bits.astype(ring.dtype))


@pytest.mark.parametrize("ties", ["zero", "previous"])
@pytest.mark.parametrize("ring", RINGS)
def test_signs(ring: Ring, ties: signs.Ties) -> None:
    numbers = np.array([n for n in extremes(ring) if n != -(1 << (ring.bits - 1))] + 40 * [0, 3, -3])
    before = None if ties == "zero" else (1 - 2 * SOME.secure().below(2, len(numbers))).astype(np.int8)
    shares, dealt = ring.split(numbers, SOME), signs.deal(len(numbers), SOME.child("deal"), ring, ties)
    listed = signs.schemas("g", len(numbers), ring, ties)
    (one, two), _ = seated(
        lambda me, peer: signs.flow(me, peer, "g", shares[me], dealt[me], ring, before), listed, None
    )
    assert np.array_equal(one, two)
    assert np.array_equal(one, signs.plain(numbers, before))
    assert one.dtype == np.int8
    assert 0 in one.tolist() if before is None else set(one.tolist()) == {-1, 1}
    assert len(listed) == {32: 6, 64: 7}[ring.bits]


def test_what_is_opened_of_a_tie_is_the_previous_sign_alone() -> None:
    """One bit a number is opened, and 0 gives the bit that its neighbours on the previous side give."""
    numbers, before = np.array([0, 1, 0, -1]), np.array([1, 1, -1, -1], np.int8)
    shares, dealt = Z32.split(numbers, SOME), signs.deal(4, SOME.child("deal"), Z32, "previous")
    played = play(lambda me, peer: signs.flow(me, peer, "g", shares[me], dealt[me], Z32, before))
    mine, yours = (sent["g.open"]["bits"] for sent in played.sent)
    assert mine.shape == (1, 1)
    assert int(mine[0, 0] ^ yours[0, 0]) & 15 == 0


@pytest.mark.parametrize("wrong", [np.array([1, 0], np.int8), np.array([1], np.int8), np.array([1, 2], np.int8)])
def test_previous_signs_are_signs(wrong: np.ndarray) -> None:
    flow = signs.flow(0, "s1", "g", np.zeros(2, np.int64), signs.deal(2, SOME, ties="previous")[0], previous=wrong)
    with pytest.raises(SpecError, match="give 2 signs, each -1 or \\+1"):
        next(flow)


GATES: list[tuple[Callable[[], tuple[DealtShare, DealtShare]], int]] = [
    (lambda: products.deal_numbers(9, SOME), products.fitted(9)),
    (lambda: compare.deal(70, SOME), compare.fitted(70)),
    (lambda: compare.deal(70, SOME, Z64, True), compare.fitted(70, Z64, True)),
    (lambda: signs.deal(70, SOME), signs.fitted(70)),
]  # fmt: skip


@pytest.mark.parametrize(("deal", "size"), GATES)
def test_a_hand_is_as_long_as_it_says_and_travels(deal: Callable[[], tuple[DealtShare, DealtShare]], size: int) -> None:
    for side, material in enumerate(deal()):
        schema, body = dealt_shares.schema(side, size), material.body()
        schema.check(body)
        assert len(schema.pack(body)) == 32 + side * size
        there = DealtShare.received(side, schema.unpack(schema.pack(body)))
        there.open(side, size)
        assert repr(there) == f"DealtShare({side}, spent)"


def test_a_hand_is_used_once() -> None:
    """A hand empties itself when opened or sent: a second gate, or a second try of the same one, finds nothing."""
    dealt = compare.deal(3, SOME)
    shares = np.zeros(3, np.uint32)
    next(compare.flow(0, "s1", "x", shares, dealt[0]))
    with pytest.raises(ProtocolError, match="used before"):
        next(compare.flow(0, "s1", "y", shares, dealt[0]))
    with pytest.raises(ProtocolError, match="used before"):
        dealt[0].body()
    dealt[1].body()
    with pytest.raises(ProtocolError, match="used before"):
        dealt[1].open(1, compare.fitted(3))


def test_a_hand_for_another_party_or_size_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ProtocolError, match="dealt for party 1"):
        next(compare.flow(0, "s1", "x", np.zeros(3, np.uint32), compare.deal(3, SOME)[1]))
    with pytest.raises(ProtocolError, match="for a gate that needs 1168; deal"):
        next(compare.flow(1, "s0", "x", np.zeros(80, np.uint32), compare.deal(3, SOME)[1]))


def test_bad_shares_rings_and_prefixes_are_named() -> None:
    with pytest.raises(RangeError, match="float64"):
        next(compare.flow(0, "s1", "x", np.zeros(3), compare.deal(3, SOME)[0]))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="bits = 16"):
        Ring(16)
    with pytest.raises(SpecError, match="prefix = 'a very long name'"):
        compare.schemas("a very long name", 3)


def test_gates_use_no_other_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a generator that is no secret")

    for name in ("random", "default_rng", "randint", "bytes", "Generator", "normal"):
        monkeypatch.setattr(np.random, name, refuse)
    for name in ("rand", "randn", "randint", "randperm", "manual_seed", "Generator"):
        monkeypatch.setattr(torch, name, refuse)
    compared(np.arange(-5, 5), Z32, True)
    test_bits_become_numbers(Z64)
    test_signs(Z32, "previous")
