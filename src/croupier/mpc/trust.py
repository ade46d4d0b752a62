"""RAIN's rule with everything secret: threshold, weights and weighted votes are computed on shares, signs are opened.

This is RAIN's Algorithm 2 as printed, with the threshold that the paper takes for granted. For distances h_i of votes
to a reference, tau = median(h) + c MAD(h), where MAD is the median of |h_i - median(h)|. Weights are
w_i = max(0, tau - h_i), and z = sum_i w_i (2 y_i - 1) of votes y_i of 0 and 1. All of it in whole numbers, without any
rounding: medians are kept twice, c is a public fraction num / den, and weights carry the factor 4 den, which no sign
depends on.

Reveals: to both parties the signs of z, and nothing else. Semi-honest: a party that lies changes the outcome unseen.

Used where a description says `scores = "secret"` (`place.two_servers.scoring`). `release.printed` has its weights
in the clear: tests and `croupier bench gates` hold both against each other, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.core.flow import SubFlow
from croupier.core.wire import Schema
from croupier.errors import RangeError, SpecError
from croupier.mpc import compare, products, ranks, signs
from croupier.mpc.dealt_shares import Dealer, DealtShare, ShareReader
from croupier.mpc.ring import Residues, Ring, kind
from croupier.mpc.signs import Signs, Ties


@dataclass(frozen=True)
class SecretRule:
    """Sizes and constants, all public: c = num / den, and a least MAD, in quarters of a vote (0: none)."""

    clients: int
    params: int
    num: int = 380
    den: int = 256
    floor: int = 0
    ties: Ties = "zero"

    def __post_init__(self) -> None:
        for name, least in {"clients": 1, "params": 1, "num": 0, "den": 1, "floor": 0}.items():
            if getattr(self, name) < least:
                raise SpecError(f"{name} = {getattr(self, name)}: a rule needs at least {least}")
        if self.largest >= 1 << 63:
            raise RangeError(
                f"{self.clients} clients with weights up to {self.heaviest} reach {self.largest}, and residues of 2^64 "
                f"end before {1 << 63}; use a smaller den than {self.den}, or fewer parameters than {self.params}"
            )

    @property
    def heaviest(self) -> int:
        """No weight is larger: all of the distance and all of the spread there can be."""
        return 4 * self.den * self.params + max(1, self.num) * max(4 * self.params, self.floor)

    @property
    def largest(self) -> int:
        """No |z| is larger, nor any other number on the way."""
        return self.clients * self.heaviest

    @property
    def ring(self) -> Ring:
        """The smaller ring that holds every number on the way with its sign."""
        return Ring(32 if self.largest < 1 << 31 else 64)


def distances(me: int, votes: npt.NDArray[np.integer], reference: npt.NDArray[np.integer], ring: Ring) -> Residues:
    """Shares of each row's Hamming distance to a public reference of zeros and ones, from shares of the rows."""
    side = ring.residues(reference)
    found: Residues = ring.residues(votes) @ (1 - 2 * side)
    return found if me else found + side.sum(dtype=ring.dtype)


def weights(
    me: int, peer: str, prefix: str, shares: npt.NDArray[np.integer], rule: SecretRule, reader: ShareReader
) -> SubFlow:
    """Shares of 4 den w_i from shares of distances, 0 to `params` each. Reveals: uniform numbers only."""
    ring = rule.ring
    h = ring.residues(shares)
    middle = yield from ranks.median(me, peer, f"{prefix}.s", h, ring, reader)
    off = 2 * h - middle
    less = yield from compare.negative(me, peer, f"{prefix}.v", off, ring, reader)
    spread = yield from ranks.median(me, peer, f"{prefix}.t", off - 2 * less, ring, reader)
    if rule.floor:
        least = ring.residues(np.array([0 if me else rule.floor]))
        less = yield from compare.negative(me, peer, f"{prefix}.f", spread - least, ring, reader)
        spread = spread - less
    fixed = ring.residues(np.array([2 * rule.den, rule.num, 4 * rule.den]))
    above = fixed[0] * middle + fixed[1] * spread - fixed[2] * h
    less = yield from compare.negative(me, peer, f"{prefix}.w", above, ring, reader)
    return above - less


def secret_rule(
    me: int, peer: str, prefix: str, shares: npt.NDArray[np.integer], material: DealtShare, rule: SecretRule,
    reference: npt.NDArray[np.integer], previous: Signs | None = None,
) -> SubFlow:  # fmt: skip
    """The signs of z, from shares of the votes (clients by params). Reveals: the signs (see `signs`).

    Votes travel masked, clients times params residues each way: for models of few parameters.
    """
    _check(rule, shares, reference, previous)
    reader, ring = material.open(me, fitted(rule)), rule.ring
    votes = ring.residues(shares)
    trust = yield from weights(me, peer, prefix, distances(me, votes, reference, ring), rule, reader)
    rows = 2 * votes - (0 if me else 1)
    z = yield from products.weighted(me, peer, kind(prefix, "z"), trust, rows, ring, reader)
    return (yield from signs.steps(me, peer, f"{prefix}.o", z, ring, previous, reader))


def _check(
    rule: SecretRule, shares: npt.NDArray[np.integer], reference: npt.NDArray[np.integer], previous: Signs | None
) -> None:
    if shares.shape != (size := (rule.clients, rule.params)) or reference.shape != size[1:]:
        raise SpecError(f"votes of shape {shares.shape} and a reference of {reference.shape}: the rule is for {size}")
    if bool((reference < 0).any() or (reference > 1).any()):
        raise SpecError("the reference holds other numbers than 0 and 1; give its signs as bits, 1 for +1")
    if (previous is None) != (rule.ties == "zero"):
        given = "none were" if previous is None else "they were"
        raise SpecError(f"ties = {rule.ties!r}: previous signs belong to ties = 'previous', and {given} given")


def _gates(prefix: str, rule: SecretRule) -> Iterable[tuple[str, int]]:
    """The prefix and the size of every comparison of `weights`, in order."""
    yield from ranks.gates(f"{prefix}.s", rule.clients)
    yield f"{prefix}.v", rule.clients
    yield from ranks.gates(f"{prefix}.t", rule.clients)
    if rule.floor:
        yield f"{prefix}.f", 1
    yield f"{prefix}.w", rule.clients


def deal_weights(dealer: Dealer, rule: SecretRule) -> None:
    """Deal what `weights` draws."""
    for _, count in _gates("", rule):
        compare.deal_negative(dealer, count, rule.ring)


def deal(rule: SecretRule, coins: Coins) -> tuple[DealtShare, DealtShare]:
    """Both halves for one `secret_rule`."""
    dealer = Dealer(coins)
    deal_weights(dealer, rule)
    products.deal_weighted(dealer, rule.clients, rule.params, rule.ring)
    compare.deal_into(dealer, rule.params, rule.ring, rule.ties == "zero")
    return dealer.halves()


def schemas(prefix: str, rule: SecretRule) -> dict[str, Schema]:
    """The letters of `secret_rule`."""
    out = dict[str, Schema]()
    for name, count in _gates(prefix, rule):
        out |= compare.negative_schemas(name, count, rule.ring)
    out[kind(prefix, "z")] = products.weighted_schema(rule.clients, rule.params, rule.ring)
    return out | signs.schemas(f"{prefix}.o", rule.params, rule.ring, rule.ties)


def fitted(rule: SecretRule) -> int:
    """Bytes of the explicit part of what is dealt."""
    gates = sum(compare.negative_fitted(count, rule.ring) for _, count in _gates("", rule))
    return gates + rule.params * rule.ring.dtype.itemsize + signs.fitted(rule.params, rule.ring, rule.ties)
