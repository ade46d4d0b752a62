"""The correlation for permuting and sharing, made by the two servers themselves, so that no dealer knows their orders.

The method is that of Chase, Ghosh and Poburinnaya 2020, with one tree of K leaves for each of the K rows. Leaf j of
tree i stands for a row v_i[j]. The sender knows all of them and takes a_j = Σ_i v_i[j] and b_i = Σ_j v_i[j]. The
permuter learns all of tree i but leaf π(i), which is what it lacks on both sides of Δ_i = a_{π(i)} - b_i. Work and
memory traffic grow with K² rows, transfers with K log K. For K far above 100 one would compose orders of smaller ones,
which is not done here.

`translate` runs on what comes out here as on what is dealt. `puncture` grows the trees and `transfer` hands them over
with one leaf missing. `place.two_servers.shuffle_flows` plays it where a description says `shuffle = "transfer"`
(after the shuffle a dealer is still needed, see `convert`), and `croupier bench shuffles` times it.
"""

from __future__ import annotations

from hashlib import sha256

from croupier.core.coins import Coins, Ints, Stream
from croupier.mpc import puncture, transfer
from croupier.mpc.group import Group, Rows
from croupier.mpc.occasion import Occasion
from croupier.mpc.talk import Talk
from croupier.mpc.translate import PermuterHalf, SenderHalf


def give(group: Group, rows: int, occasion: Occasion, purpose: str, coins: Coins) -> Talk[SenderHalf]:
    """The sender's half. `purpose` tells the two correlations of one shuffle apart."""
    leaves, sums = puncture.grow(puncture.plant(rows, coins.child("trees")), rows)
    pairs = sums.reshape(-1, 2, puncture.NODE)
    yield from transfer.give(pairs, occasion, purpose, coins.child("transfer"))
    a, b = group.zeros(rows), group.zeros(rows)
    label = occasion.label(purpose + " leaf")
    for i in range(rows):
        for j in range(rows):
            row = _row(group, leaves[i, j], label)
            a[j], b[i] = group.add(a[j], row), group.add(b[i], row)
    return SenderHalf(a, b)


def take(group: Group, order: Ints, occasion: Occasion, purpose: str, coins: Coins) -> Talk[PermuterHalf]:
    """The permuter's half, for an order of its own choice."""
    rows = len(order)
    wanted = puncture.sides(order, rows).reshape(-1)
    got = yield from transfer.take(wanted.tolist(), occasion, purpose, coins.child("transfer"))
    leaves = puncture.regrow(got.reshape(rows, -1, puncture.NODE), order, rows)
    columns, lines = group.zeros(rows), group.zeros(rows)
    label = occasion.label(purpose + " leaf")
    for i in range(rows):
        for j in range(rows):
            if j != order[i]:
                row = _row(group, leaves[i, j], label)
                columns[j], lines[i] = group.add(columns[j], row), group.add(lines[i], row)
    return PermuterHalf(order, group.subtract(columns[order], lines))


def _row(group: Group, leaf: Rows, label: bytes) -> Rows:
    """The row that a leaf stands for on this occasion."""
    row: Rows = group.draw(1, Stream(sha256(label + leaf.tobytes()).digest()))[0]
    return row
