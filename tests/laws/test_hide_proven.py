"""hide, for mixes that prove what they do: one honest server makes the order uniform, whatever the others choose.

What a server sees before the end is encrypted under a key of which a part is the honest server's: that it tells nothing
is an assumption (decisional Diffie-Hellman), not walked here. What is opened is walked exactly: every order of the
honest server, against orders that the others fix.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import chisquare

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice
from croupier.place.chain.bit_table import BitTable
from croupier.place.chain.table import MixTable
from tests.laws.pipelines import PIPELINES

TWO = ("c0", "c1")
# The same bits, from other clients; and other bits.
ONE, OTHER, UNLIKE = (0, 1), (1, 0), (1, 1)
ORDERS = list(permutations(range(2)))


def opened(bits: tuple[int, ...], honest: int, still: bool = False) -> dict[tuple[object, ...], int]:
    """How often each opened block comes up with each choice of the other two servers, over the honest one's orders."""
    found = Counter[tuple[object, ...]]()
    for others in product(ORDERS, repeat=2):
        for own in ORDERS[:1] * 2 if still else ORDERS:
            chain, block = [*others], np.array(bits)
            chain.insert(honest, own)
            for order in chain:
                block = block[list(order)]
            found[others, tuple(block.tolist())] += 1
    return dict(found)


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_what_is_opened_tells_no_order_whatever_the_others_choose(honest: int) -> None:
    assert opened(ONE, honest) == opened(OTHER, honest)
    assert opened(ONE, honest) != opened(UNLIKE, honest)


def test_a_server_that_moves_nothing_is_caught() -> None:
    assert opened(ONE, 1, still=True) != opened(OTHER, 1, still=True)


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_one_honest_server_makes_the_order_of_a_block_uniform(honest: int) -> None:
    """Blocks of four places, two bits of two clients: all others choose the identity."""
    slots = 6_000
    table = BitTable(MixTable(PIPELINES["bits, chain that proves"], TWO, Layout((Slice("w", (slots,)),))))
    still = np.arange(len(TWO) * table.length)
    orders = [still, still, still]
    orders[honest] = table.order(TWO, Coins.from_seed(7).child(honest).export())
    composed = orders[0][orders[1]][orders[2]]
    block = table.blocks(len(TWO))[0]
    assert block.shape == (slots, 4)
    ranks = np.argsort(np.argsort(composed[block], axis=1), axis=1)
    numbers = {order: number for number, order in enumerate(permutations(range(4)))}
    counts = np.bincount([numbers[tuple(row)] for row in ranks.tolist()], minlength=24)
    assert float(chisquare(counts).pvalue) > 1e-4
    for seen in (still, composed):
        first = np.bincount(np.argsort(np.argsort(seen[block], axis=1), axis=1)[:, 0], minlength=4)
        assert (float(chisquare(first).pvalue) > 1e-4) == (seen is composed)
