"""Encrypted bits, their proofs, and the proof of a shuffle: what is honest passes, every change is refused."""

from __future__ import annotations

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.errors import IntegrityError
from croupier.mpc import curve, elgamal, shuffle_proof

COINS = Coins.from_seed(21)
KEYS = [elgamal.MixKey.make(COINS.child("key", number)) for number in range(2)]
KEY = np.concatenate([key.public for key in KEYS])
BITS = (np.arange(12) % 3 == 0).astype(np.uint8)
# Published multiples of the base point of secp256k1.
VECTORS = {
    1: "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798",
    2: "02c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5",
    3: "02f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9",
}


def joint() -> curve.Points:
    found = curve.total(KEY)
    assert found is not None
    return found


def sent() -> tuple[elgamal.Bytes, elgamal.Bytes]:
    return elgamal.encrypt(BITS, joint(), b"here", COINS.child("bits"))


def mixed() -> tuple[elgamal.Ciphertexts, elgamal.Ciphertexts, shuffle_proof.Order, list[int]]:
    before = elgamal.check_bits(*sent(), joint(), b"here", "c00", COINS.child("check"))
    order = COINS.child("order").secure().permutation(len(BITS))
    fresh = curve.drawn(COINS.child("fresh"), len(BITS))
    return before, elgamal.refreshed(before.at(order), joint(), fresh), order, fresh


@pytest.mark.parametrize("number", VECTORS)
def test_multiples_of_the_base_point_are_the_published_ones(number: int) -> None:
    assert curve.encode(curve.base([number])).tobytes().hex() == VECTORS[number]


@pytest.mark.parametrize("many", [3, 500])
def test_a_weighted_sum_is_the_sum_of_multiples(many: int) -> None:
    logs, weights = curve.drawn(COINS.child("logs"), many), curve.drawn(COINS.child("weights"), many)
    true = curve.base([sum(a * b for a, b in zip(logs, weights, strict=True))])
    found = curve.weighted(curve.base(logs), weights)
    assert found is not None
    assert np.array_equal(found, true)
    rest = np.concatenate([curve.base(logs), true])
    assert curve.weighted(rest, [*weights, -1]) is None


@pytest.mark.parametrize("body", [bytes(33), b"\x02" + b"\xff" * 32, b"\x04" + bytes(32)])
def test_what_is_no_point_is_refused(body: bytes) -> None:
    with pytest.raises(IntegrityError, match="c00 sent 1 points"):
        curve.decode(np.frombuffer(body, np.uint8), "c00")


def test_bits_are_bound_to_who_sent_them() -> None:
    with pytest.raises(IntegrityError, match="c01 does not prove"):
        elgamal.check_bits(*sent(), joint(), b"elsewhere", "c01", COINS.child("check"))


def test_bits_in_each_others_places_are_refused() -> None:
    points, scalars = sent()
    with pytest.raises(IntegrityError, match="does not prove"):
        elgamal.check_bits(points[::-1].copy(), scalars[::-1].copy(), joint(), b"here", "c00", COINS.child("check"))


def test_a_two_is_no_bit() -> None:
    points, scalars = sent()
    more = curve.plus(curve.decode(points[:1, 33:66], "c00"), curve.base([1]))
    points[:1, 33:66] = curve.encode(more)
    with pytest.raises(IntegrityError, match="does not prove"):
        elgamal.check_bits(points, scalars, joint(), b"here", "c00", COINS.child("check"))


def test_a_server_knows_its_key() -> None:
    proof = elgamal.prove_key(KEYS[0], b"here", COINS.child("proof"))
    elgamal.check_key(KEYS[0].public, b"here", proof, "mix1")
    for key, context in ((KEYS[1].public, b"here"), (KEYS[0].public, b"elsewhere")):
        with pytest.raises(IntegrityError, match="mix1"):
            elgamal.check_key(key, context, proof, "mix1")


def test_sums_are_kept_or_the_server_is_named() -> None:
    before, after, _, fresh = mixed()
    blocks = [np.arange(len(BITS)).reshape(1, -1)]
    proof = elgamal.prove_sums(before, after, blocks, joint(), b"here", fresh, COINS.child("sum"))
    elgamal.check_sums(before, after, blocks, joint(), b"here", proof, "mix1")
    changed = elgamal.Ciphertexts(after.r, np.concatenate([curve.plus(after.c[:1], curve.base([1])), after.c[1:]]))
    again = elgamal.prove_sums(before, changed, blocks, joint(), b"here", fresh, COINS.child("sum"))
    for one in (proof, again):
        with pytest.raises(IntegrityError, match="mix1 does not prove that it kept"):
            elgamal.check_sums(before, changed, blocks, joint(), b"here", one, "mix1")


def test_a_tag_that_keeps_the_sum_fails_the_proof_of_shuffle() -> None:
    before, after, order, fresh = mixed()
    tags = curve.plus(after.c[:2], curve.base([1000, -1000]))
    tagged = elgamal.Ciphertexts(after.r, np.concatenate([tags, after.c[2:]]))
    for out, good in ((after, True), (tagged, False)):
        block = shuffle_proof.ShuffledBlock(before, out)
        proof = shuffle_proof.prove(block, joint(), b"here", order, fresh, COINS.child("shuffle"))
        if good:
            shuffle_proof.check([block], joint(), [b"here"], [proof], "mix1", COINS.child("check"))
            with pytest.raises(IntegrityError, match="mix1"):
                shuffle_proof.check([block], joint(), [b"elsewhere"], [proof], "mix1", COINS.child("check"))
            continue
        with pytest.raises(IntegrityError, match="mix1 does not prove that it only moved"):
            shuffle_proof.check([block], joint(), [b"here"], [proof], "mix1", COINS.child("check"))


def test_a_copy_in_the_place_of_another_fails_the_proof_of_shuffle() -> None:
    before, _, order, fresh = mixed()
    twice = order.copy()
    twice[0] = twice[1]
    block = shuffle_proof.ShuffledBlock(before, elgamal.refreshed(before.at(twice), joint(), fresh))
    proof = shuffle_proof.prove(block, joint(), b"here", order, fresh, COINS.child("shuffle"))
    with pytest.raises(IntegrityError, match="mix1"):
        shuffle_proof.check([block], joint(), [b"here"], [proof], "mix1", COINS.child("check"))


def test_bits_come_out_in_the_order_of_the_mix_and_a_wrong_part_is_named() -> None:
    _, after, order, _ = mixed()
    parts = []
    for key in KEYS:
        part, proof = elgamal.open_part(after, key, b"here", COINS.child("open"))
        elgamal.check_part(after, part, key.public, b"here", proof, "mix1")
        with pytest.raises(IntegrityError, match="mix1 does not prove that it opened"):
            elgamal.check_part(after, part[::-1].copy(), key.public, b"here", proof, "mix1")
        parts.append(part)
    bits, wrong = elgamal.opened(after.c, parts)
    assert np.array_equal(bits, BITS[order])
    assert not wrong.any()
    assert elgamal.opened(after.c, parts[:1])[1].all()
