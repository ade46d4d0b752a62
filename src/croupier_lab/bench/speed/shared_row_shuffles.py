"""Shuffles of rows of bits that two servers share, side by side: what each costs before the round, and in it.

`croupier bench shuffles` runs it. All parties work one after another in this process, so seconds are those of everybody
together; bytes are those of the messages, without headers. Every result is put together again and compared with the
rows that went in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from pydantic import Field

from croupier.core.coins import Coins
from croupier.errors import CroupierError
from croupier.mpc import convert, correlate, onion, translate
from croupier.mpc.group import Rows, Xor
from croupier.mpc.occasion import Occasion, SingleUse
from croupier.mpc.seal import Lock
from croupier.mpc.talk import converse
from croupier.mpc.translate import Stock
from croupier_lab.bench.size import BenchSize, Watch, ignore

NOW = Occasion(bytes(16), 0, 0, bytes(32))
LABELS = {
    "dealer": "permute and share, the correlation from a dealer",
    "transfer": "permute and share, the correlation from oblivious transfer and punctured trees, no dealer",
    "onion": "rows in boxes within boxes, no dealer and no correlation",
    "dabits": "no shuffle: shuffled bits to numbers modulo 2^32, with a dealer's daBits",
}


class RowShufflesSize(BenchSize):
    """How much is shuffled: clients (rows), parameters (bits of a row), and timed repeats."""

    clients: int = Field(100, ge=2, description="Clients, and so rows.")
    params: int = Field(100_000, ge=1, description="Parameters, and so bits of a row.")
    repeats: int = Field(3, ge=1, description="Timed repeats of each form; the best counts.")


@dataclass(frozen=True)
class ShuffleCost:
    """Before the round (offline) and in it (online), all parties together; and what one client sends."""

    offline_s: float
    offline_bytes: int
    online_s: float
    online_bytes: int
    client_bytes: int
    turns: int


@dataclass(frozen=True)
class SharedRows:
    """Rows of bits, and shares of them for two servers."""

    group: Xor
    clear: Rows
    one: Rows
    two: Rows

    @classmethod
    def draw(cls, size: RowShufflesSize, coins: Coins) -> SharedRows:
        """Uniform rows; a row's bits make no difference to any cost."""
        group = Xor(size.params)
        clear = group.draw(size.clients, coins.child("clear").secure())
        two = group.draw(size.clients, coins.child("share").secure())
        return cls(group, clear, clear ^ two, two)

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.clear)

    @property
    def upload(self) -> int:
        """What a client sends to share its row: a seed to one server, the rest to the other."""
        return self.group.size + 32

    def check(self, out: Rows, name: str) -> None:
        """Raises: CroupierError when rows went missing or changed."""
        if sorted(row.tobytes() for row in out) != sorted(row.tobytes() for row in self.clear):
            raise CroupierError(f"{name}: the shuffled rows are not those that went in")


def dealer(case: SharedRows, coins: Coins) -> ShuffleCost:
    """A dealer deals both correlations, and the servers shuffle."""
    start = time.perf_counter()
    first, second = (translate.deal(case.group, case.rows, coins.child(number)) for number in (0, 1))
    turns = [translate.open_turn(case.group, case.rows, d.order, d.delta) for d in (first, second)]
    masks = [translate.open_masks(case.group, case.rows, d.masks) for d in (second, first)]
    spent = time.perf_counter() - start
    sent = sum(len(d.masks) + len(d.order) + len(d.delta) for d in (first, second))
    return _shuffled(case, Stock(turns[0], masks[0]), Stock(turns[1], masks[1]), spent, sent, "dealer")


def transfer(case: SharedRows, coins: Coins) -> ShuffleCost:
    """The servers make both correlations themselves, and shuffle."""
    start = time.perf_counter()
    made = []
    for number in ("first", "second"):
        node = coins.child(number)
        order = translate.draw_order(case.rows, node.child("order"))
        give = correlate.give(case.group, case.rows, NOW, number, node.child("give"))
        made.append(converse(give, correlate.take(case.group, order, NOW, number, node.child("take"))))
    spent = time.perf_counter() - start
    first, second = made
    stocks = Stock(first.two, second.one), Stock(second.two, first.one)
    return _shuffled(case, *stocks, spent, first.size + second.size, "transfer")


def _shuffled(
    case: SharedRows, stock0: Stock, stock1: Stock, offline_s: float, offline_bytes: int, name: str
) -> ShuffleCost:
    start = time.perf_counter()
    done = converse(
        translate.shuffle(case.group, case.one, SingleUse(stock0, NOW), True, NOW),
        translate.shuffle(case.group, case.two, SingleUse(stock1, NOW), False, NOW),
    )
    spent = time.perf_counter() - start
    case.check(done.one ^ done.two, name)
    return ShuffleCost(offline_s, offline_bytes, spent, done.size, case.upload, len(done.from_one))


def boxes(case: SharedRows, coins: Coins) -> ShuffleCost:
    """Clients wrap their rows (counted as online), and the servers unwrap and permute them."""
    start = time.perf_counter()
    locks = [Lock.make(coins.child("lock", number)) for number in (0, 1)]
    publics = locks[0].public, locks[1].public
    offline = time.perf_counter() - start
    start = time.perf_counter()
    arrived = {
        f"c{number}": onion.wrap(case.group, row, publics, NOW, coins.child("client", number))
        for number, row in enumerate(case.clear)
    }
    done = converse(
        onion.enter(case.group, arrived, SingleUse(locks[0], NOW), NOW, coins.child("server", 0)),
        onion.leave(case.group, case.rows, SingleUse(locks[1], NOW), NOW, coins.child("server", 1)),
    )
    spent = time.perf_counter() - start
    case.check(done.one ^ done.two, "onion")
    # Offline each client is sent two public keys.
    known = case.rows * sum(map(len, publics))
    return ShuffleCost(offline, known, spent, done.size, onion.size(case.group), len(done.from_one))


def dabits(case: SharedRows, coins: Coins) -> ShuffleCost:
    """A dealer deals daBits, and the servers turn their bits into numbers."""
    start = time.perf_counter()
    dealt = convert.deal(case.group, case.rows, coins)
    half0 = convert.open_seed(case.group, case.rows, dealt.seed0)
    half1 = convert.open_numbers(case.group, case.rows, dealt.seed1, dealt.numbers)
    offline = time.perf_counter() - start
    start = time.perf_counter()
    done = converse(
        convert.convert(case.group, case.one, SingleUse(half0, NOW), True, NOW),
        convert.convert(case.group, case.two, SingleUse(half1, NOW), False, NOW),
    )
    spent = time.perf_counter() - start
    case.check(np.packbits((done.one + done.two).astype(np.uint8), axis=1, bitorder="little"), "dabits")
    sent = len(dealt.seed0) + len(dealt.seed1) + len(dealt.numbers)
    return ShuffleCost(offline, sent, spent, done.size, 0, len(done.from_one))


FORMS: dict[str, Callable[[SharedRows, Coins], ShuffleCost]] = {
    "dealer": dealer,
    "transfer": transfer,
    "onion": boxes,
    "dabits": dabits,
}


def measure(size: RowShufflesSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Each form on the same rows; the best of the repeats counts, offline and online each."""
    coins = Coins.from_seed(seed)
    case = SharedRows.draw(size, coins)
    found: dict[str, Any] = {"clients": size.clients, "params": size.params, "repeats": size.repeats, "forms": {}}
    for name, form in FORMS.items():
        if name == "transfer" and find_spec("rbcl") is None:
            continue
        watch(name)
        costs = [form(case, coins.child(name, number)) for number in range(size.repeats)]
        best = {key: min(getattr(cost, key) for cost in costs) for key in ("offline_s", "online_s")}
        found["forms"][name] = {"label": LABELS[name], **asdict(costs[0]), **best}
    return found


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(f"{found['clients']} rows of {found['params']} bits, two servers; all parties together, best of the repeats")
    print(f"{'':<10}{'offline s':>10}{'bytes':>13}{'online s':>10}{'bytes':>13}{'up a client':>13}{'turns':>7}")
    for name in FORMS:
        cost = found["forms"].get(name)
        if cost is None:
            print(f"{name:<10}not installed: pip install croupier[transfer]")
            continue
        before, online = (f"{cost[f'{when}_s']:>10.3f}{cost[f'{when}_bytes']:>13}" for when in ("offline", "online"))
        print(f"{name:<10}{before}{online}{cost['client_bytes']:>13}{cost['turns']:>7}")
    for name, label in LABELS.items():
        print(f"{name}: {label}")
