"""What every form of a chain keeps to: sizes, batches, duplicates, fewest clients, and nothing of an earlier round."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.laws.pipelines import PIPELINES, placed
from tests.laws.toy import absent, play, tap
from tests.unit.place.chain.test_place_chain import letters

from croupier.core.flow import Change, Letter
from croupier.core.view import View
from croupier.engine.state import Threat
from croupier.errors import CroupierError, IntegrityError, ProtocolError
from croupier.mpc.authentic import bytes_of
from croupier.mpc.signatures import verified
from croupier.pipeline import Pipeline
from croupier.place.chain import receipts
from croupier.place.chain.chain import Chain

FORMS = [name for name, pipeline in PIPELINES.items() if isinstance(pipeline.place, Chain)]
BOXES = ["shuffled models, chain of boxes", "shuffled models, boxes in escrow"]
SENT = ("up", "box", "share", "seed")
SHARED = ["bits, chain", "bits, chain of pairs"]


def placing(pipeline: Pipeline) -> Chain:
    assert isinstance(pipeline.place, Chain)
    return pipeline.place


@pytest.mark.parametrize("name", FORMS)
def test_every_client_sends_exactly_as_many_bytes(name: str) -> None:
    """A message whose size told anything would mark its sender at every hop."""
    pipeline = PIPELINES[name]
    kinds = pipeline.place.schemas(pipeline, play(pipeline, count=1)[0].views["server"].given)
    for kind in set(SENT) & set(kinds):
        assert all(field.fixed is not None for field in kinds[kind].fields), (kind, "is of no fixed size")


@pytest.mark.parametrize("name", FORMS)
def test_whole_batches_leave_once(name: str) -> None:
    pipeline = PIPELINES[name]
    threat, log = tap(pipeline)
    play(pipeline, count=1, threat=threat)
    for server in placing(pipeline).names:
        sent = Counter((one.kind, one.target) for one in log[server, 0])
        assert max(sent.values()) == 1, "something is sent in several pieces"
        kinds = [one.kind for one in log[server, 0]]
        last = max(kinds.index(kind) for kind in kinds if kind.startswith(("mixed", "hop", "masked")))
        first = kinds.index("receipt") if "receipt" in kinds else -1
        assert first < last, "rows left before the clients present were signed for"


@pytest.mark.parametrize("name", FORMS)
def test_clients_check_what_is_signed_and_how_many_are_mixed(name: str) -> None:
    """Every receipt verifies for its client alone, and a client refuses a crowd below the fewest."""
    pipeline = PIPELINES[name]
    threat, log = tap(pipeline)
    (done,) = play(pipeline, count=1, threat=threat)
    signed = letters(done, "c0", "receipt")
    assert signed, "nobody signs"
    given, keys = done.views["c0"].given, done.views["c0"].memory["keys"]["public"]
    for server, body in signed.items():
        sent: list[Any] = [one.body for one in log["c0", 0] if one.target == server]
        for who, right in (("c0", True), ("c1", False)):
            claims = [receipts._claim(given, server, who, body["present"], one) for one in sent]
            assert any(verified(keys[server], claim, bytes_of(body["signature"])) for claim in claims) == right
    crowd = placed(pipeline, placing(pipeline).model_copy(update={"smallest": 4, "colluders": 1}))
    with pytest.raises(ProtocolError, match="4 of the 5 needed"):
        play(crowd, count=1)


def replayed(kind: str) -> Change:
    """A client that sends in the second round what it sent in the first."""
    first: dict[str, Letter] = {}

    def change(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        if view.given.round == 0:
            first.update({one.target: one for one in sent if one.kind == kind})
            return sent
        return tuple(replace(one, body=first[one.target].body) if one.kind == kind else one for one in sent)

    return change


@pytest.mark.parametrize("name", BOXES)
def test_a_box_of_an_earlier_round_is_refused(name: str) -> None:
    with pytest.raises(CroupierError, match=r"did not sign|altered, or closed for another"):
        play(PIPELINES[name], threat=Threat(corrupted={"c2": replayed("box")}))


@pytest.mark.parametrize("name", BOXES)
def test_a_copied_box_is_refused_before_it_is_moved(name: str) -> None:
    taken: list[Letter] = []
    log: list[Letter] = []

    def copy(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        taken.extend(one for one in sent if one.kind == "box")
        return tuple(replace(one, body=taken[0].body) if one.kind == "box" else one for one in sent)

    def listen(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        log.extend(sent)
        return sent

    threat = Threat(corrupted={"c0": copy, "c1": copy, "mix1": listen})
    with pytest.raises(CroupierError, match="is a copy"):
        play(PIPELINES[name], count=1, threat=threat)
    assert not any(one.kind.startswith("hop") for one in log)


@pytest.mark.parametrize("name", SHARED)
def test_a_share_of_an_earlier_round_spoils_the_round_and_reaches_nobody_else(name: str) -> None:
    """Shares are bound to the attempt by the door and the client's receipt: it refuses what it did not mean to send."""
    with pytest.raises(IntegrityError, match="did not sign for what this client sent it"):
        play(PIPELINES[name], threat=Threat(corrupted={"c2": replayed("share")}))


@pytest.mark.parametrize("name", FORMS)
def test_too_few_clients_are_not_mixed(name: str) -> None:
    pipeline = PIPELINES[name]
    three = placed(pipeline, placing(pipeline).model_copy(update={"smallest": 3}))
    with pytest.raises(ProtocolError, match="2 of the 3 needed"):
        play(three, count=1, threat=absent("c2", "c3"))
