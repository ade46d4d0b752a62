"""hide, for sums of which no single party holds the parts: what colluders see depends on the sum and on nothing else.

Exactly, by walking all masks over a small modulus; and over real coins, by chi-square.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter
from croupier.core.update import Layout, Slice
from croupier.encode.encoder import Payload
from croupier.encode.fixed import FixedPoint
from croupier.mpc.shares import added, hidden, stretched, unpacked
from croupier.pipeline import Pipeline
from croupier.place.masks import Masks
from croupier.place.servers import SumServers
from croupier.release.sums import Sum
from tests.tape import Tape, outcomes

BITS, SERVERS = 2, 3
MODULUS = 1 << BITS
# The same sum; the distinguisher that the sums of residues in unary fall for.
ZEROS, APART, OTHER = (0, 0), (1, MODULUS - 1), (1, 0)
Hide = Callable[[Tensor, list[np.ndarray]], Tensor]


class Known(Tape):
    """A mask that was drawn before."""

    def __init__(self, values: Any) -> None:
        super().__init__([int(value) for value in values])


def honest(vector: Tensor, masks: list[np.ndarray]) -> Tensor:
    """The long share as clients make it."""
    return unpacked(hidden(vector, ((Known(mask), True) for mask in masks), BITS), len(vector), BITS)


def careless(vector: Tensor, masks: list[np.ndarray]) -> Tensor:
    """A planted fault: the last seed's share is not taken away, and not handed out either."""
    masks[-1][:] = 0
    return honest(vector, masks)


def seen(inputs: tuple[int, ...], members: tuple[int, ...], hide: Hide = honest) -> dict[Any, float]:
    """The exact distribution of what some servers see: their shares, and then the others' sums."""

    def view(tape: Tape) -> tuple[int, ...]:
        held = [[0] * len(inputs) for _ in range(SERVERS)]
        for client, value in enumerate(inputs):
            masks = [tape.mask(MODULUS, 1) for _ in range(SERVERS - 1)]
            long = hide(torch.tensor([value], dtype=torch.int32), masks)
            holder = client % SERVERS
            others = [server for server in range(SERVERS) if server != holder]
            held[holder][client] = int(long[0])
            for server, mask in zip(others, masks, strict=True):
                held[server][client] = int(mask[0])
        shares = [value for server in members for value in held[server]]
        return (*shares, *(sum(held[s]) % MODULUS for s in range(SERVERS) if s not in members))

    return {key: round(value, 12) for key, value in outcomes(view).items()}


@pytest.mark.parametrize("members", list(combinations(range(SERVERS), SERVERS - 1)))
def test_all_servers_but_one_see_the_sum_only(members: tuple[int, ...]) -> None:
    assert seen(ZEROS, members) == seen(APART, members)
    assert seen(ZEROS, members) != seen(OTHER, members)


def test_all_servers_together_see_everything() -> None:
    everyone = tuple(range(SERVERS))
    assert seen(ZEROS, everyone) != seen(APART, everyone)


def test_a_share_that_is_no_mask_is_caught() -> None:
    caught = [m for m in combinations(range(SERVERS), 2) if seen(ZEROS, m, careless) != seen(APART, m, careless)]
    assert caught


def under_masks(inputs: tuple[int, ...], colluder: int | None, fresh: bool = True) -> dict[Any, float]:
    """The exact distribution of what the server gets, and of the masks that a colluding client knows."""

    def view(tape: Tape) -> tuple[int, ...]:
        pairs = {pair: tape.mask(MODULUS, 1) for pair in combinations(range(len(inputs)), 2)}
        if not fresh:
            pairs = dict.fromkeys(pairs, np.zeros(1, np.int64))
        sent = []
        for client, value in enumerate(inputs):
            masks = ((Known(mask), client == pair[1]) for pair, mask in pairs.items() if client in pair)
            sent.append(int(unpacked(hidden(torch.tensor([value], dtype=torch.int32), masks, BITS), 1, BITS)[0]))
        return (*sent, *(int(mask[0]) for pair, mask in pairs.items() if colluder in pair))

    return {key: round(value, 12) for key, value in outcomes(view).items()}


@pytest.mark.parametrize("colluder", [None, 2])
def test_masked_updates_show_the_sum_only(colluder: int | None) -> None:
    assert under_masks((*ZEROS, 1), colluder) == under_masks((*APART, 1), colluder)
    assert under_masks((*ZEROS, 1), colluder) != under_masks((*OTHER, 1), colluder)
    assert len(under_masks((*ZEROS, 1), None)) == MODULUS**2, "uniform, but for the sum"


def test_masks_that_are_not_fresh_are_caught() -> None:
    assert under_masks((*ZEROS, 1), None, fresh=False) != under_masks((*APART, 1), None, fresh=False)


# Over real coins: every coordinate is a draw of its own.
DRAWS = 20_000
ROSTER = ("a", "b")
LAYOUT = Layout((Slice("w", (DRAWS,)),))
ENCODE = FixedPoint(clients=2, digits=1)


def sent(place: SumServers | Masks, inputs: tuple[int, int], seed: int) -> dict[str, list[Letter]]:
    """What both clients send when all of their coordinates are the same number."""
    pipeline = Pipeline(encode=ENCODE, release=Sum(), place=place)
    coins = Coins.from_seed(seed)
    keys = place.enrol(ROSTER, coins.child("enrol"))
    letters = {}
    for name, value in zip(ROSTER, inputs, strict=True):
        payload = Payload(torch.full((DRAWS,), value % ENCODE.modulus, dtype=torch.int32))
        flow = place.submit(
            pipeline, Given(name, bytes(16), 0, 0, ROSTER, 2, LAYOUT), payload, keys[name], coins.child(name)
        )
        ask = next(flow)
        assert isinstance(ask, Exchange)
        letters[name] = list(ask.send)
    return letters


def share(letter: Letter) -> Any:
    """The share that a letter stands for."""
    assert not isinstance(letter.body, bytes)
    if letter.kind == "seed":
        numbers = stretched(letter.body["seed"].numpy().tobytes())[0]
        return unpacked(added((), [numbers], DRAWS, ENCODE.bits), DRAWS, ENCODE.bits).numpy().astype(np.int64)
    return unpacked(letter.body["vector"], DRAWS, ENCODE.bits).numpy().astype(np.int64)


def alike(one: list[Any], other: list[Any]) -> float:
    """How likely two samples of joint views are this far apart or more, if they have one distribution."""
    return min(_alike(one, other, shift) for shift in (0, ENCODE.bits - 3))


def _alike(one: list[Any], other: list[Any], shift: int) -> float:
    """By three bits of every number: the lowest, or from the shift upwards."""
    size = 8
    counts = []
    for columns in (one, other):
        joint = np.zeros(DRAWS, np.int64)
        for column in columns:
            joint = joint * size + (column >> shift) % size
        counts.append(np.bincount(joint, minlength=size ** len(columns)))
    table = np.array(counts)
    return float(chi2_contingency(table[:, table.sum(0) > 0]).pvalue)


@pytest.mark.parametrize("members", list(combinations(("sum1", "sum2", "sum3"), 2)))
def test_real_shares_of_other_inputs_look_alike(members: tuple[str, str]) -> None:
    def view(inputs: tuple[int, int], seed: int) -> list[Any]:
        letters = sent(SumServers(), inputs, seed)
        return [share(next(m for m in letters["a"] if m.target == server)) for server in members]

    assert alike(view((0, 0), 1), view((1, -1), 2)) > 1e-4


def test_real_masked_updates_of_other_inputs_look_alike() -> None:
    def view(inputs: tuple[int, int], seed: int) -> list[Any]:
        letters = sent(Masks(), inputs, seed)
        return [share(letters[name][0]) for name in ROSTER]

    one, other = view((0, 0), 1), view((1, -1), 2)
    assert all((sum(columns) % ENCODE.modulus == 0).all() for columns in (one, other))
    assert alike(one, other) > 1e-4


def test_chance_tells_shares_that_are_not_hidden() -> None:
    plain = [np.full(DRAWS, value) for value in (0, 0)], [np.full(DRAWS, value) for value in (1, 7)]
    assert alike(*plain) < 1e-9
    letters = sent(SumServers(), (0, 0), 1), sent(SumServers(), (1, -1), 2)
    everything = [[sum(share(m) for m in one["a"]) % ENCODE.modulus] for one in letters]
    assert alike(*everything) < 1e-9


def test_the_shares_of_a_tag_look_alike() -> None:
    drawn = [
        [stretched(Coins.from_seed(seed).child(value, n).export())[1] for n in range(DRAWS // 2)]
        for seed, value in ((3, 0), (4, 1))
    ]
    counts = np.array([np.bincount(np.array(column) >> 57, minlength=16) for column in drawn])
    assert float(chi2_contingency(counts).pvalue) > 1e-4
    assert counts.min() > 0
