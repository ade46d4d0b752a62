"""A coin of many parties: one for all, chosen by none, and lost where somebody cheats or was shown something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, Received, SubFlow
from croupier.core.update import Layout
from croupier.errors import IntegrityError
from croupier.mpc.many_coin import ManyCoin

PARTIES = ("mix1", "mix2", "server")
COIN = ManyCoin(PARTIES, "coin")
Alter = Callable[[str, Letter], Letter]


def tossed(seen: dict[str, bytes], alter: Alter = lambda who, letter: letter, round: int = 0) -> set[bytes]:
    """What everybody gets."""
    flows: dict[str, SubFlow] = {}
    for who in PARTIES:
        given = Given(who, bytes(16), round, 0, ("c0", "c1"), 2, Layout(()))
        flows[who] = COIN.toss(given, seen.get(who, b"all"), Coins.from_seed(3).child(who))
    asks, done = {who: next(flow) for who, flow in flows.items()}, set[bytes]()
    while flows:
        sent = {
            who: [alter(who, one) for one in ask.send] for who, ask in asks.items() if isinstance(ask, Exchange)
        }  # fmt: skip
        for who in list(flows):
            inbox = tuple(
                Received(source, one.kind, one.body)  # type: ignore[arg-type]
                for source in PARTIES for one in sent[source] if one.target == who
            )  # fmt: skip
            try:
                asks[who] = flows[who].send(inbox)
            except StopIteration as stop:
                done.add(stop.value)
                del flows[who]
    return done


def test_all_get_one_coin_and_another_round_another() -> None:
    (one,) = tossed({})
    (again,) = tossed({})
    (other,) = tossed({}, round=1)
    (unlike,) = tossed(dict.fromkeys(PARTIES, b"something else"))
    assert one == again
    assert len({one, other, unlike}) == 3


def test_who_was_shown_something_else_cannot_finish() -> None:
    with pytest.raises(IntegrityError, match="or was shown other messages than"):
        tossed({"mix2": b"another output"})


def test_who_opens_another_draw_is_named() -> None:
    def change(who: str, letter: Letter) -> Letter:
        if who != "mix2" or letter.kind != "coin-o" or isinstance(letter.body, bytes):
            return letter
        return Letter(letter.target, letter.kind, {**letter.body, "value": letter.body["value"] ^ 1})

    with pytest.raises(IntegrityError, match="mix2 opened another part of the coin than it had fixed"):
        tossed({}, change)


def test_an_echo_is_refused() -> None:
    kept: list[torch.Tensor] = []

    def echo(who: str, letter: Letter) -> Letter:
        if letter.kind != "coin-c" or isinstance(letter.body, bytes):
            return letter
        if who == "mix1":
            kept.append(letter.body["digest"])
        return Letter(letter.target, letter.kind, {"digest": kept[0]}) if who == "mix2" else letter

    with pytest.raises(IntegrityError, match="echoed another's commitment"):
        tossed({}, echo)
