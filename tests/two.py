"""Two parties with a dealer: their sub-flows driven by a bare loop, or as parties of a sitting in the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from croupier.core.coins import Coins
from croupier.core.flow import Ask, Body, Exchange, Flow, Given, Memory, Party, Received, SubFlow, Wait
from croupier.core.sitting import Sat, Sitting, Stamp
from croupier.core.update import Layout, Slice
from croupier.core.wire import Schema
from croupier.runtime.local import Local

NAMES = ("s0", "s1")
# A party's sub-flow, given its number and the other's name.
Side = Callable[[int, str], SubFlow]


@dataclass(frozen=True)
class Played:
    """What each party got, how many rounds it took, and what each sent: kind, then arrays by name."""

    got: tuple[Any, Any]
    rounds: int
    sent: tuple[dict[str, dict[str, np.ndarray]], ...]


def play(side: Side, schemas: Mapping[str, Schema] | None = None) -> Played:
    """Both sub-flows to their end; letters must be those listed, each kind once, all of them."""
    flows = [side(me, NAMES[1 - me]) for me in (0, 1)]
    answers: list[Any] = [None, None]
    sent: tuple[dict[str, Body], ...] = ({}, {})
    ended: list[Any] = []
    rounds = 0
    while True:
        letters = []
        for me, (flow, answer) in enumerate(zip(flows, answers, strict=True)):
            try:
                letters.append(_letter(flow.send(answer), NAMES[1 - me]))
            except StopIteration as stop:
                ended.append(stop.value)
        if ended:
            break
        rounds += 1
        for mine, (kind, body) in zip(sent, letters, strict=True):
            assert kind not in mine, "a kind was sent twice"
            if schemas is not None:
                schemas[kind].check(body)
            mine[kind] = body
        answers = [(Received(NAMES[1 - me], *letters[1 - me]),) for me in (0, 1)]
    assert len(ended) == 2, "one party ended before the other"
    assert all(schemas is None or mine.keys() == schemas.keys() for mine in sent)
    arrays = [{kind: {name: b.numpy() for name, b in body.items()} for kind, body in mine.items()} for mine in sent]
    return Played((ended[0], ended[1]), rounds, tuple(arrays))


def _letter(ask: Ask, peer: str) -> tuple[str, Body]:
    assert isinstance(ask, Exchange)
    (letter,) = ask.send
    assert ask.wait == Wait(letter.kind, (peer,))
    assert letter.target == peer
    assert not isinstance(letter.body, bytes)
    return letter.kind, letter.body


def seat(side: Side, schemas: Mapping[str, Schema], links: Coins | None = None) -> tuple[tuple[Any, Any], Sat]:
    """The same two as parties of a sitting, every message sealed where there are links."""
    got: dict[str, Any] = {}

    def party(given: Given, memory: Memory, coins: Coins) -> Flow:
        me = NAMES.index(given.me)
        got[given.me] = yield from side(me, NAMES[1 - me])
        return memory

    parties: dict[str, Party] = dict.fromkeys(NAMES, party)
    layout = Layout((Slice("w", (1,)),))
    sat = Local(links)(
        Sitting(
            stamp=Stamp(bytes(32), bytes(16), 0, 0), parties=parties,
            givens={name: Given(name, bytes(16), 0, 0, (), 0, layout) for name in NAMES}, memories={},
            coins={name: Coins.from_seed(0).child(name) for name in NAMES}, schemas=schemas, bench={},
        )
    )  # fmt: skip
    for outcome in sat.outcomes.values():
        if outcome.error:
            raise outcome.error
    assert not sat.refusals
    return (got["s0"], got["s1"]), sat
