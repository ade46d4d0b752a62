"""The door: messages of another protocol, run, round or attempt, and links that are not shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from croupier.core.attempt import AttemptId
from croupier.core.coins import Coins
from croupier.core.flow import Letter
from croupier.core.wire import Field, Schema
from croupier.encode.fixed import FixedPoint
from croupier.engine.post import Packet, Post

STAMP = AttemptId(bytes(32), bytes(16), 3, 1)
SCHEMAS = {"up": Schema((Field("vector", "<f4", (2,)),))}
LETTER = Letter("relay", "up", {"vector": torch.tensor([1.0, 2.0])})


def post(attempt_id: AttemptId = STAMP, seed: int = 1) -> Post:
    """A post of one attempt."""
    return Post(attempt_id, SCHEMAS, Coins.from_seed(seed).child(attempt_id.round, attempt_id.attempt))


@pytest.mark.parametrize("change", [{"spec": b"x" * 32}, {"run": b"x" * 16}, {"round": 4}, {"attempt": 2}])
def test_a_message_of_another_sitting_is_refused(change: dict[str, Any]) -> None:
    parcel = post(replace(STAMP, **change)).write("c0", LETTER)
    here = post()
    assert here.admit(parcel) is None
    assert "another protocol, run, round or attempt" in here.refusals[0].why
    assert post().admit(post().write("c0", LETTER)) is not None


@pytest.mark.parametrize("other", [replace(STAMP, round=4), replace(STAMP, attempt=2)])
def test_link_keys_are_fresh_for_every_sitting(other: AttemptId) -> None:
    sender = post(other)
    (packet,) = sender.seal(sender.write("c0", LETTER))
    here = post()
    assert here.open(packet) is None
    assert here.refusals[0].why == "a message was altered on the way"


def test_every_pair_has_a_key_of_its_own() -> None:
    sender = post()
    (packet,) = sender.seal(sender.write("c0", LETTER))
    here = post()
    assert here.open(Packet("c1", "relay", packet.data)) is None
    assert here.refusals[0].why == "a message was altered on the way"


@pytest.mark.parametrize("size", [1, 40, 5000])
def test_only_the_very_same_arrays_are_taken_for_checked(size: int) -> None:
    here = Post(
        STAMP,
        {kind: Schema((Field("vector", "<f4", (size,), positive=kind == "up"),)) for kind in ("up", "down")},
        None,
    )
    good, equal, bad = torch.ones(size), torch.ones(size), -torch.ones(size)
    body = {"vector": good}

    def taken(kind: str = "up") -> bool:
        return here.admit(here.write("c0", Letter("relay", kind, body))) is not None

    assert taken()
    assert taken()
    body["vector"] = bad
    assert not taken()
    assert not taken()
    assert taken("down")
    assert not taken()
    body["vector"] = equal
    assert taken()
    body["vector"] = torch.full((size,), float("nan"))
    assert not taken()
    assert not taken("down")


def test_a_residue_that_no_client_sends_is_refused() -> None:
    encode = FixedPoint(clients=4, digits=2)
    schema = Schema((Field("vector", "<i4", (1,), encode.modulus - 1, encode.gap),))
    here = Post(STAMP, {"up": schema}, None)
    for value, good in ((99, True), (100, False), (encode.modulus - 99, True), (encode.modulus - 100, False)):
        body = {"vector": torch.tensor([value], dtype=torch.int32)}
        assert (here.admit(here.write("c0", Letter("relay", "up", body))) is not None) is good
