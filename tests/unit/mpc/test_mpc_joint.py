"""The parts of a joint secret: each is bound to its agreement, its party and its purpose."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from croupier.core.coins import Coins
from croupier.errors import IntegrityError
from croupier.mpc.joint import DRAW, Draw, Terms, box_size, close, joined, opened, rule_digest, rule_seed
from croupier.mpc.occasion import Occasion
from croupier.mpc.seal import Lock

NOW = Terms(Occasion(bytes(16), 5, 1, bytes(32)), 7)
OTHERS = [
    replace(NOW, start=8),
    *(replace(NOW, occasion=replace(NOW.occasion, **change)) for change in (
        {"run": b"\x01" * 16}, {"round": 6}, {"attempt": 2}, {"roster": b"\x01" * 32},
    )),
]  # fmt: skip
MINE = Draw.make(Coins.from_seed(1))


@pytest.mark.parametrize("other", OTHERS)
def test_everything_is_bound_to_run_number_attempt_roster_and_start(other: Terms) -> None:
    assert MINE.commitment(NOW, "a") != MINE.commitment(other, "a")
    assert joined(NOW, [MINE]) != joined(other, [MINE])
    lock = Lock.make(Coins.from_seed(2))
    box = close(NOW, "reveal", ("a", "b"), lock.public, bytes(DRAW), Coins.from_seed(3))
    assert opened(NOW, "reveal", ("a", "b"), lock, box, DRAW) == bytes(DRAW)
    with pytest.raises(IntegrityError):
        opened(other, "reveal", ("a", "b"), lock, box, DRAW)


def test_a_commitment_names_its_party_and_hides_its_draw() -> None:
    assert MINE.commitment(NOW, "a") != MINE.commitment(NOW, "b")
    assert MINE.commitment(NOW, "a") != replace(MINE, nonce=bytes(32)).commitment(NOW, "a")
    assert MINE.value.hex() not in repr(MINE)
    assert "value" not in repr(MINE)


def test_a_box_is_from_one_for_one_about_one_thing() -> None:
    lock = Lock.make(Coins.from_seed(2))
    box = close(NOW, "reveal", ("a", "b"), lock.public, bytes(DRAW), Coins.from_seed(3))
    assert len(box) == box_size(DRAW)
    for purpose, ends in (("seed 0", ("a", "b")), ("reveal", ("b", "a")), ("reveal", ("c", "b"))):
        with pytest.raises(IntegrityError):
            opened(NOW, purpose, ends, lock, box, DRAW)
    with pytest.raises(IntegrityError, match="64 bytes, where 32 were to be"):
        opened(NOW, "reveal", ("a", "b"), lock, box, 32)


def test_a_joint_secret_depends_on_every_draw_and_their_order() -> None:
    draws = [Draw.make(Coins.from_seed(number)) for number in range(3)]
    every = {joined(NOW, d) for d in (draws, draws[::-1], draws[:2], [*draws[:2], MINE])}
    assert len(every) == 4
    # The same draw twice does not cancel, as it would with XOR.
    assert joined(NOW, [MINE, MINE]) != joined(NOW, [Draw(bytes(32), b""), Draw(bytes(32), b"")])


def test_seeds_of_rounds_are_separate() -> None:
    secret = bytes(range(32))
    seeds = [rule_seed(bytes(16), secret, number) for number in range(50)]
    seeds += [rule_seed(b"\x01" * 16, secret, 0), rule_digest(bytes(16), 0, secret), secret]
    assert len(set(seeds)) == len(seeds)
    assert all(len(seed) == 32 for seed in seeds)
    assert hashlib.sha256(secret).digest() not in seeds
