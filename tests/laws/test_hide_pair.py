"""hide, for two servers that score rows of signs: what one of them sees depends on what is opened and nothing else.

Inputs that open the same distances (as a set) and the same sum are played with many coins; every number that a server
hears or knows, and what it could conclude from pairs of them, must come equally often. Faults are planted to show that
the test would tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from torch import Tensor

from croupier.core.coins import Coins
from croupier.mpc import dealer
from croupier.mpc.dealer import Check, Hand
from croupier.place.duet import SERVERS
from tests.seated import Ended, Seated, signs

REFERENCE = signs(["0000"])[0]
# Distances 1 and 3 and a sum of 0, either way round; then different rows at distance 2, with the same sum.
PAIRS = {
    "clients exchanged": (["1000", "0111"], ["0111", "1000"]),
    "other rows": (["1100", "0011"], ["1010", "0101"]),
    "other rows, other pairs": (["1100", "0011"], ["0110", "1001"]),
}
OPENED = (["1000", "0111"], ["1100", "0011"])
CHECKS: list[Check] = ["none", "hash", "product"]
DRAWS = 1200
# So many chi-squares are taken that one in a million is not a surprise to allow for.
UNLIKELY = 1e-7
Facts = dict[str, int]


def facts(seated: Seated, ended: Ended, me: int, hand: Hand) -> Facts:
    """What a server knows after a round, in small numbers, and what it may conclude from that."""
    heard = ended.heard[SERVERS[me]]
    found: Facts = {"order": int(hand.order[0])}
    ups = np.stack([heard["up", name]["row"].numpy() for name in seated.names])
    hidden = heard[("q", "second") if me == 0 else ("w", "server")]["rows"].numpy()
    sent = ups[hand.order] ^ hand.masks if me == 0 else hidden[hand.order] ^ hand.masks
    for name, rows in (("up", ups), ("heard rows", hidden), ("own rows", sent), ("masks", hand.masks)):
        found |= {f"{name} {place}": int(row[0]) for place, row in enumerate(rows)}
    for (kind, source), body in heard.items():
        if kind in ("hd", "z", "zero", "blind") or kind.startswith("mul") or kind.endswith("-s-o"):
            found |= dict(_ends(f"{kind} from {source}", body["value"]))
    if me == 1:
        found |= dict(_ends("dealt", heard["hand1", "dealer"]["numbers"]))
    found |= dict(_guesses(ended, me, hand, ups, hidden, sent))
    return found


def _ends(name: str, values: Tensor) -> Iterator[tuple[str, int]]:
    """The lowest bits of the first and the last number; of bytes the first."""
    flat = values.numpy().reshape(-1)
    yield f"{name}, first", int(flat[0]) & 7
    yield f"{name}, last", int(flat[-1]) & 7


def _guesses(ended: Ended, me: int, hand: Hand, ups: Any, hidden: Any, sent: Any) -> Iterator[tuple[str, int]]:
    """The first client's distance, if the other server had not permuted, or if its order could be seen in its rows."""
    distances = ended.released.luggage["distances"].tolist()
    before, after = (sent, hidden) if me == 0 else (ups, hidden)
    other = next((p for p in permutations(range(len(ups))) if np.array_equal(before[list(p)], after)), None)
    for name, theirs in (("as if it had not permuted", tuple(range(len(ups)))), ("by the order of rows", other)):
        if theirs is None:
            yield name, -1
            continue
        one, two = (hand.order, np.array(theirs)) if me == 0 else (np.array(theirs), hand.order)
        yield name, distances[one[two].tolist().index(0)]


@cache
def views(rows: tuple[str, ...], check: Check, first: int, fault: str = "") -> tuple[list[Facts], list[Facts]]:
    """Both servers' facts, over many coins."""
    found: tuple[list[Facts], list[Facts]] = ([], [])
    keys = None
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[fault](patch)
        for seed in range(first, first + DRAWS):
            seated = Seated(signs(rows), REFERENCE, check, seed=seed, keys=keys)
            keys, hands = seated.enrolled, seated.hands()
            ended = seated.play()
            for me in (0, 1):
                found[me].append(facts(seated, ended, me, hands[me]))
    return found


def least(one: list[Facts], other: list[Facts]) -> tuple[float, str]:
    """The least likely of all comparisons of single facts and of pairs of them, by chi-square."""
    names = list(one[0])
    assert names == list(other[0])
    columns = {n: (np.array([f[n] for f in one]), np.array([f[n] for f in other])) for n in names}
    tests = [(a, a) for a in names] + list(combinations(names, 2))
    return min((_alike(columns[a], columns[b]), f"{a} with {b}") for a, b in tests)


def _alike(one: Any, two: Any) -> float:
    joint = [one[side] * 1024 + two[side] for side in (0, 1)]
    values, places = np.unique(np.concatenate(joint), return_inverse=True)
    table = np.stack([np.bincount(part, minlength=len(values)) for part in np.split(places, 2)])
    often = table.sum(0) >= 10
    table = np.column_stack([table[:, often], table[:, ~often].sum(1)])
    table = table[:, table.sum(0) > 0]
    return 1.0 if table.shape[1] < 2 else float(chi2_contingency(table).pvalue)


def compared(pair: tuple[list[str], list[str]], check: Check, fault: str = "") -> list[tuple[float, str]]:
    """For each server the least likely comparison of two inputs, each with coins of its own."""
    one, other = (views(tuple(rows), check, 1 + n * DRAWS, fault) for n, rows in enumerate(pair))
    return [least(one[me], other[me]) for me in (0, 1)]


def as_it_is(patch: pytest.MonkeyPatch) -> None:
    """No fault."""


def bare(patch: pytest.MonkeyPatch) -> None:
    """Clients hide nothing: their masks are 0."""
    patch.setattr(dealer, "mask_of", lambda seed, deck: np.zeros(deck.width, np.uint8))


def unhidden(patch: pytest.MonkeyPatch) -> None:
    """The servers' masks are 0: rows pass under the same hiding bits, and show the other's order."""
    patch.setattr(dealer, "_masks", lambda deck, node: np.zeros((deck.rows, deck.width), np.uint8))


def straight(patch: pytest.MonkeyPatch) -> None:
    """The second server does not permute, and the first knows it."""
    right = dealer.hand_of
    patch.setattr(dealer, "_orders", None, raising=False)

    class Straight(Coins):
        """Coins that permute nothing."""

    real = Coins.child

    def child(self: Coins, *labels: Any) -> Coins:
        node = real(self, *labels)
        if labels == ("order",) and self.export() in seconds:
            node.secure = lambda: _Identity()  # type: ignore[method-assign,assignment,return-value]
        if labels == ("hand", 1):
            seconds.add(node.export())
        return node

    seconds: set[bytes] = set()
    patch.setattr(Coins, "child", child)
    patch.setattr(dealer, "hand_of", right)


class _Identity:
    def permutation(self, size: int) -> Any:
        """None."""
        return np.arange(size)


def plain_shares(patch: pytest.MonkeyPatch) -> None:
    """The first server's shares are 0, so that the second's are what hides the rows."""
    patch.setattr(dealer.Seeded, "_drawn", lambda self, node, width: np.zeros((self.deck.rows, width), self.deck.dtype))


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "": as_it_is, "clients' masks": bare, "servers' masks": unhidden, "an order": straight, "shares": plain_shares,
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", PAIRS)
def test_a_server_sees_what_is_opened_and_nothing_else(name: str, check: Check) -> None:
    for likely, where in compared(PAIRS[name], check):
        assert likely > UNLIKELY, where


def test_what_is_opened_is_told_apart() -> None:
    assert all(likely < UNLIKELY for likely, _ in compared(OPENED, "none"))


@pytest.mark.parametrize(
    ("fault", "name", "caught"),
    [
        ("clients' masks", "clients exchanged", (0, 1)), ("clients' masks", "other rows", (0, 1)),
        ("servers' masks", "clients exchanged", (0, 1)), ("an order", "clients exchanged", (0,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("check", ["none", "hash"])
def test_planted_faults_are_caught(fault: str, name: str, caught: tuple[int, ...], check: Check) -> None:
    found = compared(PAIRS[name], check, fault)
    for me in (0, 1):
        assert (found[me][0] < UNLIKELY) == (me in caught), (SERVERS[me], found[me])
