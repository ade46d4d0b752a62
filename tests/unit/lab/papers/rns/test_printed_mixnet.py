"""The printed mix network fails as it should: too large, no server can be spared, and single messages are found."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, ProtocolError
from croupier.mpc.seal import Lock
from croupier_lab.papers.rns.printed_mixnet import (
    bytes_of_a_bit,
    expansion,
    locked,
    mixed,
    owners,
    replaced_but,
    wrapped,
)

COINS = Coins.from_seed(8)
LOCKS = [Lock.make(COINS.child("lock", number)) for number in range(3)]
PUBLICS = [lock.public for lock in LOCKS]
BITS = [0, 1, 1, 0, 0, 1, 0, 0]
SENT = [wrapped(bit, PUBLICS, COINS.child("client", who)) for who, bit in enumerate(BITS)]


def test_honest_servers_shuffle_and_that_is_all() -> None:
    assert sorted(mixed(SENT, LOCKS, COINS.child("mix"))) == sorted(BITS)


def test_a_bit_in_its_onion_grows_two_thousand_times() -> None:
    assert len(SENT[0]) == bytes_of_a_bit(3) == 145
    assert expansion(64, 3) == 2320
    assert expansion(64, 3, "shared") == 784
    assert expansion(64, 10) == 7696


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_no_server_can_be_spared(gone: int) -> None:
    """The paper says that all but one may drop out: with a single one gone, nothing comes out."""
    left = [None if number == gone else lock for number, lock in enumerate(LOCKS)]
    with pytest.raises(ProtocolError, match=f"server {gone + 1} is gone"):
        mixed(SENT, left, COINS.child("mix"))
    with pytest.raises((IntegrityError, ProtocolError)):
        mixed(SENT, [lock for number, lock in enumerate(LOCKS) if number != gone], COINS.child("mix"))


@pytest.mark.parametrize("victim", range(len(BITS)))
def test_a_first_server_that_replaces_all_others_finds_the_one_it_left(victim: int) -> None:
    """Two honest servers behind it do not help: every other message carries its mark."""
    cheat = replaced_but(victim, PUBLICS, 7, COINS.child("cheat", victim))
    out = mixed(SENT, LOCKS, COINS.child("mix", victim), cheat)
    assert [bit for bit in out if bit != 7] == [BITS[victim]]


def test_keys_of_single_clients_tell_the_second_server_whose_bit_it_is() -> None:
    names = [f"c{number}" for number in range(len(BITS))]
    keys = {who: [COINS.child("key", who, server).export() for server in range(3)] for who in names}
    boxes = [locked(bit, keys[who]) for who, bit in zip(names, BITS, strict=True)]
    opened = [
        ChaCha20Poly1305(keys[who][0]).decrypt(bytes(12), box, None) for who, box in zip(names, boxes, strict=True)
    ]
    order = COINS.child("first").secure().permutation(len(opened)).tolist()
    found = owners([opened[place] for place in order], {who: own[1] for who, own in keys.items()})
    assert found == [names[place] for place in order], "the first server's order is known to the second"
