"""A relay, and a server without one: what is sent, what is let out, and what each party learns of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from croupier import systems
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, Received, SubFlow, Wait
from croupier.core.update import Layout, Slice
from croupier.encode.encoder import Payload, Released
from croupier.encode.fixed import FixedPoint
from croupier.encode.floats import Floats
from croupier.pipeline import Pipeline
from croupier.place.direct import Direct
from croupier.place.placement import let_out, quorum, read_released, released_schema, up_body, up_schema
from croupier.place.relay import Relay
from croupier.release.shuffle import Shuffle
from croupier.release.sums import Sum

ROSTER = ("a", "b", "c")
GIVEN = Given("server", bytes(16), 0, 0, ROSTER, 1, Layout((Slice("w", (2,)),)))
COINS = Coins.from_seed(1)
PLAIN, NAIVE, TOTAL = systems.plain(), systems.naive("model"), systems.total(3)
MODULUS = FixedPoint(clients=3).modulus


def up(source: str, *values: float, weight: float = 1.0, dtype: torch.dtype = torch.float32) -> Received:
    beside = {"weight": torch.tensor([weight], dtype=torch.float64)}
    return Received(source, "up", {"vector": torch.tensor(values, dtype=dtype), **beside})


def ended(flow: SubFlow, answers: Sequence[Any]) -> tuple[list[Any], Any]:
    """Drive a sub-flow with these answers: what it asked, and what it returned."""
    asks = [next(flow)]
    for answer in answers:
        try:
            asks.append(flow.send(answer))
        except StopIteration as stop:
            return asks, stop.value
    raise AssertionError("the sub-flow wants more")


@pytest.mark.parametrize(
    ("pipeline", "least", "want"), [(PLAIN, 1, 1), (NAIVE, 1, 2), (TOTAL, 1, 2), (TOTAL, 3, 3), (PLAIN, 0, 1)]
)
def test_a_quorum_is_never_fewer_than_can_hide(pipeline: Pipeline, least: int, want: int) -> None:
    assert quorum(pipeline, replace(GIVEN, quorum=least)) == want


@pytest.mark.parametrize(
    ("pipeline", "slots", "dtype", "top", "beside"),
    [
        (PLAIN, 2, "<f4", None, ["weight"]),
        (NAIVE, 2, "<f4", None, []),
        (TOTAL, 2, "<i4", TOTAL.encode.modulus, []),
        (
            Pipeline(encode=Floats(weights="slot", cap=5), release=Shuffle(), place=Relay()),
            3, "<f4", None, [],
        ),
    ],
)  # fmt: skip
def test_messages_carry_what_the_encoder_makes(
    pipeline: Pipeline, slots: int, dtype: str, top: int | None, beside: list[str]
) -> None:
    fields = up_schema(pipeline, GIVEN).fields
    assert [field.name for field in fields] == ["vector", *beside]
    assert (fields[0].shape, fields[0].dtype) == ((slots,), dtype)
    assert fields[0].top == (None if top is None else top - 1)
    out = released_schema(pipeline, GIVEN).fields
    assert [field.name for field in out] == ["present", pipeline.release.shape, *beside]
    assert (out[0].shape, out[0].top) == ((3,), 1)
    assert all(field.shape == ("present", 1) for field in out[2:])
    assert set(pipeline.place.schemas(pipeline, GIVEN)) == ({"up"} if pipeline is PLAIN else {"up", "released"})


def test_what_is_let_out_fits_its_schema_and_reads_back() -> None:
    inbox = (up("a", 1.0, 2.0, weight=4), up("c", 3.0, 4.0, weight=6))
    open_relay = Pipeline(encode=Floats(weights="open"), place=Relay())
    body = let_out(open_relay, GIVEN, inbox, COINS)
    schema = released_schema(open_relay, GIVEN)
    schema.check(body)
    back = read_released(open_relay, GIVEN.roster, GIVEN.layout, schema.unpack(schema.pack(body)), ids=True)
    assert back.present == back.ids == ("a", "c")
    assert back.rows is not None
    assert back.rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert back.luggage["weight"].tolist() == [[4.0], [6.0]]
    assert back.sums is None
    assert read_released(open_relay, GIVEN.roster, GIVEN.layout, body, ids=False).ids is None


def test_the_relay_computes_the_release_from_its_own_coins() -> None:
    relay = NAIVE.place.middle(NAIVE)["relay"]
    inbox = tuple(up(name, float(i), float(10 + i)) for i, name in enumerate(ROSTER))
    asks, memory = ended(relay(replace(GIVEN, me="relay"), {"kept": 1}, COINS), [inbox, ()])
    assert asks[0] == Exchange(wait=Wait("up", ROSTER, 2))
    (letter,) = asks[1].send
    assert (letter.target, letter.kind) == ("server", "released")
    ideal = NAIVE.release([m.body["vector"] for m in inbox], GIVEN.layout, None, COINS.child("release"))
    assert torch.equal(letter.body["rows"], ideal["rows"])
    assert letter.body["present"].tolist() == [1, 1, 1]
    assert memory == {"kept": 1}


def test_a_relay_lets_out_nothing_of_one_client_in_a_sum() -> None:
    relay = TOTAL.place.middle(TOTAL)["relay"]
    inbox = (up("a", 1, 2, dtype=torch.int32), up("b", 3, MODULUS, dtype=torch.int32))
    asks, _ = ended(relay(GIVEN, {}, COINS), [inbox, ()])
    body = asks[1].send[0].body
    assert set(body) == {"present", "sums"}
    assert body["sums"].tolist() == [4, 2]


def test_the_server_behind_a_relay_learns_no_names_of_hidden_rows() -> None:
    body: dict[str, Tensor] = {"present": torch.tensor([1, 0, 1], dtype=torch.uint8), "rows": torch.zeros(2, 2)}
    for pipeline, ids in ((NAIVE, None), (Pipeline(place=Relay()), ("a", "c"))):
        asks, got = ended(pipeline.place.collect(pipeline, GIVEN, COINS), [(Received("relay", "released", body),)])
        assert asks == [Exchange(wait=Wait("released", ("relay",)))]
        assert isinstance(got, Released)
        assert got.present == ("a", "c")
        assert got.ids == ids


def test_a_direct_server_gets_rows_with_names() -> None:
    inbox = (up("b", 1.0, 2.0, weight=4),)
    asks, got = ended(PLAIN.place.collect(PLAIN, GIVEN, COINS), [inbox])
    assert asks == [Exchange(wait=Wait("up", ROSTER, 1))]
    assert got.present == got.ids == ("b",)
    assert got.rows.tolist() == [[1.0, 2.0]]
    assert got.luggage["weight"].tolist() == [[4.0]]


@pytest.mark.parametrize(("place", "target"), [(Direct(), "server"), (Relay(), "relay")])
def test_a_client_sends_its_payload_once(place: Direct | Relay, target: str) -> None:
    pipeline = Pipeline(place=place)
    payload = Payload(torch.ones(2), {"weight": torch.ones(1)}, {"clamped": 7})
    asks, _ = ended(place.submit(pipeline, GIVEN, payload, {}, COINS), [()])
    (ask,) = asks
    assert ask.wait is None
    (letter,) = ask.send
    assert isinstance(letter, Letter)
    assert (letter.target, letter.kind) == (target, "up")
    assert letter.body == up_body(payload)
    # What a client notes for itself stays at home.
    assert set(up_body(payload)) == {"vector", "weight"}


def test_who_is_in_the_middle() -> None:
    assert dict(Direct().middle(PLAIN)) == {}
    assert list(Relay().middle(NAIVE)) == ["relay"]
    assert Direct.keeps_ids
    assert not Relay.keeps_ids
    assert not Direct.restarts
    assert not Relay.restarts
    assert Direct.realises == {"rows"}
    assert Relay.realises >= {"rows", "sums"}


def test_what_each_party_learns() -> None:
    fixed = Pipeline(encode=FixedPoint(clients=3), release=Sum(), place=Relay())
    assert fixed.place.learns(fixed) == {
        "server": f"{Sum().reveals()}; and which clients took part",
        "relay": "every client's whole update, and whose it is",
    }
    assert set(PLAIN.place.learns(PLAIN)) == {"server"}
    assert Relay.tolerance.apart == (("relay", "server"),)
    assert Direct.tolerance.apart == ()
