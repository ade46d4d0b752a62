"""The two servers' flow where rows are not shuffled by the dealer's own material but by one of the other shuffles.

`server_flow` does all that is common: agreeing on clients before the shuffle, scoring after it. What differs is in
between, where rows become shares of shuffled rows: `shuffles` says which messages there are, and `mpc.turns` makes
letters of the bytes that the servers exchange. `pair` plays `Sharer` or `Unboxer` at both servers, by
`protocol.place.shuffle`. For semi-honest servers only: the check of a malicious one rests on the dealer's own shuffle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Letter, SubFlow, Wait
from croupier.mpc import convert, correlate, onion, translate, turns
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.convert import DaBits, Numbers
from croupier.mpc.deal_shares import Block, DealSpec
from croupier.mpc.group import Rows
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.seal import Lock
from croupier.mpc.tallies import Tally
from croupier.mpc.translate import PermuterHalf, SenderHalf, Stock
from croupier.place.two_servers.scoring import ScoreFlow
from croupier.place.two_servers.server_flow import ServerFlow
from croupier.place.two_servers.shuffles import PASSES, Mix, Way

T = TypeVar("T")
Bodies = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class Whole:
    """Shares of all bits of all rows, in memory."""

    deal: DealSpec
    numbers: Numbers = field(repr=False)

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        """Copies of what is there, block after block."""
        for start, stop in self.deal.blocks:
            yield start, stop, np.ascontiguousarray(self.numbers[:, start:stop]), None


@dataclass
class ShuffleFlow(ServerFlow, Generic[T]):
    """One of the two servers in one attempt; what it brings to the shuffle is good for that attempt alone."""

    way: Way = "translate"

    @property
    def mix(self) -> Mix:
        """The messages of this shuffle."""
        return Mix(self.way, self.deal)

    @property
    def occasion(self) -> Occasion:
        """The attempt that all material is bound to."""
        return Occasion.of(self.given)

    def play(self, late: Mapping[str, Tensor] | None) -> SubFlow:
        """Everything, from what is dealt to what is released. Raises: TooFew while nothing is opened."""
        told = yield from self._from_dealer((f"bits{self.me}", *self.scoring.kinds(self.me)))
        dealt, gates = told[f"bits{self.me}"], self.scoring.received(self.me, told)
        stock = yield from self._stock(dealt)
        got: Bodies = yield from self._arrived(stock)
        present = yield from self._met(tuple(got))
        late = yield from self._shown(late, b"")
        share = yield from self._mixed(SingleUse(stock, self.occasion), {name: got[name] for name in present})
        bits = SingleUse(self._bits(dealt), self.occasion)
        talk = convert.convert(self.mix.group, share, bits, self.me == 0, self.occasion)
        numbers = yield from turns.flow(self.me, self.peer, "convert", talk, self.mix.turns("convert"))
        tally = Tally(self.deal, Whole(self.deal, numbers), self.me, 0)
        table = ScoreFlow(self.scoring, tally, self.peer, gates, self._plainly)
        # Nothing hides the rows any more but the shares themselves.
        return (yield from self._released(table, self.mix.group.zeros(self.deal.rows), late, present))

    def _bits(self, dealt: Mapping[str, Tensor]) -> DaBits:
        group, rows, seed = self.mix.group, self.deal.rows, bytes_of(dealt["seed"])
        if self.me == 0:
            return convert.open_seed(group, rows, seed)
        return convert.open_numbers(group, rows, seed, bytes_of(dealt["numbers"]))

    def _arrived(self, stock: T) -> SubFlow:
        """What clients sent."""
        inbox = yield Exchange(wait=Wait(f"up{self.me}", self.given.roster, 0))
        return {letter.source: letter.body for letter in inbox}

    @abstractmethod
    def _stock(self, dealt: Mapping[str, Tensor]) -> SubFlow:
        """What this server brings to the shuffle: correlations, or a key."""

    @abstractmethod
    def _mixed(self, stock: SingleUse[T], got: Bodies) -> SubFlow:
        """Shares by XOR of the shuffled rows."""


class Sharer(ShuffleFlow[Stock]):
    """The servers of "translate" and "transfer": rows are shared by XOR, and each server permutes them once."""

    def _stock(self, dealt: Mapping[str, Tensor]) -> SubFlow:
        """Its halves of two correlations: dealt, or made with the other server."""
        group, rows = self.mix.group, self.deal.rows
        if self.way == "translate":
            turn = translate.open_turn(group, rows, bytes_of(dealt["order"]), bytes_of(dealt["delta"]))
            return Stock(turn, translate.open_masks(group, rows, bytes_of(dealt["masks"])))
        if self.me == 0:
            turn = yield from self._take(PASSES[0])
            return Stock(turn, (yield from self._give(PASSES[1])))
        masks: SenderHalf = yield from self._give(PASSES[0])
        return Stock((yield from self._take(PASSES[1])), masks)

    def _take(self, name: str) -> SubFlow:
        node = self.coins.child(name)
        order = translate.draw_order(self.deal.rows, node)
        talk = correlate.take(self.mix.group, order, self.occasion, name, node)
        turn: PermuterHalf = yield from turns.flow(self.me, self.peer, name, talk, self.mix.turns(name))
        return turn

    def _give(self, name: str) -> SubFlow:
        talk = correlate.give(self.mix.group, self.deal.rows, self.occasion, name, self.coins.child(name))
        return (yield from turns.flow(self.me, self.peer, name, talk, self.mix.turns(name)))

    def _mixed(self, stock: SingleUse[Stock], got: Bodies) -> SubFlow:
        talk = translate.shuffle(self.mix.group, self._share(got), stock, self.me == 0, self.occasion)
        return (yield from turns.flow(self.me, self.peer, "mix", talk, self.mix.turns("mix")))

    def _share(self, got: Bodies) -> Rows:
        """Its shares of the rows in the order of the roster; of a missing client's, uniform bits of its own."""
        group, out = self.mix.group, list[Rows]()
        for name in self.given.roster:
            if name not in got:
                out.append(group.draw(1, self.coins.child("stands for", name).secure())[0])
            elif self.me == 0:
                out.append(group.draw(1, Coins(bytes_of(got[name]["seed"])).secure())[0])
            else:
                out.append(got[name]["row"].numpy())
        return np.stack(out)


class Unboxer(ShuffleFlow[Lock]):
    """The servers of "onion": rows come in boxes for keys of this attempt."""

    def _stock(self, dealt: Mapping[str, Tensor]) -> SubFlow:
        """Its key, of which the clients are told the public half."""
        lock = Lock.make(self.coins.child("lock"))
        said = {"public": byte_tensor(lock.public)}
        yield Exchange(tuple(Letter(name, "lock", said) for name in self.given.roster))
        return lock

    def _arrived(self, stock: Lock) -> SubFlow:
        """Boxes come to the first server alone, and it says whose it can open."""
        if self.me:
            return {name: {} for name in self.given.roster}
        inbox = yield Exchange(wait=Wait("up0", self.given.roster, 0))
        group, now = self.mix.group, self.occasion
        return {
            letter.source: letter.body
            for letter in inbox
            if onion.sound(group, bytes_of(letter.body["box"]), stock, now)
        }

    def _mixed(self, stock: SingleUse[Lock], got: Bodies) -> SubFlow:
        group, node = self.mix.group, self.coins.child("mix")
        if self.me == 0:
            boxes = {name: bytes_of(body["box"]) for name, body in got.items()}
            talk = onion.enter(group, boxes, stock, self.occasion, node)
        else:
            talk = onion.leave(group, len(got), stock, self.occasion, node)
        return (yield from turns.flow(self.me, self.peer, "mix", talk, self.mix.turns("mix")))
