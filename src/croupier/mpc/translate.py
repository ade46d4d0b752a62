"""Permute and share: one server's rows in the other's secret order, as fresh shares; twice, a shuffle of shared rows.

This is the share translation of Chase, Ghosh and Poburinnaya 2020. π(A) is the matrix whose row i is row π(i) of A. The
sender holds masks (a, b), the permuter an order π and Δ = π(a) - b; together these are a correlation. The sender says
X - a and keeps b; the permuter computes π(X - a) + Δ = π(X) - b. Each server is the permuter once, so row i of the
result is X_{π0(π1(i))} and each server knows one factor of the order. For servers that follow the protocol: one that
does not can link rows.

The correlation is dealt (`deal`) or made by the servers themselves (`correlate`). `place.two_servers.shuffle_flows`
plays it where a description says `shuffle = "translate"` or `"transfer"`, and `croupier bench shuffles` times it.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.core.coins import Coins, Ints, Node
from croupier.errors import ProtocolError, RangeError, WireError
from croupier.mpc.group import Group, Rows
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.talk import Talk


@dataclass(frozen=True)
class SenderHalf:
    """The sender's half of a correlation."""

    a: Rows
    b: Rows

    def __repr__(self) -> str:
        return "SenderHalf(...)"


@dataclass(frozen=True)
class PermuterHalf:
    """The permuter's half: its order, and what turns masked rows in that order into shares."""

    order: Ints
    delta: Rows

    def __repr__(self) -> str:
        return "PermuterHalf(...)"


@dataclass(frozen=True)
class TranslationDeal:
    """One correlation as the dealer sends it: a seed to the sender; a seed and the packed Δ to the permuter."""

    masks: bytes
    order: bytes
    delta: bytes

    def __repr__(self) -> str:
        return "TranslationDeal(...)"


def draw_masks(group: Group, rows: int, node: Node) -> SenderHalf:
    """Uniform masks."""
    return SenderHalf(
        group.draw(rows, node.child("a").secure()),
        group.draw(rows, node.child("b").secure()),
    )


def draw_order(rows: int, node: Node) -> Ints:
    """A uniform order."""
    return node.child("order").secure().permutation(rows)


def fit(group: Group, masks: SenderHalf, order: Ints) -> PermuterHalf:
    """The half of a correlation that fits these masks and this order: Δ = π(a) - b."""
    return PermuterHalf(order, group.subtract(masks.a[order], masks.b))


def deal(group: Group, rows: int, coins: Coins) -> TranslationDeal:
    """A correlation from a dealer, who must side with neither server and sees no message of theirs."""
    if rows < 2:
        raise RangeError(f"rows = {rows}: an order of fewer than two rows hides nothing")
    masks, order = coins.child("masks"), coins.child("turn")
    turn = fit(group, draw_masks(group, rows, masks), draw_order(rows, order))
    return TranslationDeal(masks.export(), order.export(), group.pack(turn.delta))


def open_masks(group: Group, rows: int, seed: bytes) -> SenderHalf:
    """The sender's half, from the seed that the dealer sent it."""
    return draw_masks(group, rows, Coins(seed))


def open_turn(group: Group, rows: int, seed: bytes, delta: bytes) -> PermuterHalf:
    """The permuter's half, from the seed and the packed Δ that the dealer sent it."""
    return PermuterHalf(draw_order(rows, Coins(seed)), group.unpack(delta, rows))


def send(group: Group, share: Rows, masks: SenderHalf) -> Talk[Rows]:
    """The sender's pass: says its masked rows, and keeps shares of them in an order that it does not know."""
    if share.shape != masks.a.shape:
        raise RangeError(f"rows of shape {share.shape} do not fit masks of shape {masks.a.shape}")
    if (yield group.pack(group.subtract(share, masks.a))):
        raise WireError("the permuter of a pass has nothing to say, and said something")
    return masks.b


def permute(group: Group, turn: PermuterHalf) -> Talk[Rows]:
    """The permuter's pass: shares of the sender's rows in its own order."""
    masked = group.unpack((yield b""), len(turn.order))
    return group.add(masked[turn.order], turn.delta)


@dataclass(frozen=True)
class Stock:
    """What one server brings to a shuffle: its half of the pass in which it permutes, and of the other one."""

    turn: PermuterHalf
    masks: SenderHalf


def shuffle(group: Group, share: Rows, stock: SingleUse[Stock], first: bool, occasion: Occasion) -> Talk[Rows]:
    """One server's side of a shuffle of shared rows; `first` is the server that permutes first.

    Reveals: to each server its own factor of the order, and uniform rows.
    """
    mine = stock.take(occasion)
    if len(share) != len(mine.turn.order):
        raise ProtocolError(
            f"{len(share)} rows, and a correlation for {len(mine.turn.order)}; deal one for this roster"
        )
    if not first:
        share = yield from send(group, share, mine.masks)
    theirs = yield from permute(group, mine.turn)
    share = group.add(share[mine.turn.order], theirs)
    if first:
        share = yield from send(group, share, mine.masks)
    return share
