"""Two parties: their sub-flows driven by a bare loop, which checks what they send. In the runtime: `gates.seated`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from croupier.core.flow import Ask, Body, Exchange, Received, Wait
from croupier.core.wire import Schema
from croupier_lab.bench.speed.two_server_gates import NAMES, Side


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
