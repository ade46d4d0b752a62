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
import torch
from scipy.stats import chi2_contingency, chisquare

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.mpc import deal_shares, dealer
from croupier.mpc.authentic import as_words
from croupier.mpc.deal_shares import Check
from croupier.mpc.dealer import ShuffleShare
from croupier.place.two_servers.messages import SERVERS
from tests.laws.pipelines import PIPELINES
from tests.laws.toy import CLIENTS, layout_for, play, tap, task
from tests.seated import Ended, Seated, signs
from tests.tiers import repeats

REFERENCE = signs(["0000"])[0]
# Distances 1 and 3 and a sum of 0, either way round; then different rows at distance 2, with the same sum.
PAIRS = {
    "clients exchanged": (("1000", "0111"), ("0111", "1000")),
    "other rows": (("1100", "0011"), ("1010", "0101")),
}
OPENED = (("1000", "0111"), ("1100", "0011"))
CHECKS: list[Check] = ["none", "hash", "product"]
# A planted fault shows in every draw, and so in the least number.
FEW = 60
DRAWS = {"none": repeats(300, FEW), "hash": repeats(100, FEW), "product": repeats(100, FEW)}
# Some thousand comparisons are made in all; what they are to find shows far more clearly.
UNLIKELY = 1e-8
Facts = dict[str, int]


def facts(seated: Seated, ended: Ended, me: int, material: ShuffleShare) -> Facts:
    """What a server knows after a round, in small numbers, and what it may conclude from that."""
    heard = ended.heard[SERVERS[me]]
    found: Facts = {"order": int(material.order[0])}
    ups = np.stack([heard["up", name]["row"].numpy() for name in seated.names])
    hidden = heard[("q", "second") if me == 0 else ("w", "server")]["rows"].numpy()
    sent = (ups if me == 0 else hidden)[material.order] ^ material.masks
    for name, rows in (("up", ups), ("heard rows", hidden), ("own rows", sent), ("masks", material.masks)):
        found |= {f"{name} {place}": int(row[0]) for place, row in enumerate(rows)}
    for (kind, source), body in heard.items():
        if kind in ("hd", "z", "zero") or kind.endswith("-s-o"):
            found |= dict(_ends(f"{kind} from {source}", body["value"].numpy()))
    distances = ended.released.luggage["distances"].tolist()
    before, after = (sent, hidden) if me == 0 else (ups, hidden)
    for name, order in _orders(before, after):
        found[name] = distances[_whose(me, material, order)] if order else -1
    if me == 1:
        numbers = heard["hand1", "dealer"]["numbers"].numpy()[: seated.rows.numel()].reshape(seated.rows.shape)
        found |= dict(_ends("dealt", numbers))
        # The rows, if the other server's shares were none.
        found["a row by what was dealt"] = int(np.packbits(numbers[0] & 1, bitorder="little")[0] ^ sent[0, 0])
    if seated.deal.authentic:
        found |= dict(_multiplied(seated, ended, me, distances))
    return found


def _ends(name: str, values: Any) -> Iterator[tuple[str, int]]:
    """The lowest bits of the first and the last number."""
    flat = values.reshape(-1)
    yield f"{name}, first", int(flat[0]) & 7
    yield f"{name}, last", int(flat[-1]) & 7


def _orders(before: Any, after: Any) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    """The other server's order, if it had none, or if it could be seen in its rows."""
    every = list(permutations(range(len(before))))
    yield "first distance if the other does not permute", every[0]
    seen = next((order for order in every if np.array_equal(before[list(order)], after)), None)
    yield "first distance by equal rows", seen


def _whose(me: int, material: ShuffleShare, other: tuple[int, ...]) -> int:
    """The place of the first client's row, under a guess at the other's order."""
    one, two = (material.order, np.array(other)) if me == 0 else (np.array(other), material.order)
    place: int = one[two].tolist().index(0)
    return place


def _multiplied(seated: Seated, ended: Ended, me: int, distances: list[int]) -> Iterator[tuple[str, int]]:
    """The openings of the first products, and what they tell whoever could draw the triples from its own seed."""
    over, name, other = seated.deal.over, SERVERS[me], SERVERS[1 - me]
    mine, theirs = ended.heard[other]["mul0", name]["value"], ended.heard[name]["mul0", other]["value"]
    opened = over.add(as_words(mine), as_words(theirs))
    yield from _ends("mul0 from the other", as_words(theirs))
    yield from _ends("mul0 opened", opened)
    seed = ended.heard[name][f"hand{me}", "dealer"]["seed"].numpy().tobytes()
    chance = Coins(seed).child("triples").secure()
    triples = seated.deal.triples
    drawn = np.concatenate([over.draw(chance, triples)[:2], over.draw(chance, triples)[:2]])
    # Of two rows: the first before and after the shuffle, then the second.
    known = over.add(opened, drawn)
    same = np.array_equal(known[0], known[1])
    crossed = np.array_equal(known[0], known[3])
    yield "first distance by drawn triples", distances[0] if same else distances[1] if crossed else -1


@cache
def views(rows: tuple[str, ...], check: Check, first: int, fault: str = "") -> tuple[list[Facts], list[Facts]]:
    """Both servers' facts, over many coins."""
    found: tuple[list[Facts], list[Facts]] = ([], [])
    keys = None
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[fault](patch)
        for seed in range(first, first + (FEW if fault else DRAWS[check])):
            seated = Seated(signs(rows), REFERENCE, check, seed=seed, keys=keys)
            keys, hands = seated.enrolled, seated.halves()
            ended = seated.play()
            for me in (0, 1):
                found[me].append(facts(seated, ended, me, hands[me]))
    return found


def least(one: list[Facts], other: list[Facts]) -> tuple[float, str]:
    """The least likely of all comparisons of single facts and of pairs of them, by chi-square."""
    names = list(one[0])
    assert names == list(other[0])
    columns = {name: [np.array([f[name] for f in side]) for side in (one, other)] for name in names}
    pairs = [(name, name) for name in names] + list(combinations(names, 2))
    return min((_alike(columns[a], columns[b]), f"{a}; {b}") for a, b in pairs)


def _alike(one: list[Any], two: list[Any]) -> float:
    joint = [one[side] * 1024 + two[side] for side in (0, 1)]
    values, places = np.unique(np.concatenate(joint), return_inverse=True)
    table = np.stack([np.bincount(part, minlength=len(values)) for part in np.split(places, 2)])
    often = table.sum(0) >= 10
    table = np.column_stack([table[:, often], table[:, ~often].sum(1)])
    table = table[:, table.sum(0) > 0]
    return 1.0 if table.shape[1] < 2 else float(chi2_contingency(table).pvalue)


def compared(pair: tuple[tuple[str, ...], ...], check: Check, fault: str = "") -> list[tuple[float, str]]:
    """For each server the least likely comparison of two inputs, each with coins of its own."""
    one, other = (views(rows, check, 1 + 1000 * n, fault) for n, rows in enumerate(pair))
    return [least(one[me], other[me]) for me in (0, 1)]


def as_it_is(patch: pytest.MonkeyPatch) -> None:
    """No fault."""


def bare(patch: pytest.MonkeyPatch) -> None:
    """Clients hide nothing: their masks are 0."""
    patch.setattr(dealer, "mask_of", lambda seed, deal: np.zeros(deal.width, np.uint8))


def unhidden(patch: pytest.MonkeyPatch) -> None:
    """The servers' masks are 0: rows pass under the same hiding bits, and show the other's order."""
    patch.setattr(dealer, "_masks", lambda deal, node: np.zeros((deal.rows, deal.width), np.uint8))


def empty_shares(patch: pytest.MonkeyPatch) -> None:
    """The first server's shares are 0, so that the second's are the very bits that hide the rows."""
    patch.setattr(
        deal_shares.Seeded, "_drawn", lambda self, node, width: np.zeros((self.deal.rows, width), self.deal.dtype)
    )


def straight(patch: pytest.MonkeyPatch) -> None:
    """The second server does not permute."""
    _replaced(patch, "order", lambda node: _Straight())


def own_triples(patch: pytest.MonkeyPatch) -> None:
    """Triples are drawn from the second server's seed."""
    child, seconds = Coins.child, set[bytes]()

    def bent(self: Coins, *labels: Any) -> Coins:
        if labels == ("triples",) and self.export() not in seconds:
            return child(Coins(child(self, "hand", 1).export()), "triples")
        if labels == ("hand", 1):
            seconds.add(child(self, *labels).export())
        return child(self, *labels)

    patch.setattr(Coins, "child", bent)


class _Straight:
    def permutation(self, size: int) -> Any:
        """None."""
        return np.arange(size)


def _replaced(patch: pytest.MonkeyPatch, label: str, choices: Callable[[Coins], Any]) -> None:
    """Other choices at a node of the second server's seed."""
    child, seconds = Coins.child, set[bytes]()

    def bent(self: Coins, *labels: Any) -> Coins:
        node = child(self, *labels)
        if labels == ("hand", 1):
            seconds.add(node.export())
        if labels == (label,) and self.export() in seconds:
            node.secure = lambda: choices(node)  # type: ignore[method-assign]
        return node

    patch.setattr(Coins, "child", bent)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "": as_it_is, "clients' masks": bare, "servers' masks": unhidden, "an order": straight,
    "empty shares": empty_shares, "triples": own_triples,
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", PAIRS)
def test_a_server_sees_what_is_opened_and_nothing_else(name: str, check: Check) -> None:
    for likely, where in compared(PAIRS[name], check):
        assert likely > UNLIKELY, where


def test_what_is_opened_is_told_apart() -> None:
    assert all(likely < UNLIKELY for likely, _ in compared(OPENED, "none"))


@pytest.mark.parametrize(
    ("fault", "name", "check", "caught"),
    [
        ("clients' masks", "clients exchanged", "none", SERVERS), ("clients' masks", "other rows", "none", SERVERS),
        ("servers' masks", "clients exchanged", "none", SERVERS), ("servers' masks", "other rows", "none", ()),
        ("an order", "clients exchanged", "none", ("server",)), ("an order", "clients exchanged", "hash", ("server",)),
        ("empty shares", "other rows", "none", ("second",)), ("triples", "clients exchanged", "hash", ("second",)),
        ("triples", "clients exchanged", "product", ("second",)),
    ],
)  # fmt: skip
def test_planted_faults_are_caught(fault: str, name: str, check: Check, caught: tuple[str, ...]) -> None:
    found = dict(zip(SERVERS, compared(PAIRS[name], check, fault), strict=True))
    assert {who for who, (likely, _) in found.items() if likely < UNLIKELY} == set(caught), found


def test_the_order_of_distances_is_uniform_whatever_one_server_knows() -> None:
    rows = signs(["1000", "1100", "1110"])  # a client is known by its distance
    every = list(permutations(range(3)))
    counts: Any = np.zeros((3, 6, 6), int)
    for seed in range(1, 1 + repeats(720, 360)):
        seated = Seated(rows, REFERENCE, seed=seed)
        one, two = seated.halves()
        whose = tuple(d - 1 for d in seated.play().released.luggage["distances"].tolist())
        assert whose == tuple(one.order[two.order]), "first one server's order, then the other's"
        for kind, known in enumerate(([0, 1, 2], one.order.tolist(), two.order.tolist())):
            counts[kind, every.index(tuple(known)), every.index(whose)] += 1
    assert chisquare(counts[0, 0]).pvalue > 1e-4
    for joint in counts[1:]:
        assert chisquare(joint.reshape(-1)).pvalue > 1e-4, "one order says nothing about the order of both"


@pytest.mark.parametrize("name", [name for name in PIPELINES if name.startswith("two servers")])
def test_the_dealer_hears_and_says_the_same_whatever_the_rows_are(name: str) -> None:
    found = []
    for shards in ("one", "another"):
        threat, log = tap(PIPELINES[name])
        of = task(shards={who: f"{shards} of {who}" for who in CLIENTS}, layout=layout_for(PIPELINES[name]))
        (done,) = play(PIPELINES[name], count=1, threat=threat, of=of)
        if "dealer" not in done.views:
            return
        said = [(letter.target, letter.kind, canon.digest(letter.body)) for letter in log["dealer", 0]]
        found.append((done.state.model.vector, said, canon.digest(done.views["dealer"].inputs)))
    (model, *one), (other, *two) = found
    assert not torch.equal(model, other), "the rows did change"
    assert one == two
