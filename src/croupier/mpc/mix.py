"""A chain of servers that permute rows which none of them can read: dealt masks, or three servers with common seeds.

Rows are shared by XOR. `Cells` says what a row is made of; a `Move` permutes rows as coins say, whatever they hold, and
comes from the release that is computed. Below, P_t is the move that server t makes.

*With a dealer*, any number k of servers. This is the share translation of Chase, Ghosh and Poburinnaya 2020, of which
`translate` is the form for two. Each server s but the first draws a mask a_s and sends its share X_s + a_s to the
first, which then holds X + a, where a is the sum of all a_s. From then on rows pass from server to server, always under
some mask. The dealer gives server t the rows D_t = P_t(m_{t-1}) + m_t, with m_0 = a. From Z_{t-1}, the rows that the
first t - 1 servers moved, under the mask m_{t-1}, server t makes Z_t = P_t(Z_{t-1}) + D_t, which lies under the mask
m_t. The last mask m_k is the sum of b_1 to b_{k-1}, one of each server but the last, which they open to the receiver.
The dealer sends one D for each pass and not one for each pair, because D is linear in the masks.

Suppose that all servers but h collude: they know all moves but P_h, and all masks that are opened. They see Z_{h-1}
under m_{h-1}, which depends on a_h (where h = 1, they lack X_1 instead), and after that only rows that P_h has moved.
The dealer knows every mask: together with any server it reads every row.

*Three servers, no dealer*, from Laur, Willemson and Zhang 2011. Two servers hold shares of X. The pairs (1, 2), (2, 3)
and (3, 1) act in turn: the pair draws a move P and a mask r from a common seed, the first of it hands P(X_first) + r to
the third server, and the second keeps P(X_second) + r. Each server misses one of three moves. Any two know all three.

Both are for servers that follow the protocol. `place.chain.dealt` plays the first and `place.chain.pairs` the second;
in both, clients share their rows by `shared`, as `place.chain.form` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Choices, Coins, Node
from croupier.errors import RangeError

Rows = npt.NDArray[Any]
Move = Callable[[Rows, Node], Rows]


@dataclass(frozen=True)
class Cells:
    """Rows of so many unsigned words of a NumPy kind, of which the lowest `bits` are used.

    Where words are bytes that hold packed bits, the last `spare` bits of a row are 0.
    """

    slots: int
    kind: str
    bits: int
    spare: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8 * np.dtype(self.kind).itemsize:
            raise RangeError(f"bits = {self.bits}: a word of {self.kind} has 1 to {8 * np.dtype(self.kind).itemsize}")

    def zeros(self, rows: int) -> Rows:
        """Rows of 0."""
        return np.zeros((rows, self.slots), self.kind)

    def draw(self, rows: int, choices: Choices) -> Rows:
        """Uniform rows."""
        out = self.zeros(rows)
        choices.blind(out.reshape(-1), self.bits)
        out &= out.dtype.type((1 << self.bits) - 1)
        if self.spare and self.slots:
            out[:, -1] &= out.dtype.type(0xFF >> self.spare)
        return out


@dataclass(frozen=True)
class MixHand:
    """What the dealer hands one server: a seed, and the D of the pass in which it permutes."""

    seed: bytes = field(repr=False)
    delta: Rows = field(repr=False)


def shared(cells: Cells, row: Rows, seeds: Sequence[bytes]) -> Rows:
    """The long share: what is left of a row when the rows that seeds stand for are taken away from it.

    Each holder but one gets a seed, from which it draws its share; the one that is left gets these words.
    """
    rest = row.reshape(1, -1).copy()
    for seed in seeds:
        rest ^= stretched(cells, seed)
    return rest


def stretched(cells: Cells, seed: bytes, rows: int = 1) -> Rows:
    """The rows that a seed stands for."""
    return cells.draw(rows, Coins(seed).secure())


def entry_mask(cells: Cells, rows: int, hand: Node) -> Rows:
    """a_s: what a server but the first adds to its share before it says it."""
    return cells.draw(rows, hand.child("a").secure())


def last_mask(cells: Cells, rows: int, hand: Node) -> Rows:
    """b_s: what a server but the last opens to the receiver."""
    return cells.draw(rows, hand.child("b").secure())


def between(cells: Cells, rows: int, number: int, masks: Node) -> Rows:
    """The dealer's own mask between two passes."""
    return cells.draw(rows, masks.child("between", number).secure())


def deltas(cells: Cells, rows: int, move: Move, hands: Sequence[Node], coins: Node) -> list[Rows]:
    """D of each pass. The dealer's own masks between passes come from `coins`."""
    if rows < 2:
        raise RangeError(f"rows = {rows}: an order of fewer than two rows hides nothing")
    before = cells.zeros(rows)
    for hand in hands[1:]:
        before ^= entry_mask(cells, rows, hand)
    found = []
    for number, hand in enumerate(hands):
        after = between(cells, rows, number, coins) if number + 1 < len(hands) else opened_mask(cells, rows, hands[:-1])
        found.append(move(before, hand.child("order")) ^ after)
        before = after
    return found


def opened_mask(cells: Cells, rows: int, hands: Sequence[Node]) -> Rows:
    """m_k, once all servers but the last opened their parts of it."""
    mask = cells.zeros(rows)
    for hand in hands:
        mask ^= last_mask(cells, rows, hand)
    return mask


def deal(cells: Cells, rows: int, servers: int, move: Move, coins: Coins) -> list[MixHand]:
    """What a dealer hands out for one shuffle; it must side with no server and sees no message of theirs."""
    seeds = [coins.child("hand", number).export() for number in range(servers)]
    found = deltas(cells, rows, move, [Coins(seed) for seed in seeds], coins.child("masks"))
    return [MixHand(seed, delta) for seed, delta in zip(seeds, found, strict=True)]


def passed(rows: Rows, delta: Rows, move: Move, order: Node) -> Rows:
    """A server's pass: it makes Z_t from Z_{t-1}."""
    return move(rows, order) ^ delta


def paired(cells: Cells, share: Rows, move: Move, common: Node) -> Rows:
    """A pass among three servers, at either server of the pair: its share, moved and under the common mask."""
    return move(share, common.child("order")) ^ cells.draw(len(share), common.child("r").secure())
