"""hide, for what two servers can be told to do otherwise: open less, or shuffle in other ways.

Inputs that open the same are played with many coins. What a server heard, what it and the other opened together, and
whose distance it would conclude if only it had permuted, must come equally often. Planted faults are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Received, Seat
from croupier.core.update import Layout, Slice
from croupier.encode.encoder import Payload, Released
from croupier.encode.signs import commitment, handed
from croupier.mpc import convert, dealt_shares, onion, translate
from croupier.mpc.authentic import bytes_of
from croupier.pipeline import Pipeline
from croupier.place.placement import ServerHoldings
from croupier.place.two_servers.messages import SERVERS
from croupier.place.two_servers.pair import Pair
from croupier.place.two_servers.shuffles import Way
from tests.laws.pipelines import BY_SIGN, signed
from tests.tiers import repeats

DRAWS = repeats(120, 60)
# Where a round takes many messages, or powers in a group.
FEW = repeats(60, 30)
UNLIKELY = 1e-7
REFERENCE = torch.zeros(4, dtype=torch.uint8)
NONCE = torch.zeros(32, dtype=torch.uint8)
SECRET: Mapping[str, Any] = {"opens": "signs", "scores": "secret", "weights": "relu"}
HONEST = Pair(malicious=False)
WAYS: tuple[Way, ...] = ("translate", "transfer", "onion")
PLACES = {way: Pair(malicious=False, shuffle=way) for way in WAYS}
SUMS, SIGNS = signed(HONEST), signed(HONEST, BY_SIGN, opens="signs")
SCORES = signed(HONEST, BY_SIGN, **SECRET)
# The same distances and signs, and other sums; then other distances too.
MAJORITIES = (("1100", "1100", "1100"), ("1100", "1010", "0101"))
DISTANCES = (("1100", "1100", "1100"), ("1100", "1110", "0100"))
# The same distances and sum, from other clients; and from other rows.
EXCHANGED = (("1000", "0111"), ("0111", "1000"))
OTHERS = (("1100", "0011"), ("1010", "0101"))
Facts = dict[str, int]
Inputs = tuple[tuple[str, ...], tuple[str, ...]]


def seats(pipeline: Pipeline, rows: tuple[str, ...], seed: int) -> dict[str, Seat]:
    """Everybody at the end of a round."""
    names = tuple(f"c{number}" for number in range(len(rows)))
    layout = Layout((Slice("w", (4,)),))
    bound = commitment(REFERENCE, NONCE)
    same = handed(torch.zeros(4), bound)
    late = {"reference": REFERENCE, "nonce": NONCE, "commitment": bound, "handed": same}

    def client(given: Given, memory: Memory, coins: Coins) -> Flow:
        bits = torch.tensor([int(bit) for bit in rows[names.index(given.me)]], dtype=torch.uint8)
        yield from pipeline.place.submit(pipeline, given, Payload(bits, {}, {}), {}, coins)
        return {}

    def server(given: Given, memory: Memory, coins: Coins) -> Flow:
        released = yield from pipeline.place.collect(pipeline, given, coins, ServerHoldings({}, late))
        return {"released": released}

    parties = {**dict.fromkeys(names, client), **pipeline.place.middle(pipeline), "server": server}
    root = Coins.from_seed(seed)
    return {
        name: Seat.take(party, Given(name, bytes(16), 0, 0, names, 2, layout), {}, root.child("party", name), "keep")
        for name, party in parties.items()
    }


def play(pipeline: Pipeline, rows: tuple[str, ...], seed: int) -> tuple[dict[str, Seat], list[tuple[str, Letter]]]:
    """A round to its end, and every letter."""
    table, sent = seats(pipeline, rows, seed), list[tuple[str, Letter]]()
    while any(seat.outcome is None for seat in table.values()):
        moved = False
        for name, seat in table.items():
            for letter in seat.post():
                sent.append((name, letter))
                assert not isinstance(letter.body, bytes)
                table[letter.target].deliver(Received(name, letter.kind, letter.body))
            if isinstance(seat.ask, Exchange) and seat.can_go():
                seat.go()
                moved = True
        assert moved, "nothing moves"
    return table, sent


def facts(pipeline: Pipeline, me: int, table: Mapping[str, Seat], sent: list[tuple[str, Letter]]) -> Facts:
    """What a server knows, in small numbers."""
    found: Facts = {}
    own, peer = SERVERS[me], SERVERS[1 - me]
    said = {(_step(letter.kind), name): body for who, letter in sent for name, body in _fields(letter) if who == own}
    for who, letter in sent:
        if letter.target != own:
            continue
        for name, values in _fields(letter):
            found |= dict(_ends(f"{who} {letter.kind} {name}", values))
            mine = said.get((_step(letter.kind), name))
            if who == peer and mine is not None and mine.shape == values.shape:
                both = mine ^ values if values.dtype == torch.uint8 else mine + values
                found |= dict(_ends(f"opened {letter.kind} {name}", both))
    outcome = table["server"].outcome
    assert outcome is not None
    assert outcome.memory is not None, outcome.error
    released: Released = outcome.memory["released"]
    if "distances" in released.luggage and isinstance(pipeline.place, Pair) and pipeline.place.shuffle != "dealer":
        order = own_order(pipeline.place.shuffle, me, table[own])
        found["if only it had permuted"] = int(released.luggage["distances"][order.tolist().index(0)])
    return found


def own_order(way: str, me: int, seat: Seat) -> Any:
    """The order that a server chose, or was dealt."""
    coins = seat.view.coins
    if way == "translate":
        (dealt,) = seat.view.inputs[0]
        return translate.draw_order(len(seat.view.given.roster), Coins(bytes_of(dealt.body["order"])))
    node = coins.child("mix") if way == "onion" else coins.child(("first", "second")[me])
    return translate.draw_order(len(seat.view.given.roster), node)


def _fields(letter: Letter) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(letter.body, bytes):
        yield from letter.body.items()


def _step(kind: str) -> str:
    """A kind without the side that says it."""
    return kind.removesuffix(".0").removesuffix(".1") if kind.startswith(("mix", "convert")) else kind


def _ends(name: str, values: Tensor) -> Iterator[tuple[str, int]]:
    flat = values.reshape(-1)
    if len(flat):
        yield f"{name}, first", int(flat[0]) & 7
        yield f"{name}, last", int(flat[-1]) & 7


def views(pipeline: Pipeline, rows: tuple[str, ...], first: int) -> tuple[list[Facts], list[Facts]]:
    """Both servers' facts over many coins."""
    found: tuple[list[Facts], list[Facts]] = ([], [])
    long = pipeline == SCORES or pipeline.place == PLACES["transfer"]
    for seed in range(first, first + (FEW if long else DRAWS)):
        table, sent = play(pipeline, rows, seed)
        for me in (0, 1):
            found[me].append(facts(pipeline, me, table, sent))
    return found


def compared(pipeline: Pipeline, inputs: Inputs) -> list[tuple[float, str]]:
    """For each server the least likely fact, by chi-square."""
    one, other = (views(pipeline, rows, 1 + number * DRAWS) for number, rows in enumerate(inputs))
    out = []
    for me in (0, 1):
        names = list(one[me][0])
        assert names == list(other[me][0])
        out.append(min((_alike([f[n] for f in one[me]], [f[n] for f in other[me]]), n) for n in names))
    return out


def _alike(one: list[int], other: list[int]) -> float:
    values = sorted({*one, *other})
    table = np.array([[side.count(value) for value in values] for side in (one, other)])
    return 1.0 if len(values) < 2 else float(chi2_contingency(table).pvalue)


CASES: dict[str, tuple[Pipeline, Inputs]] = {
    "only signs": (SIGNS, MAJORITIES),
    "secret scores, other distances": (SCORES, DISTANCES),
    **{f"{way}, exchanged": (signed(place), EXCHANGED) for way, place in PLACES.items()},
    **{f"{way}, other rows": (signed(place), OTHERS) for way, place in PLACES.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_a_server_sees_what_is_opened_and_nothing_else(name: str) -> None:
    for likely, where in compared(*CASES[name]):
        assert likely > UNLIKELY, where


def test_what_is_opened_is_told_apart() -> None:
    assert all(likely < UNLIKELY for likely, _ in compared(SUMS, MAJORITIES))
    assert all(likely < UNLIKELY for likely, _ in compared(SIGNS, DISTANCES))


def no_mask(patch: pytest.MonkeyPatch) -> None:
    """Gates hide numbers behind 0."""
    patch.setattr(dealt_shares.ShareReader, "residues", lambda self, ring, shape: np.zeros(shape, ring.dtype))


def no_bits(patch: pytest.MonkeyPatch) -> None:
    """Bits are opened bare when they become numbers."""
    patch.setattr(convert, "_bits", lambda group, rows, node: group.zeros(rows))


def no_order(patch: pytest.MonkeyPatch) -> None:
    """Nobody permutes."""
    for module in (translate, onion):
        patch.setattr(module, "draw_order", lambda rows, node: np.arange(rows))


@pytest.mark.parametrize(
    ("fault", "pipeline", "inputs"),
    [
        (no_mask, SIGNS, MAJORITIES), (no_mask, SCORES, DISTANCES), (no_bits, signed(PLACES["onion"]), OTHERS),
        *((no_order, signed(place), EXCHANGED) for place in PLACES.values()),
    ],
)  # fmt: skip
def test_planted_faults_are_caught(
    fault: Callable[[pytest.MonkeyPatch], None], pipeline: Pipeline, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert all(likely < UNLIKELY for likely, _ in compared(pipeline, inputs))
