"""Rows in boxes: they recombine, neither server knows the order, and what is stale, doubled or altered is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.tape import Tape, outcomes

from croupier.core.coins import Coins, Node
from croupier.errors import IntegrityError, ProtocolError, WireError
from croupier.mpc import onion, seal
from croupier.mpc.group import Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.talk import Talk, Talked, converse

NOW = Occasion(b"r" * 16, 3, 0, b"d" * 32)
NAMES = ("ada", "bob", "cyd", "dan", "eve")


def locks(coins: Coins) -> tuple[seal.Lock, seal.Lock]:
    return seal.Lock.make(coins.child("lock", 0)), seal.Lock.make(coins.child("lock", 1))


def wrapped(group: Xor, clear: Rows, coins: Coins, now: Occasion = NOW) -> dict[str, bytes]:
    publics = locks(coins)[0].public, locks(coins)[1].public
    return {
        name: onion.wrap(group, row, publics, now, coins.child("client", name))
        for name, row in zip(NAMES, clear, strict=False)
    }


def talk(group: Xor, arrived: dict[str, bytes], coins: Coins, nodes: tuple[Node, Node]) -> Talked[Rows, Rows]:
    one, two = (SingleUse(lock, NOW) for lock in locks(coins))
    first = onion.enter(group, arrived, one, NOW, nodes[0])
    return converse(first, onion.leave(group, len(arrived), two, NOW, nodes[1]))


@pytest.mark.parametrize("width", [1, 8, 77])
def test_rows_recombine_in_the_composed_order(width: int) -> None:
    group, coins = Xor(width), Coins.from_seed(width)
    clear = group.draw(5, coins.child("clear").secure())
    nodes = coins.child("server", 0), coins.child("server", 1)
    arrived = wrapped(group, clear, coins)
    assert {len(box) for box in arrived.values()} == {onion.size(group)}
    done = talk(group, arrived, coins, nodes)
    order0, order1 = (node.child("order").secure().permutation(5) for node in nodes)
    np.testing.assert_array_equal(done.one ^ done.two, clear[order0[order1]])


def test_for_each_order_of_one_server_the_other_makes_every_order_equally_likely() -> None:
    """Exact: one server's order fixed, the other's walked; the result comes in each of the 6 orders once."""
    group, coins = Xor(8), Coins.from_seed(1)
    clear = np.array([[1], [2], [4]], np.uint8)
    arrived = wrapped(group, clear, coins)

    def result(own: int, server: int, other: Tape) -> tuple[int, ...]:
        mine = Tape([own])
        done = talk(group, arrived, coins, (other, mine) if server else (mine, other))
        return tuple(int(byte) for byte in (done.one ^ done.two)[:, 0])

    for server in (0, 1):
        for own in range(6):
            assert outcomes(partial(result, own, server)) == dict.fromkeys(permutations((1, 2, 4)), 1 / 6)


def test_what_each_server_holds_at_the_end_is_uniform_and_says_nothing_of_a_row() -> None:
    """The seeds and rests that are opened, and the order they stand in, over many runs with one client's row fixed."""
    group = Xor(8)
    clear = np.array([[255], [0], [0]], np.uint8)
    places, bits = Counter[tuple[int, int]](), [np.zeros(8, int), np.zeros(8, int)]
    runs = 400
    for number in range(runs):
        coins = Coins.from_seed(number)
        # Server 0's order stays the same: how often is each of its positions the client with the odd row in the end?
        done = talk(group, wrapped(group, clear, coins), coins, (Tape([0]), coins.child("other")))
        places[0, int((done.one ^ done.two)[:, 0].argmax())] += 1
        done = talk(group, wrapped(group, clear, coins), coins, (coins.child("other"), Tape([0])))
        places[1, int((done.one ^ done.two)[:, 0].argmax())] += 1
        for server, share in enumerate((done.one, done.two)):
            bits[server] += np.unpackbits(share, axis=1).sum(0, dtype=int)
    for server in (0, 1):
        assert chisquare([places[server, at] for at in range(3)]).pvalue > 1e-4
        # 1200 bits a position: three rows a run.
        assert np.abs(bits[server] - runs * 1.5).max() < 4.5 * np.sqrt(runs * 0.75)


def test_a_copy_a_stale_an_altered_and_a_short_row_are_refused() -> None:
    group, coins = Xor(16), Coins.from_seed(2)
    clear = group.draw(4, coins.child("clear").secure())
    good = wrapped(group, clear, coins)
    nodes = coins.child("server", 0), coins.child("server", 1)
    with pytest.raises(IntegrityError, match="copy"):
        talk(group, good | {"bob": good["ada"]}, coins, nodes)
    stale = wrapped(group, clear, coins, Occasion(NOW.run, 2, 0, NOW.roster))
    with pytest.raises(ProtocolError, match=r"cyd: .*another run, round, attempt or roster than round 3"):
        talk(group, good | {"cyd": stale["cyd"]}, coins, nodes)
    for at in (0, 40, -1):
        bent = bytearray(good["dan"])
        bent[at] ^= 1
        with pytest.raises(ProtocolError, match="dan: a box was altered"):
            talk(group, good | {"dan": bytes(bent)}, coins, nodes)
    with pytest.raises(ProtocolError, match="ada: a box of 3 bytes"):
        talk(group, good | {"ada": b"abc"}, coins, nodes)


def test_layers_below_are_checked_too() -> None:
    """A client that closes a stale or copied inner box in a good outer one ends the attempt, and nobody is named."""
    group, coins = Xor(16), Coins.from_seed(3)
    clear = group.draw(3, coins.child("clear").secure())
    good = wrapped(group, clear, coins)
    one, two = locks(coins)
    nodes = coins.child("server", 0), coins.child("server", 1)

    def again(purpose: str, lock: seal.Lock, message: bytes) -> bytes:
        return seal.seal(lock.public, NOW.label(purpose) + message, purpose.encode(), coins.child("x", purpose))

    old = wrapped(group, clear, coins, Occasion(NOW.run, 3, 1, NOW.roster))
    middle = seal.unseal(one, old["ada"], onion.OUTER.encode())[32:]
    with pytest.raises(IntegrityError, match="another run"):
        talk(group, good | {"ada": again(onion.OUTER, one, middle)}, coins, nodes)
    middle = seal.unseal(one, good["bob"], onion.OUTER.encode())[32:]
    with pytest.raises(IntegrityError, match="copy"):
        talk(group, good | {"ada": again(onion.OUTER, one, middle)}, coins, nodes)
    inside = seal.unseal(two, middle, onion.MIDDLE.encode())[32:]
    copied = again(onion.OUTER, one, again(onion.MIDDLE, two, inside))
    with pytest.raises(IntegrityError, match="copy"):
        talk(group, good | {"ada": copied}, coins, nodes)


def test_a_key_serves_one_attempt() -> None:
    group, coins = Xor(8), Coins.from_seed(4)
    arrived = wrapped(group, group.draw(3, coins.child("clear").secure()), coins)
    lock = SingleUse(locks(coins)[0], NOW)
    next(onion.enter(group, arrived, lock, NOW, coins.child("server")))
    with pytest.raises(ProtocolError, match="spent"):
        next(onion.enter(group, arrived, lock, NOW, coins.child("server")))


@pytest.mark.parametrize("when", [0, 1])
def test_servers_that_speak_out_of_turn_or_too_little_are_refused(when: int) -> None:
    group, coins = Xor(8), Coins.from_seed(5)
    arrived = wrapped(group, group.draw(3, coins.child("clear").secure()), coins)
    one, two = (SingleUse(lock, NOW) for lock in locks(coins))
    make: list[Callable[[], Talk[Rows]]] = [
        lambda: onion.enter(group, arrived, one, NOW, coins.child("server")),
        lambda: onion.leave(group, 3, two, NOW, coins.child("server")),
    ]
    party = make[when]()
    next(party)
    with pytest.raises(WireError, match="nothing to say" if when == 0 else "3 boxes of"):
        party.send(b"too short")


def test_boxes_are_those_of_the_standard() -> None:
    """The library's own HPKE opens ours, and we open its."""
    hpke = pytest.importorskip("cryptography.hazmat.primitives.hpke")
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)
    lock = seal.Lock.make(Coins.from_seed(1))
    for size in (0, 1, 1000):
        ours = seal.seal(lock.public, bytes(size), b"why", Coins.from_seed(2 + size))
        assert len(ours) == size + seal.EXTRA
        assert suite.decrypt(ours, lock.private, info=b"why") == bytes(size)
        theirs = suite.encrypt(b"x" * size, lock.private.public_key(), info=b"why")
        assert seal.unseal(lock, theirs, b"why") == b"x" * size
    with pytest.raises(IntegrityError):
        seal.unseal(lock, ours, b"other")
    with pytest.raises(IntegrityError):
        seal.unseal(seal.Lock.make(Coins.from_seed(9)), ours, b"why")
    with pytest.raises(WireError, match="public key"):
        seal.seal(bytes(32), b"x", b"why", Coins.from_seed(3))
