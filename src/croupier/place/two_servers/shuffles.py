"""Other ways for two servers to shuffle rows of bits: each ends in shares of the shuffled bits modulo 2^32.

"translate": clients share their rows by XOR, and each server permutes shares once, with correlations from the dealer
(Chase, Ghosh and Poburinnaya 2020). "transfer": the same with correlations that the servers make themselves, by
oblivious transfer, so that the dealer knows no order. "onion": clients close their rows in boxes within boxes for the
servers' keys of the attempt. In each case the dealer shares random bits, with which the shuffled bits become numbers.
RAIN's distances and sums are linear in those, as they are after the dealer's own shuffle. For servers that follow the
protocol.

`Mix` says what travels and what clients do; `shuffle_flows` is the servers' part. `pair` takes them by
`protocol.place.shuffle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema
from croupier.kernels.field import Bytes
from croupier.mpc import convert, onion, puncture, transfer, translate, turns
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.group import Xor
from croupier.mpc.occasion import Occasion
from croupier.mpc.seal import POINT
from croupier.place.two_servers.messages import SERVERS

Way = Literal["translate", "transfer", "onion"]
_SEED = Field("seed", "|u1", (32,))
PASSES = ("first", "second")


@dataclass(frozen=True)
class Mix:
    """One of these shuffles for a deck's rows: its messages, what is dealt, and what clients send."""

    way: Way
    deal: DealSpec

    @property
    def group(self) -> Xor:
        """Rows of bits."""
        return Xor(self.deal.size)

    def schemas(self) -> dict[str, Schema]:
        """What is dealt, sent up, and said between the servers until the rows are shuffled numbers."""
        seeds = (_SEED,) if self.way != "translate" else (_SEED, *self._dealt())
        numbers = Field("numbers", "<i4", (self.deal.rows * self.deal.size,))
        dealt = {"bits0": Schema(seeds), "bits1": Schema((*seeds, numbers))}
        row = Field("row", "|u1", (self.deal.width,), spare=self.deal.spare)
        up = {"up0": Schema((_SEED,)), "up1": Schema((row,))}
        if self.way == "onion":
            up = {"lock": Schema((Field("public", "|u1", (POINT,)),)), "up0": Schema((self._box(),))}
        found = dealt | up
        for name in self._talks():
            found |= turns.schemas(name, self.turns(name))
        return found

    def _dealt(self) -> tuple[Field, ...]:
        delta = Field("delta", "|u1", (self.deal.rows, self.deal.width), spare=self.deal.spare)
        return (Field("masks", "|u1", (32,)), Field("order", "|u1", (32,)), delta)

    def _box(self) -> Field:
        return Field("box", "|u1", (onion.size(self.group),))

    def _talks(self) -> tuple[str, ...]:
        return (*(PASSES if self.way == "transfer" else ()), "mix", "convert")

    def turns(self, name: str) -> turns.Turns:
        """How many bytes the servers say, turn by turn."""
        rows, width = self.deal.rows, self.deal.width
        if name == "mix" and self.way == "onion":
            forth, back = onion.passed(self.group)
            return ((rows * forth, 0), (0, rows * back))
        if name == "convert":
            return ((rows * width, rows * width),)
        if name == "mix":
            return ((0, rows * width), (rows * width, 0))
        many = rows * puncture.depth(rows)
        made = ((0, transfer.POINT), (many * transfer.POINT, 0), (0, 2 * many * transfer.SIZE))
        return made if name == PASSES[0] else tuple((two, one) for one, two in made)

    def letters(self, coins: Coins) -> Iterator[Letter]:
        """What the dealer sends: random bits in both forms, and correlations where the servers do not make them."""
        rows, group = self.deal.rows, self.group
        beside: list[dict[str, Tensor]] = [{}, {}]
        if self.way == "translate":
            passes = [translate.deal(group, rows, coins.child(name)) for name in PASSES]
            for me in (0, 1):
                delta = torch.from_numpy(group.unpack(passes[me].delta, rows).copy())
                masks, order = byte_tensor(passes[1 - me].masks), byte_tensor(passes[me].order)
                beside[me] = {"masks": masks, "order": order, "delta": delta}
        bits = convert.deal(group, rows, coins.child("bits"))
        numbers = torch.from_numpy(np.frombuffer(bits.numbers, "<i4").copy())
        yield Letter(SERVERS[0], "bits0", {"seed": byte_tensor(bits.seed0), **beside[0]})
        yield Letter(SERVERS[1], "bits1", {"seed": byte_tensor(bits.seed1), **beside[1], "numbers": numbers})

    def submit(self, given: Given, row: Bytes, coins: Coins) -> SubFlow:
        """A client's part. Reveals: to each server uniform bits, or boxes that it cannot open."""
        if self.way == "onion":
            inbox = yield Exchange(wait=Wait("lock", SERVERS))
            publics = bytes_of(inbox[0].body["public"]), bytes_of(inbox[1].body["public"])
            box = onion.wrap(self.group, row.reshape(1, -1), publics, Occasion.of(given), coins.child("onion"))
            yield Exchange((Letter(SERVERS[0], "up0", {"box": byte_tensor(box)}),))
            return
        seed = coins.child("share").export()
        rest = row ^ self.group.draw(1, Coins(seed).secure())[0]
        yield Exchange((
            Letter(SERVERS[0], "up0", {"seed": byte_tensor(seed)}),
            Letter(SERVERS[1], "up1", {"row": torch.from_numpy(rest)}),
        ))  # fmt: skip
