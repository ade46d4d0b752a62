"""RAIN's middle step, on shares of shuffled rows of signs: distances, weights, and a sum or its signs.

`server_flow` plays it at both servers, and `pooled` again for what the second one sees alone. A deck is what the dealer
deals for a round; hd and z are opened distances and sums.

With open scores and sums everything is linear and nothing more is dealt. Signs, and scores that stay secret, take gates
(`mpc.signs`, `mpc.trust`) whose material the dealer sends besides, as `gates0` and `gates1`. Where the numbers of the
secret rule do not fit 32 bits, shares of the bits are made anew in 64 (`lift0`, `lift1`): the lowest bits of two shares
by addition modulo a power of two are shares by XOR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Letter, SubFlow
from croupier.core.wire import Schema
from croupier.errors import IntegrityError, ProtocolError
from croupier.kernels import field as kernel
from croupier.kernels.field import Bytes
from croupier.mpc import boolean, dealt_shares, products, signs, trust
from croupier.mpc.authentic import TaggedShares
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.dealt_shares import DealtShare
from croupier.mpc.ring import Z32
from croupier.mpc.tallies import Tally, centred
from croupier.release.release import Release
from croupier.release.scoring import ScoreRule

Opener = Callable[[str, str, TaggedShares], SubFlow]
SIGN, TRUST, LIFT = "sign", "t", "lift"


@dataclass(frozen=True)
class Scoring:
    """How a release is computed for a deck's rows, and what the dealer adds to the deck for it."""

    release: ScoreRule
    deal: DealSpec

    @classmethod
    def of(cls, release: Release, deal: DealSpec) -> Self:
        """For a release that scores rows. Raises: ProtocolError for any other."""
        if release.scoring is None:
            raise ProtocolError(f"place = 'pair' computes release = 'scored', not {release.use!r}")
        return cls(release.scoring, deal)

    @property
    def secret(self) -> bool:
        """Whether no distance is opened."""
        return self.release.scores == "secret"

    @property
    def rule(self) -> trust.SecretRule:
        """The rule that is followed where scores stay secret."""
        printed = self.release.printed(self.deal.size)
        return trust.SecretRule(self.deal.rows, self.deal.size, printed.num, printed.den, printed.floor)

    @property
    def gates(self) -> Mapping[str, int]:
        """Bytes of the explicit part of every kind of material, by kind."""
        if not self.secret:
            return {"gates": signs.fitted(self.deal.size)} if self.release.opens == "signs" else {}
        rule = self.rule
        wide = {"lift": products.fitted(rule.clients * rule.params, rule.ring)} if rule.ring != Z32 else {}
        return {"gates": trust.fitted(rule), **wide}

    def schemas(self) -> dict[str, Schema]:
        """The dealer's additional letters, and those of the gates."""
        dealt = {f"{kind}{me}": dealt_shares.schema(me, size) for kind, size in self.gates.items() for me in (0, 1)}
        if not self.secret:
            return dealt | (signs.schemas(SIGN, self.deal.size) if self.gates else {})
        lift = products.numbers_schemas(LIFT, self.deal.rows * self.deal.size) if "lift" in self.gates else {}
        return dealt | lift | trust.schemas(TRUST, self.rule)

    @property
    def unused_kinds(self) -> frozenset[str]:
        """Kinds of the plain round that this one has no use for."""
        return frozenset({"hd", "z"} if self.secret else {"z"} if self.gates else ())

    def letters(self, servers: tuple[str, str], coins: Coins) -> Iterator[Letter]:
        """The letters that the dealer adds to the deck."""
        for kind in self.gates:
            for me, material in enumerate(self._dealt(kind, coins.child(kind))):
                yield Letter(servers[me], f"{kind}{me}", material.body())

    def _dealt(self, kind: str, coins: Coins) -> tuple[DealtShare, DealtShare]:
        if kind == "lift":
            return products.deal_numbers(self.deal.rows * self.deal.size, coins, self.rule.ring)
        return trust.deal(self.rule, coins) if self.secret else signs.deal(self.deal.size, coins)

    def kinds(self, me: int) -> tuple[str, ...]:
        """The kinds of the dealer's additional letters to one server."""
        return tuple(f"{kind}{me}" for kind in self.gates)

    def received(self, me: int, told: Mapping[str, Mapping[str, Tensor]]) -> dict[str, DealtShare]:
        """One server's additional material, from the dealer's letters."""
        return {kind: DealtShare.received(me, told[f"{kind}{me}"]) for kind in self.gates}


@dataclass(frozen=True)
class ScoreFlow:
    """One server's side of the computation."""

    scoring: Scoring
    tally: Tally
    peer: str
    gates: Mapping[str, DealtShare]
    opened: Opener = field(repr=False)

    def play(self, hidden: Bytes, reference: npt.NDArray[np.uint8]) -> SubFlow:
        """What is released of the rows. Raises: IntegrityError when an opened number is not a possible one."""
        if self.scoring.secret:
            return (yield from self._secretly(hidden, reference))
        release, size = self.scoring.release, self.tally.deal.size
        held = self.tally.distances(hidden, kernel.packed(reference))
        distances = centred((yield from self.opened("hd", "v2", held)), size)
        if (distances < 0).any():
            raise IntegrityError("round aborted: a distance below 0 was opened")
        verdict = release.judge(distances, size)
        # Also where no row counts: that nothing was opened would show in the traffic.
        held = self.tally.sums(hidden, verdict.weights)
        if release.opens == "signs":
            sums = yield from self._signs(held)
        else:
            sums = centred((yield from self.opened("z", "v3", held)), verdict.total)
        return release.let_out(sums, verdict.total, distances)

    def _signs(self, held: TaggedShares) -> SubFlow:
        found = yield from signs.flow(self.tally.me, self.peer, SIGN, held.values, self.gates["gates"])
        return found.astype(np.int64)

    def _secretly(self, hidden: Bytes, reference: npt.NDArray[np.uint8]) -> SubFlow:
        """The signs by the printed rule, without opening scores. Reveals: the signs."""
        me, rule = self.tally.me, self.scoring.rule
        votes = _bits(self.tally, hidden)
        if "lift" in self.gates:
            low = boolean.packed((votes & 1).reshape(-1))
            flat = yield from products.numbers(
                me, self.peer, LIFT, low, votes.size, self.gates["lift"], rule.ring
            )  # fmt: skip
            votes = flat.reshape(votes.shape)
        found = yield from trust.secret_rule(
            me, self.peer, TRUST, votes, self.gates["gates"], rule, reference.astype(np.int64)
        )
        return self.scoring.release.let_out(found.astype(np.int64))


def _bits(tally: Tally, hidden: Bytes) -> npt.NDArray[np.uint32]:
    """Shares modulo 2^32 of every bit of every row."""
    out = np.empty((tally.deal.rows, tally.deal.size), np.uint32)
    for start, stop, numbers, _ in tally.shares.blocks():
        known = kernel.bits_of(np.ascontiguousarray(hidden[:, start // 8 : -(-stop // 8)]), stop - start)
        known = known.astype(np.uint32)
        # q + s - 2qs: where q is 1, minus the share; and the first server adds what is public.
        out[:, start:stop] = np.where(known, -numbers, numbers) + (0 if tally.me else known)
    return out


def beside(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is released besides the sums."""
    return {name: values for name, values in found.items() if name != "sums"}
