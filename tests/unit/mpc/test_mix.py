"""What a chain of servers is dealt and says: any number of them, rows of any width, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from croupier.core.coins import Coins, Node
from croupier.errors import RangeError
from croupier.mpc import mix


def turned(rows: mix.Rows, coins: Node) -> mix.Rows:
    """Whole rows, in an order that coins say."""
    return np.asarray(rows[coins.secure().permutation(len(rows))])


@pytest.mark.parametrize("servers", [2, 3, 5])
@pytest.mark.parametrize("cells", [mix.Cells(9, "|u1", 8, spare=3), mix.Cells(4, "<u4", 21), mix.Cells(3, "<u8", 63)])
def test_a_chain_gives_the_composed_order(servers: int, cells: mix.Cells) -> None:
    coins = Coins.from_seed(servers)
    inputs = cells.draw(6, coins.child("inputs").secure())
    hands = mix.deal(cells, 6, servers, turned, coins.child("deal"))
    nodes = [Coins(hand.seed) for hand in hands]
    seeds = [[coins.child("share", who, server).export() for server in range(1, servers)] for who in range(6)]
    rows = np.concatenate([mix.shared(cells, row, own) for row, own in zip(inputs, seeds, strict=True)])
    for server in range(1, servers):
        share = np.concatenate([mix.stretched(cells, own[server - 1]) for own in seeds])
        rows ^= share ^ mix.entry_mask(cells, 6, nodes[server])
    want = inputs
    for hand, node in zip(hands, nodes, strict=True):
        rows = mix.passed(rows, hand.delta, turned, node.child("order"))
        want = turned(want, node.child("order"))
    opened = [node.child("b").export() for node in nodes[:-1]]
    for seed in opened:
        rows = rows ^ mix.stretched(cells, seed, 6)
    assert np.array_equal(rows, want)
    assert not np.array_equal(rows, inputs)


def test_draws_keep_to_their_bits() -> None:
    drawn = mix.Cells(5, "|u1", 8, spare=4).draw(200, Coins.from_seed(1).secure())
    assert drawn[:, -1].max() == 15
    assert drawn[:, 0].max() > 15
    assert mix.Cells(5, "<u4", 3).draw(200, Coins.from_seed(1).secure()).max() == 7


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: mix.Cells(3, "|u1", 9), "bits = 9: a word of |u1 has 1 to 8"),
        (lambda: mix.deal(mix.Cells(3, "|u1", 8), 1, 2, turned, Coins.from_seed(1)), "rows = 1: an order of fewer"),
    ],
)
def test_what_hides_nothing_or_fits_nowhere_is_refused(broken: Callable[[], object], said: str) -> None:
    with pytest.raises(RangeError) as error:
        broken()
    assert said in str(error.value)


def test_what_is_dealt_is_not_printed() -> None:
    (hand, _) = mix.deal(mix.Cells(3, "|u1", 8), 2, 2, turned, Coins.from_seed(1))
    assert repr(hand) == "MixHand()"
