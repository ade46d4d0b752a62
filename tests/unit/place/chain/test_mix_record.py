"""What binds each proof of a mix: every other key, round, server, client, block, coin or message makes it worthless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import CLIENTS, LAYOUT

from croupier.core.coins import Coins
from croupier.core.flow import Given
from croupier.errors import IntegrityError, ProtocolError
from croupier.mpc import curve, elgamal
from croupier.mpc.elgamal import Ciphertexts, MixKey
from croupier.mpc.occasion import Occasion
from croupier.place.chain.bit_table import BitTable
from croupier.place.chain.mix_record import MixKeys, MixRecord, OwnStep, key_context
from croupier.place.chain.table import MixTable

COINS, NAMES, WHO = Coins.from_seed(5), ("mix1", "mix2"), CLIENTS[:2]
# Three of the toy's numbers are enough: two blocks are needed to exchange them.
SMALL = replace(LAYOUT, slices=(replace(LAYOUT.slices[1], shape=(2,)),))
GIVEN = Given("mix1", bytes(16), 3, 0, CLIENTS, 2, SMALL)
SECRETS = {name: MixKey.make(COINS.child("key", name)) for name in NAMES}
KEYS = MixKeys(Occasion.of(GIVEN), {name: key.public for name, key in SECRETS.items()})
TABLE = BitTable(MixTable(PIPELINES["bits, chain that proves"], CLIENTS, SMALL))
BITS = np.tile((np.arange(TABLE.length) % 2).astype(np.uint8), 2)
WHY = b"coin"


@cache
def inputs() -> Ciphertexts:
    rand = curve.drawn(COINS.child("rand"), len(BITS))
    c = curve.plus(curve.multiples(KEYS.joint, rand), curve.base([1]).repeat(len(BITS), 0))
    zeros = curve.multiples(KEYS.joint, rand)
    return Ciphertexts(curve.base(rand), np.where(BITS.astype(bool)[:, None], c, zeros))


def fresh_record(keys: MixKeys = KEYS) -> MixRecord:
    return MixRecord(TABLE, keys, WHO, inputs())


@cache
def honest() -> SimpleNamespace:
    """One server's step, with everything that it says."""
    record = fresh_record()
    order = TABLE.order(WHO, COINS.child("order").export())
    own = OwnStep(order, curve.drawn(COINS.child("fresh"), len(BITS)))
    hop = record.mix("mix1", own, COINS.child("sums"))
    proof = record.prove("mix1", own, [0, 1], WHY, COINS.child("prove"))
    return SimpleNamespace(record=record, own=own, hop=hop, proof=proof)


def test_what_is_honest_passes_and_bits_come_out_in_the_order() -> None:
    made, watcher = honest(), fresh_record()
    watcher.check_mix("mix1", made.hop)
    assert watcher.seen == made.record.seen
    watcher.check_proofs("mix1", [0, 1], WHY, made.proof, COINS.child("check"))
    parts = []
    for name, key in SECRETS.items():
        opened, proof = watcher.open(name, key, COINS.child("open", name))
        watcher.check_open(name, {"parts": opened, "proof": proof})
        parts.append(curve.decode(opened.numpy().reshape(-1, curve.POINT), name))
    bits, wrong = elgamal.opened(watcher.steps[-1].c, parts)
    assert not wrong.any()
    assert np.array_equal(bits, BITS[made.own.order])


def other_round() -> MixRecord:
    return fresh_record(MixKeys(Occasion.of(replace(GIVEN, round=4)), KEYS.keys))


def other_keys() -> MixRecord:
    return fresh_record(MixKeys(KEYS.occasion, dict(reversed([*KEYS.keys.items()]))))


def other_inputs() -> MixRecord:
    return MixRecord(TABLE, KEYS, WHO, inputs().at(np.roll(np.arange(len(BITS)), 1)))


def after_another() -> MixRecord:
    """A record in which another server has mixed already."""
    record = fresh_record()
    record.mix("mix1", honest().own, COINS.child("sums again"))
    return record


@pytest.mark.parametrize("record", [other_round, other_keys, other_inputs, after_another])
def test_a_proof_of_sums_is_worthless_elsewhere(record: Callable[[], MixRecord]) -> None:
    with pytest.raises(IntegrityError, match="mix1 does not prove that it kept"):
        record().check_mix("mix1", honest().hop)


def test_a_proof_of_sums_is_worthless_for_another_server() -> None:
    with pytest.raises(IntegrityError, match="mix2 does not prove that it kept"):
        fresh_record().check_mix("mix2", honest().hop)


@pytest.mark.parametrize(("slots", "why", "said"), [
    ([1, 0], WHY, "blocks exchanged"), ([0, 1], b"other", "another coin"), ([0, 0], WHY, "one block twice"),
])  # fmt: skip
def test_a_proof_of_a_shuffle_is_worthless_for_other_blocks_and_coins(slots: list[int], why: bytes, said: str) -> None:
    with pytest.raises(IntegrityError, match="mix1 does not prove that it only moved"):
        honest().record.check_proofs("mix1", slots, why, honest().proof, COINS.child("check"))


def test_a_proof_of_a_shuffle_is_worthless_in_another_round_and_after_another_step() -> None:
    watcher = other_round()
    watcher.steps = honest().record.steps
    later = after_another()
    later.steps = honest().record.steps
    for record in (watcher, later):
        with pytest.raises(IntegrityError, match="mix1 does not prove that it only moved"):
            record.check_proofs("mix1", [0, 1], WHY, honest().proof, COINS.child("check"))


def test_a_proof_of_one_server_is_worthless_for_the_next() -> None:
    record = fresh_record()
    record.check_mix("mix1", honest().hop)
    record.mix("mix2", honest().own, COINS.child("second"))
    with pytest.raises(IntegrityError, match="mix2 does not prove that it only moved"):
        record.check_proofs("mix2", [0, 1], WHY, honest().proof, COINS.child("check"))


@pytest.mark.parametrize("name", ["rows", "rest"])
def test_proofs_of_zeros_and_of_no_points_are_refused(name: str) -> None:
    body = {**honest().proof, name: torch.zeros_like(honest().proof[name])}
    with pytest.raises(IntegrityError, match=r"mix1 sent \d+ points that are none of the group"):
        honest().record.check_proofs("mix1", [0, 1], WHY, body, COINS.child("check"))


def test_scalars_that_are_not_below_the_order_are_refused() -> None:
    """Another spelling of the same scalar would be another proof of the same thing."""
    rest = honest().proof["rest"].clone()
    rest[0, 0, -curve.SCALAR :] = 255
    with pytest.raises(IntegrityError, match="mix1 sent a scalar that is not below the order"):
        honest().record.check_proofs("mix1", [0, 1], WHY, {**honest().proof, "rest": rest}, COINS.child("check"))


def hop_with(**more: Any) -> dict[str, Any]:
    return {**honest().hop, **more}


def test_a_zero_proof_the_point_at_infinity_copies_and_strangers_are_refused() -> None:
    zero = torch.zeros(elgamal.PROOF, dtype=torch.uint8)
    with pytest.raises(IntegrityError, match="mix1 does not prove that it kept"):
        fresh_record().check_mix("mix1", hop_with(proof=zero))
    nowhere = honest().hop["r"].clone()
    nowhere[0, 0] = 0
    with pytest.raises(IntegrityError, match="mix1 sent 1 points that are none of the group"):
        fresh_record().check_mix("mix1", hop_with(r=nowhere))
    twice = {name: honest().hop[name].clone() for name in ("r", "c")}
    for one in twice.values():
        one[0, 1] = one[0, 0]
    with pytest.raises(IntegrityError, match="mix1 sent the same ciphertext twice"):
        fresh_record().check_mix("mix1", hop_with(**twice))
    with pytest.raises(ProtocolError, match="mix1 mixed other clients"):
        fresh_record().check_mix("mix1", hop_with(present=honest().hop["present"].flip(0)))


def test_an_opening_is_bound_to_its_server_and_to_what_came_out() -> None:
    record = honest().record
    parts, proof = record.open("mix1", SECRETS["mix1"], COINS.child("open"))
    body = {"parts": parts, "proof": proof}
    for other, who in ((record, "mix2"), (after_another(), "mix1")):
        with pytest.raises(IntegrityError, match=f"{who} does not prove that it opened"):
            other.check_open(who, body)
    wrong = parts.clone()
    wrong[0, 0] = wrong[0, 1]
    with pytest.raises(IntegrityError, match="mix1 does not prove that it opened"):
        record.check_open("mix1", {**body, "parts": wrong})
    opened, lie = record.open("mix1", SECRETS["mix2"], COINS.child("other key"))
    with pytest.raises(IntegrityError, match="mix1 does not prove that it opened"):
        record.check_open("mix1", {"parts": opened, "proof": lie})


def test_a_key_is_bound_to_its_server_and_round_and_cannot_be_made_of_others() -> None:
    proof = elgamal.prove_key(SECRETS["mix1"], key_context(KEYS.occasion, "mix1"), COINS.child("proof"))
    elgamal.check_key(SECRETS["mix1"].public, key_context(KEYS.occasion, "mix1"), proof, "mix1")
    later = Occasion.of(replace(GIVEN, round=4))
    for occasion, who in ((KEYS.occasion, "mix2"), (later, "mix1")):
        with pytest.raises(IntegrityError, match=f"{who}: the proof does not hold"):
            elgamal.check_key(SECRETS["mix1"].public, key_context(occasion, who), proof, who)
    # A key that takes away another's, which nobody knows the secret of but by knowing the other's.
    (own,) = curve.drawn(COINS.child("own"), 1)
    rogue = curve.plus(curve.base([own]), curve.minus(SECRETS["mix1"].public))
    forged = elgamal.prove_key(MixKey(own, rogue), key_context(KEYS.occasion, "mix2"), COINS.child("forged"))
    with pytest.raises(IntegrityError, match="mix2: the proof does not hold"):
        elgamal.check_key(rogue, key_context(KEYS.occasion, "mix2"), forged, "mix2")


@pytest.mark.parametrize("other", ["client", "round", "keys", "attempt", "roster"])
def test_bits_are_bound_to_client_round_attempt_roster_and_keys(other: str) -> None:
    context = {
        "client": KEYS.bits_context("c1"),
        "round": MixKeys(Occasion.of(replace(GIVEN, round=4)), KEYS.keys).bits_context("c0"),
        "attempt": MixKeys(Occasion.of(replace(GIVEN, attempt=1)), KEYS.keys).bits_context("c0"),
        "roster": MixKeys(Occasion.of(replace(GIVEN, roster=CLIENTS[:3])), KEYS.keys).bits_context("c0"),
        "keys": MixKeys(KEYS.occasion, dict(reversed([*KEYS.keys.items()]))).bits_context("c0"),
    }[other]
    points, scalars = elgamal.encrypt(BITS[:3], KEYS.joint, KEYS.bits_context("c0"), COINS.child("bits"))
    elgamal.check_bits(points, scalars, KEYS.joint, KEYS.bits_context("c0"), "c0", COINS.child("check"))
    with pytest.raises(IntegrityError, match="c0 does not prove that what it sent are bits"):
        elgamal.check_bits(points, scalars, KEYS.joint, context, "c0", COINS.child("check"))


def test_one_statement_has_one_nonce_and_two_have_two() -> None:
    """A server that is made to prove two things with the same coins must not give its key away."""
    record, coins = honest().record, COINS.child("open once")
    one = record.open("mix1", SECRETS["mix1"], coins)[1].numpy()
    assert np.array_equal(one, record.open("mix1", SECRETS["mix1"], coins)[1].numpy())
    two = after_another().open("mix1", SECRETS["mix1"], coins)[1].numpy()
    (c1, s1), (c2, s2) = (curve.scalars_of(proof.reshape(-1, curve.SCALAR), "mix1") for proof in (one, two))
    guess = (s1 - s2) * pow(c1 - c2, -1, curve.ORDER) % curve.ORDER
    assert guess != SECRETS["mix1"].secret
