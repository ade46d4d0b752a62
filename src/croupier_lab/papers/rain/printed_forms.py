"""Shuffles and tags as they were printed, kept to show how they fail; nothing here protects anything.

They are RAIN's Algorithm 2 (phase I) and section V-D, and a three-server shuffle whose rows are checked after it, in
the manner of Camel and Clarion. For servers that follow the protocol but are curious, use `mpc.translate` and
`mpc.onion`. Only tests use this file (tests/unit/lab/papers/rain/test_printed_forms.py), on which claims of
`papers.rain.claims` rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from croupier.core.coins import Coins, Ints, Node
from croupier.kernels.shares import P
from croupier.mpc.group import Modular, Rows
from croupier.mpc.translate import draw_order

# --- RAIN's two permutations ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Common:
    """All that the printed offline phase makes out of the one seed that both servers hold (step O1)."""

    orders: tuple[Ints, Ints]
    masks: tuple[Rows, Rows]


def expand(seed: bytes, rows: int, width: int, same: bool = False) -> Common:
    """Both permutations and both re-masking matrices; with `same` there is one permutation for both servers.

    Kept to show how it fails: each server can call this, so each knows the whole order and every mask.
    """
    coins, group = Coins(seed), Modular(width)
    first = draw_order(rows, coins.child("order", 0))
    mask = group.draw(rows, coins.child("mask").secure())
    second = first if same else draw_order(rows, coins.child("order", 1))
    return Common((first, second), (mask, group.subtract(np.zeros_like(mask), mask)))


def printed_shuffle(share: Rows, common: Common, server: int) -> Rows:
    """What server `server` makes of its share: π(b) + r, with its own π and r, and no message to the other.

    Kept to show how it fails: row i of both results together is b0_{π0(i)} + b1_{π1(i)}, two shares of different rows
    unless π0(i) = π1(i). The printed b_{π(i)} with π = π1∘π0 would need the rows to pass through both servers.
    """
    group = Modular(share.shape[1])
    return group.add(share[common.orders[server]], common.masks[server])


def recombined(out: Rows, clear: Rows) -> int:
    """How many rows of a result are among the `clear` rows that went in; of a right shuffle's result all are."""
    there = {row.tobytes() for row in clear}
    return sum(row.tobytes() in there for row in out)


# --- RAIN's streaming MAC ---------------------------------------------------------------------------------------------


def tag_keys(seed: bytes, step: int, width: int) -> tuple[Rows, Rows]:
    """The two shares of the key for one step, from the synchronised seed.

    Kept to show how it fails: each server expands both, so each holds the whole key.
    """
    group, node = Modular(width), Coins(seed).child("mac", step)
    return group.draw(1, node.child(0).secure())[0], group.draw(1, node.child(1).secure())[0]


def tag(key: Rows, rows: Rows) -> tuple[int, ...]:
    """The printed tag of each row: t = Σ_j k[j] · r[j] (equation 20)."""
    return tuple(sum(int(k) * int(r) for k, r in zip(key, row, strict=True)) % P for row in rows)


def verify(key: Rows, rows: Rows, tags: tuple[int, ...]) -> bool:
    """The printed check (equation 22). It can only be made by one who holds the key and the very share it is about."""
    return tag(key, rows) == tags


def forge(seed: bytes, step: int, server: int, rows: Rows, change: Rows) -> tuple[Rows, tuple[int, ...]]:
    """A server's share with any change to it, and tags that pass: it tags with its own key, so it tags what it likes.

    Kept to show how it fails: no key is guessed and nothing of the other server's is used.
    """
    group = Modular(rows.shape[1])
    altered = group.add(rows, change)
    return altered, tag(tag_keys(seed, step, rows.shape[1])[server], altered)


def cross_terms(keys: tuple[Rows, Rows], shares: tuple[Rows, Rows]) -> tuple[int, ...]:
    """What the tags of both shares lack to be tags of the shared rows: <k0, r1> + <k1, r0>, row by row."""
    pairs = zip(tag(keys[0], shares[1]), tag(keys[1], shares[0]), strict=True)
    return tuple((one + two) % P for one, two in pairs)


# --- A check after the shuffle ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShuffleCheat:
    """Server 0 adds an error to an input row of its share, and takes it away again from an output row."""

    row: int
    place: int
    error: Rows


@dataclass(frozen=True)
class FailureTrial:
    """Whether a cheat passed the check, and whether the two rows it touched are one and the same."""

    survived: bool
    linked: bool


def tagged(messages: Rows, node: Node) -> Rows:
    """Each client's row as it is shared: its message, a fresh key of its own, and the message's tag under it."""
    keys = Modular(messages.shape[1]).draw(len(messages), node.secure())
    tags = [tag(key, message[None])[0] for key, message in zip(keys, messages, strict=True)]
    return np.concatenate([messages, keys, np.array(tags, np.uint64)[:, None]], 1)


def late_shuffle(
    shares: tuple[Rows, Rows], orders: tuple[Ints, Ints, Ints], node: Node, cheat: ShuffleCheat | None = None
) -> tuple[Rows, Rows]:
    """Rows shared by servers 0 and 1, permuted in turn by the pairs (0, 1), (1, 2) and (2, 0).

    Each pair has an order of its own. After a pass one of the pair hands its share, freshly masked, to the server that
    was not in it. Server 0 knows the orders of the first and last pass, but not that of the middle one.
    """
    first, second = shares
    group = Modular(first.shape[1])
    if cheat:
        first = group.add(first, _at(cheat.row, cheat.error, first))
    for step, order in enumerate(orders):
        mask = group.draw(len(first), node.child("pass", step).secure())
        # The pairs follow each other round: whoever was second is first now, and the newcomer takes over a share.
        first, second = group.subtract(second[order], mask), group.add(first[order], mask)
    if cheat:
        # Three passes on, server 0 is the first of the pair again.
        first = group.subtract(first, _at(cheat.place, cheat.error, first))
    return first, second


def late_check(shares: tuple[Rows, Rows]) -> bool:
    """Whether every row fits its tag.

    It is computed here in the clear, which favours the servers that check: none that looks at shuffled rows can do
    better, because a cheat that survives leaves exactly the rows that an honest run would.
    """
    rows = Modular(shares[0].shape[1]).add(*shares)
    width = rows.shape[1] // 2
    return all(verify(row[width:-1], row[None, :width], (int(row[-1]),)) for row in rows)


def composed(orders: tuple[Ints, Ints, Ints]) -> Ints:
    """The input row from which each output row comes."""
    return orders[0][orders[1][orders[2]]]


def selective_failure(messages: Rows, row: int, place: int, node: Node) -> FailureTrial:
    """One shuffle in which server 0 asks whether input `row` became output `place`, and the check answers.

    Kept to show how it fails: the check passes if that is so. Otherwise two rows are wrong, each under a key of its
    own, and both pass in one case of about 2^122 only. So one run in K survives, K being the number of rows, and in it
    the link is as good as certain. All others abort, which tells that input `row` did not become output `place`.
    """
    orders = (
        draw_order(len(messages), node.child(0)),
        draw_order(len(messages), node.child(1)),
        draw_order(len(messages), node.child(2)),
    )
    rows = tagged(messages, node.child("keys"))
    group = Modular(rows.shape[1])
    mask = group.draw(len(rows), node.child("share").secure())
    error = np.zeros(rows.shape[1], np.uint64)
    error[0] = 1
    out = late_shuffle((group.subtract(rows, mask), mask), orders, node, ShuffleCheat(row, place, error))
    return FailureTrial(late_check(out), bool(composed(orders)[place] == row))


def _at(row: int, error: Rows, like: Rows) -> Rows:
    """An error in one row, and nothing elsewhere."""
    out = np.zeros_like(like)
    out[row] = error
    return out
