"""hide, for mix networks: who knows all moves but an honest server's learns what comes out, and nothing else.

Exactly: every column of a table is one world of all that is drawn, so that one run of the real functions walks all of
them. And over real coins: one honest server makes the order uniform, whatever the others choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from croupier.core.coins import Coins, Label, Node
from croupier.mpc import mix
from croupier.release.shuffle import Shuffle
from tests.laws.toy import LAYOUT
from tests.tape import Tape, outcomes

CLIENTS = 2
Columns = np.ndarray
# The same bits, from other clients; and other bits.
ONE, OTHER, UNLIKE = (0, 1), (1, 0), (1, 1)


class Worlds:
    """So many fair bits, drawn in all ways at once: a column for each."""

    def __init__(self, bits: int) -> None:
        self.bits, self.taken = bits, 0

    @property
    def many(self) -> int:
        return 1 << self.bits

    def bit(self) -> Columns:
        assert self.taken < self.bits, "more is drawn than there are worlds for"
        self.taken += 1
        return ((np.arange(self.many) >> (self.taken - 1)) & 1).astype(np.uint8)

    def rows(self) -> Columns:
        return np.stack([self.bit() for _ in range(CLIENTS)])


@dataclass
class Known:
    """A node whose every draw is known before it is asked for."""

    drawn: dict[tuple[Label, ...], Columns]
    path: tuple[Label, ...] = ()

    def child(self, *labels: Label) -> Known:
        return Known(self.drawn, (*self.path, *labels))

    def secure(self) -> Any:
        return self

    @property
    def here(self) -> Columns:
        return self.drawn[self.path]

    def blind(self, total: Columns, bits: int, *, minus: bool = False) -> None:
        assert bits == 1
        total ^= self.here.reshape(-1)


def swapped(rows: Columns, coins: Node) -> Columns:
    """Both rows change places in every world where the coin says so."""
    assert isinstance(coins, Known)
    return np.where(coins.here.astype(bool), rows[::-1], rows).astype(np.uint8)


@dataclass
class Seen:
    """What parties saw, as columns of bits, world by world."""

    columns: list[Columns] = field(default_factory=list)

    def add(self, *rows: Columns) -> None:
        self.columns += [line for one in rows for line in np.atleast_2d(one)]

    def chances(self) -> dict[int, int]:
        joint = np.zeros(len(self.columns[0]), np.int64)
        for column in self.columns:
            joint = 2 * joint + column
        return dict(zip(*(found.tolist() for found in np.unique(joint, return_counts=True)), strict=True))


def shares(worlds: Worlds, inputs: tuple[int, ...], servers: int) -> list[Columns]:
    """Every server's share of both rows, in every world."""
    drawn = [worlds.rows() for _ in range(servers - 1)]
    rows = np.repeat(np.array(inputs, np.uint8)[:, None], worlds.many, 1)
    return [*drawn, np.bitwise_xor.reduce([rows, *drawn])]


def dealt(inputs: tuple[int, ...], servers: int, members: set[int], careless: bool = False) -> dict[int, int]:
    """How often each view of some servers, with the receiver, comes up over all worlds."""
    worlds = Worlds(2 * (servers - 1) * 4 + servers)
    held, hands = shares(worlds, inputs, servers), []
    for number in range(servers):
        drawn: dict[tuple[Label, ...], Columns] = {("order",): worlds.bit()}
        drawn |= {("a",): worlds.rows()} if number else {}
        drawn |= {("b",): worlds.rows()} if number + 1 < servers else {}
        hands.append(Known(drawn))
    between = Known({("between", number): worlds.rows() for number in range(servers - 1)})
    if careless:
        between.drawn = {key: np.zeros_like(rows) for key, rows in between.drawn.items()}
    cells = mix.Cells(worlds.many, "|u1", 1)
    deltas = mix.deltas(cells, CLIENTS, swapped, hands, between)
    seen = Seen()
    for member in members:
        seen.add(held[member], deltas[member], *hands[member].drawn.values())
    masked = [held[s] ^ mix.entry_mask(cells, CLIENTS, hands[s]) for s in range(1, servers)]
    if 0 in members:
        seen.add(*masked)
    rows = np.bitwise_xor.reduce([held[0], *masked])
    for number, hand in enumerate(hands):
        if number in members and number:
            seen.add(rows)
        rows = mix.passed(rows, deltas[number], swapped, hand.child("order"))
    seen.add(rows, *(hand.drawn["b",] for hand in hands[:-1]))
    out = rows ^ mix.opened_mask(cells, CLIENTS, hands[:-1])
    assert (np.sort(out, 0) == np.sort(np.array(inputs))[:, None]).all(), "what comes out is not what went in"
    return seen.chances()


@pytest.mark.parametrize(("servers", "honest"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_one_honest_server_of_a_dealt_chain_hides_the_order(servers: int, honest: int) -> None:
    members = set(range(servers)) - {honest}
    assert dealt(ONE, servers, members) == dealt(OTHER, servers, members)
    assert dealt(ONE, servers, members) != dealt(UNLIKE, servers, members)


def test_all_servers_together_know_whose_bit_it_is() -> None:
    assert dealt(ONE, 2, {0, 1}) != dealt(OTHER, 2, {0, 1})


def test_a_dealer_that_draws_no_masks_is_caught() -> None:
    assert dealt(ONE, 3, {0, 2}, careless=True) != dealt(OTHER, 3, {0, 2}, careless=True)


def paired(inputs: tuple[int, ...], members: set[int], careless: bool = False) -> dict[int, int]:
    """The same for three servers without a dealer: what some of them see, with the receiver."""
    worlds = Worlds(2 + 3 * 3)
    first, second = shares(worlds, inputs, 2)
    commons = [Known({("order",): worlds.bit(), ("r",): worlds.rows()}) for _ in range(3)]
    if careless:
        commons[1].drawn["r",] = np.zeros_like(commons[1].drawn["r",])
    cells, seen = mix.Cells(worlds.many, "|u1", 1), Seen()
    for number, common in enumerate(commons):
        # Pair (number, number + 1) knows it.
        if {number, (number + 1) % 3} & members:
            seen.add(*common.drawn.values())
    for member, held in enumerate((first, second)):
        seen.add(*[held] if member in members else [])
    for number, common in enumerate(commons):
        moved, second = (mix.paired(cells, share, swapped, common) for share in (first, second))
        third = (number + 2) % 3
        seen.add(*[moved] if third in members else [])
        # The pair's second one is the next pair's first, and the third its second.
        first, second = second, moved
    seen.add(first, second)
    assert (np.sort(first ^ second, 0) == np.sort(np.array(inputs))[:, None]).all()
    return seen.chances()


@pytest.mark.parametrize("member", [0, 1, 2])
def test_one_of_three_servers_and_the_receiver_learn_no_order(member: int) -> None:
    assert paired(ONE, {member}) == paired(OTHER, {member})
    assert paired(ONE, {member}) != paired(UNLIKE, {member})


@pytest.mark.parametrize("members", [{0, 1}, {1, 2}, {0, 2}])
def test_any_two_of_three_know_whose_bit_it_is(members: set[int]) -> None:
    assert paired(ONE, members) != paired(OTHER, members)


def test_a_pair_that_draws_no_mask_is_caught() -> None:
    assert any(paired(ONE, {member}, True) != paired(OTHER, {member}, True) for member in (0, 1, 2))


class Still:
    """A move that moves nothing: what all servers but one may choose."""

    def __init__(self, honest: bytes, move: mix.Move) -> None:
        self.honest, self.move = honest, move

    def __call__(self, rows: Columns, coins: Node) -> Columns:
        assert isinstance(coins, Coins)
        return self.move(rows, coins) if coins.export() == self.honest else rows


COLUMNS = 6_000


def moved_by(release: Shuffle, honest: bytes) -> Still:
    return Still(honest, lambda rows, node: release.moved(rows, LAYOUT, None, node))


def check_uniform(out: Columns) -> None:
    """Four rows of single parameters: each column is an order of four."""
    orders = {order: number for number, order in enumerate(permutations(range(4)))}
    counts = np.bincount([orders[tuple(column)] for column in out.T.tolist()], minlength=math.factorial(4))
    assert float(chisquare(counts).pvalue) > 1e-4
    assert float(chisquare(np.bincount(out[0], minlength=4)).pvalue) > 1e-4


def numbered() -> Columns:
    return np.repeat(np.arange(4, dtype=np.uint8)[:, None], COLUMNS, 1)


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_one_honest_server_makes_the_order_uniform(honest: int) -> None:
    """All others choose the identity."""
    coins = Coins.from_seed(21).child(honest)
    cells, rows = mix.Cells(COLUMNS, "|u1", 8), numbered()
    hands = [Coins(coins.child("hand", number).export()) for number in range(3)]
    move = moved_by(Shuffle(grain="parameter"), hands[honest].child("order").export())
    deltas = mix.deltas(cells, 4, move, hands, coins.child("masks"))
    for number in (1, 2):
        rows = rows ^ mix.entry_mask(cells, 4, hands[number])
    for number, hand in enumerate(hands):
        rows = mix.passed(rows, deltas[number], move, Coins(hand.child("order").export()))
    check_uniform(rows ^ mix.opened_mask(cells, 4, hands[:-1]))


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_one_honest_pair_makes_the_order_uniform(honest: int) -> None:
    """A corrupt server knows two of three moves, and may have chosen them to be the identity."""
    coins = Coins.from_seed(22).child(honest)
    cells, first = mix.Cells(COLUMNS, "|u1", 8), numbered()
    commons = [Coins(coins.child("common", number).export()) for number in range(3)]
    move = moved_by(Shuffle(grain="parameter"), commons[honest].child("order").export())
    second = cells.draw(4, coins.child("share").secure())
    first = first ^ second
    for common in commons:
        still = Coins(common.child("order").export())
        mask = cells.draw(4, common.child("r").secure())
        first, second = (move(share, still) ^ mask for share in (first, second))
    check_uniform(first ^ second)


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_one_honest_server_of_boxes_makes_the_order_uniform(honest: int) -> None:
    """Whole rows: what each server does to boxes once they are open."""
    coins, release = Coins.from_seed(23).child(honest), Shuffle(grain="model")
    orders, drawn = {order: number for number, order in enumerate(permutations(range(4)))}, list[int]()
    boxes = np.arange(4, dtype=np.uint8)[:, None].repeat(LAYOUT.size, 1)
    for trial in range(1_500):
        nodes, rows = [coins.child(trial, number) for number in range(3)], boxes
        move = moved_by(release, nodes[honest].export())
        for node in nodes:
            rows = move(rows, node)
        drawn.append(orders[tuple(rows[:, 0].tolist())])
    assert float(chisquare(np.bincount(drawn, minlength=24)).pvalue) > 1e-4


def boxed(inputs: tuple[int, ...], honest: int) -> dict[tuple[int, ...], float]:
    """What all other servers and the receiver see of boxes that only the honest server can open, over its orders.

    They know the owner of each box up to the honest server, and every move but its own, so that they undo theirs.
    """
    rows = np.array(inputs, np.uint8)[:, None].repeat(LAYOUT.size, 1)

    def seen(tape: Tape) -> tuple[int, ...]:
        after = rows
        for number in range(3):
            after = Shuffle(grain="model").moved(after, LAYOUT, None, tape) if number == honest else after[::-1]
        return tuple(after[:, 0].tolist())

    return outcomes(seen)


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_an_honest_server_of_boxes_hides_whose_they_are(honest: int) -> None:
    assert boxed((0, 0, 1), honest) == pytest.approx(boxed((1, 0, 0), honest))
    assert boxed((0, 0, 1), honest) != pytest.approx(boxed((1, 0, 1), honest))


def test_servers_that_all_stand_still_hide_nothing() -> None:
    assert boxed((0, 0, 1), 3) != boxed((1, 0, 0), 3)


def test_the_identity_alone_is_not_uniform() -> None:
    counts = np.bincount(np.zeros(12_000, np.int64), minlength=24)
    assert float(chisquare(counts).pvalue) < 1e-9
