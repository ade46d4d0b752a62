"""Permute and share: rows recombine in the composed order, and a server's view says nothing of the rest."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.tape import outcomes

from croupier.core.coins import Coins, Ints, Node
from croupier.errors import ProtocolError, RangeError, WireError
from croupier.kernels.shares import P
from croupier.mpc.group import Group, Modular, Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.talk import Talk, Talked, converse
from croupier.mpc.translate import (
    PermuterHalf,
    SenderHalf,
    Stock,
    deal,
    draw_masks,
    fit,
    open_masks,
    open_turn,
    permute,
    send,
    shuffle,
)  # fmt: skip

NOW = Occasion(b"r" * 16, 3, 0, b"d" * 32)
GROUPS = [Xor(1), Xor(8), Xor(77), Modular(5), Modular(3, 2), Modular(2, 1 << 63)]


def dealt(group: Group, rows: int, coins: Coins) -> tuple[SingleUse[Stock], SingleUse[Stock], Ints, Ints]:
    """Both servers' stocks from a dealer, through its bytes, and the two orders."""
    one, two = deal(group, rows, coins.child(1)), deal(group, rows, coins.child(2))
    turn0, turn1 = open_turn(group, rows, one.order, one.delta), open_turn(group, rows, two.order, two.delta)
    stock0 = Stock(turn0, open_masks(group, rows, two.masks))
    stock1 = Stock(turn1, open_masks(group, rows, one.masks))
    return SingleUse(stock0, NOW), SingleUse(stock1, NOW), turn0.order, turn1.order


def shared(group: Group, rows: Rows, node: Node) -> tuple[Rows, Rows]:
    mask = group.draw(len(rows), node.secure())
    return group.subtract(rows, mask), mask


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("rows", [2, 3, 17])
def test_a_shuffle_recombines_in_the_composed_order(group: Group, rows: int) -> None:
    coins = Coins.from_seed(rows)
    clear = group.draw(rows, coins.child("clear").secure())
    x0, x1 = shared(group, clear, coins.child("share"))
    stock0, stock1, order0, order1 = dealt(group, rows, coins)
    done = converse(shuffle(group, x0, stock0, True, NOW), shuffle(group, x1, stock1, False, NOW))
    np.testing.assert_array_equal(group.add(done.one, done.two), clear[order0[order1]])
    # One message of all rows each way, and nothing else.
    size = len(group.pack(clear))
    assert [len(m) for m in done.from_one] == [0, size]
    assert [len(m) for m in done.from_two] == [size, 0]


def test_the_groups_add_and_subtract_at_their_ends() -> None:
    for modulus in (2, 3, P, 1 << 63):
        group = Modular(1, modulus)
        ends = np.array([[0], [1], [modulus - 1], [modulus // 2]], np.uint64)
        for x in ends:
            for y in ends:
                assert int(group.add(x, y)[0]) == (int(x[0]) + int(y[0])) % modulus
                assert int(group.subtract(x, y)[0]) == (int(x[0]) - int(y[0])) % modulus


def scripted(group: Group, x: Rows, order0: tuple[int, ...], order1: tuple[int, ...], server: int, tape: Node) -> bytes:
    """A server's whole view of one shuffle in which all masks and shares are read from a tape."""
    x0, x1 = shared(group, x, tape)
    masks1, masks0 = draw_masks(group, len(x), tape), draw_masks(group, len(x), tape)
    turn0, turn1 = fit(group, masks1, np.array(order0)), fit(group, masks0, np.array(order1))
    done: Talked[Rows, Rows] = converse(
        shuffle(group, x0, SingleUse(Stock(turn0, masks0), NOW), True, NOW),
        shuffle(group, x1, SingleUse(Stock(turn1, masks1), NOW), False, NOW),
    )
    np.testing.assert_array_equal(group.add(done.one, done.two), x[np.array(order0)[list(order1)]])

    def view(share: Rows, turn: PermuterHalf, masks: SenderHalf, got: tuple[bytes, ...]) -> bytes:
        return b"".join(group.pack(part) for part in (share, turn.delta, masks.a, masks.b)) + b"".join(got)

    return view(x1, turn1, masks1, done.from_one) if server else view(x0, turn0, masks0, done.from_two)


@pytest.mark.parametrize("server", [0, 1])
def test_a_view_depends_on_neither_the_rows_nor_the_other_order(server: int) -> None:
    """Exact: its own order fixed, a server's view has one distribution for all rows and all orders of the other."""
    group = Modular(1, 2)
    orders = list(permutations(range(2)))
    for own in orders:
        seen = []
        for x in ([[0], [0]], [[0], [1]], [[1], [0]]):
            for other in orders:
                both = (own, other) if server == 0 else (other, own)
                seen.append(outcomes(partial(scripted, group, np.array(x, np.uint64), *both, server)))
        assert all(one == seen[0] for one in seen)
        # And it is uniform over all that fits: two shares, two masks each way, two masked rows.
        assert len(set(seen[0].values())) == 1


def test_three_rows_of_one_pass_hide_the_order_from_the_sender_and_the_rows_from_the_permuter() -> None:
    group = Modular(1, 2)

    def one(tape: Node, x: tuple[int, ...], order: tuple[int, ...]) -> tuple[bytes, bytes]:
        masks = draw_masks(group, 3, tape)
        turn = fit(group, masks, np.array(order))
        rows = np.array(x, np.uint64)[:, None]
        done: Talked[Rows, Rows] = converse(send(group, rows, masks), permute(group, turn))
        np.testing.assert_array_equal(group.add(done.one, done.two), rows[list(order)])
        return group.pack(masks.a) + group.pack(masks.b), done.from_one[0] + group.pack(turn.delta)

    def seen(x: tuple[int, ...], order: tuple[int, ...], by: int) -> dict[bytes, float]:
        return outcomes(lambda tape: one(tape, x, order)[by])

    orders = list(permutations(range(3)))
    assert all(seen((0, 0, 1), order, 0) == seen((0, 0, 1), orders[0], 0) for order in orders)
    for order in orders:
        views = [seen(x, order, 1) for x in ((0, 0, 0), (0, 0, 1), (1, 0, 1))]
        assert views[0] == views[1] == views[2]
        assert set(views[0].values()) == {1 / 64}


def test_what_a_server_hears_is_uniform_for_long_rows() -> None:
    group, rows = Xor(400), 5
    clear = np.zeros((rows, 50), np.uint8)
    heard: Counter[int] = Counter()
    for number in range(60):
        coins = Coins.from_seed(number)
        stock0, stock1, _, _ = dealt(group, rows, coins)
        done = converse(shuffle(group, clear, stock0, True, NOW), shuffle(group, clear, stock1, False, NOW))
        heard.update(b"".join(done.from_one + done.from_two))
    assert chisquare([heard[byte] for byte in range(256)]).pvalue > 1e-4


def test_orders_that_a_dealer_deals_are_uniform() -> None:
    group = Xor(8)
    seen = Counter(
        tuple(open_turn(group, 3, (one := deal(group, 3, Coins.from_seed(n))).order, one.delta).order)
        for n in range(1800)
    )
    assert len(seen) == 6
    assert chisquare([*seen.values()]).pvalue > 1e-4


def test_a_correlation_serves_once_and_only_its_own_occasion() -> None:
    group = Xor(8)
    rows = np.zeros((4, 1), np.uint8)
    stock, other, _, _ = dealt(group, 4, Coins.from_seed(1))
    next(shuffle(group, rows, stock, True, NOW))
    with pytest.raises(ProtocolError, match="spent"):
        next(shuffle(group, rows, stock, True, NOW))
    later = Occasion(NOW.run, NOW.round, 1, NOW.roster)
    with pytest.raises(ProtocolError, match=r"attempt 0 .* attempt 1"):
        next(shuffle(group, rows, other, False, later))
    # Asking for the wrong occasion spends it too.
    with pytest.raises(ProtocolError, match="spent"):
        next(shuffle(group, rows, other, False, NOW))


def test_what_does_not_fit_is_refused() -> None:
    group = Xor(12)
    stock, _, _, _ = dealt(group, 3, Coins.from_seed(1))
    with pytest.raises(ProtocolError, match="2 rows, and a correlation for 3"):
        next(shuffle(group, np.zeros((2, 2), np.uint8), stock, True, NOW))
    with pytest.raises(WireError, match="5 bytes, where 3 rows of 2"):
        group.unpack(bytes(5), 3)
    with pytest.raises(RangeError, match="after the 12"):
        group.unpack(bytes([0, 16]), 1)
    with pytest.raises(RangeError, match="no residue"):
        Modular(1).unpack(P.to_bytes(8, "little"), 1)
    with pytest.raises(RangeError, match="rows = 1"):
        deal(group, 1, Coins.from_seed(1))
    with pytest.raises(RangeError, match="width = 0"):
        Xor(0)
    with pytest.raises(RangeError, match="modulus = 1"):
        Modular(1, 1)
    masks = draw_masks(group, 3, Coins.from_seed(1))
    with pytest.raises(RangeError, match="do not fit masks"):
        next(send(group, np.zeros((2, 2), np.uint8), masks))
    talk = send(group, np.zeros((3, 2), np.uint8), masks)
    next(talk)
    with pytest.raises(WireError, match="nothing to say"):
        talk.send(b"more")


def test_a_talk_that_one_party_ends_early_is_an_error() -> None:
    def brief() -> Talk[int]:
        yield b""
        return 1

    def longer() -> Talk[int]:
        yield b""
        yield b""
        return 2

    with pytest.raises(ProtocolError, match="after 1 turns"):
        converse(brief(), longer())
