"""Boxes in escrow: a server may go at every step after receipts, and nobody below the threshold reads more for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from tests.laws.pipelines import PIPELINES, placed
from tests.laws.toy import CLIENTS, absent, play
from tests.unit.place.chain.test_place_chain import letters, witness

from croupier.core.flow import Change, Letter
from croupier.core.view import View
from croupier.engine.state import Round, Threat
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.mpc import escrow
from croupier.pipeline import Pipeline
from croupier.place.chain.boxes import lock_of
from croupier.place.chain.chain import Chain
from croupier.place.relay import Relay
from croupier.statement import explain
from croupier.systems import naive

PIPELINE = PIPELINES["shuffled models, boxes in escrow"]
SERVERS = ("mix1", "mix2", "mix3")


def silent(*kinds: str, to: tuple[str, ...] | None = None) -> Change:
    """A server that sends nothing of some kinds, or not to some."""

    def change(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(one for one in sent if not one.kind.startswith(kinds) or (to and one.target not in to))

    return change


def dead_from(step: str) -> Change:
    """A server that sends nothing any more once it should send this."""
    over: list[str] = []

    def change(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        over.extend(one.kind for one in sent if one.kind == step)
        return () if over else sent

    return change


def rows_of(done: Round) -> list[bytes]:
    """What the server was sent, in any order."""
    bodies = letters(done, "server", "mixed").values()
    return sorted(bytes(row.numpy().tobytes()) for row in next(iter(bodies))["rows"])


def with_gone(gone: str, change: Change) -> Round:
    return play(PIPELINE, count=1, threat=Threat(corrupted={gone: change}))[0]


@pytest.mark.parametrize("gone", SERVERS)
@pytest.mark.parametrize("step", ["hop", "status"])
def test_a_round_completes_without_a_server_that_goes_at_any_hop(gone: str, step: str) -> None:
    whole, number = rows_of(play(PIPELINE, count=1)[0]), SERVERS.index(gone)
    done = with_gone(gone, dead_from(f"{step}{number}"))
    assert rows_of(done) == whole
    assert set(letters(done, "server", "mixed")) == {name for name in SERVERS if name != gone}


@pytest.mark.parametrize("gone", SERVERS)
def test_who_is_gone_is_heard_no_more_and_nobody_has_a_second_key(gone: str) -> None:
    """The live servers put together the key of the one that is gone; of each other's keys each has one share of two."""
    number = SERVERS.index(gone)
    done = with_gone(gone, silent(f"hop{number}"))
    live = [name for name in SERVERS if name != gone]
    for name in live:
        other = next(one for one in live if one != name)
        opened = {**letters(done, name, f"open{number}")}
        assert set(opened) == {other}
        points = {SERVERS.index(name) + 1: letters(done, name, "escrow")[gone]["share"]}
        points[SERVERS.index(other) + 1] = opened[other]["share"]
        key = escrow.joined({point: bytes(share.numpy()) for point, share in points.items()})
        coins = done.views[gone].coins
        assert coins is not None
        assert key == coins.child("lock").export(), "the key of the server that is gone"
        kinds = [f"open{at}" for at in range(3) if at != number]
        assert not any(letters(done, name, kind) for kind in kinds), "a second key was opened"
        # What one server knows of the other live one's key is a single share, which is uniform.
        assert list(letters(done, name, "escrow")) == [one for one in SERVERS if one != name]
    assert "mixed" not in {one.kind for one in sent_by(gone, number)}, "it still takes part"


def sent_by(gone: str, number: int) -> list[Letter]:
    """All that a server sends whose hop did not come, although it is there."""
    log: list[Letter] = []

    def change(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        kept = silent(f"hop{number}")(sent, view)
        log.extend(kept)
        return kept

    with_gone(gone, change)
    return log


@pytest.mark.parametrize("reached", ["mix2", "mix3"])
def test_a_hop_that_reached_one_server_is_passed_on_and_no_key_is_opened(reached: str) -> None:
    missed = "mix3" if reached == "mix2" else "mix2"
    whole = rows_of(play(PIPELINE, count=1)[0])
    done = with_gone("mix1", silent("hop0", to=(missed,)))
    assert rows_of(done) == whole
    assert set(letters(done, missed, "again0")) == {reached}
    assert not any(letters(done, name, f"open{at}") for name in SERVERS for at in range(3))


@pytest.mark.parametrize("step", ["lock", "escrow", "here", "receipt"])
def test_a_server_that_goes_before_receipts_ends_the_round_with_nothing_opened(step: str) -> None:
    log: list[Letter] = []

    def listen(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        log.extend(sent)
        return sent

    threat = Threat(corrupted={"mix2": dead_from(step), "mix1": listen, "mix3": listen})
    with pytest.raises(CroupierError):
        play(PIPELINE, count=1, threat=threat)
    assert not any(one.kind.startswith("open") for one in log)
    if step != "receipt":
        assert not any(one.kind == "mixed" for one in log), "rows were let out"


def test_fewer_live_servers_than_the_threshold_open_nothing() -> None:
    pipeline = placed(naive("model"), Chain(shuffle="onion", servers=4, threshold=3))
    log: list[Letter] = []

    def listen(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        log.extend(sent)
        return sent

    dead = dead_from("hop0")
    both = {"mix1": dead, "mix2": dead_from("status0"), "mix3": listen, "mix4": listen}
    with pytest.raises(CroupierError):
        play(pipeline, count=1, threat=Threat(corrupted=both))
    assert not any(one.kind.startswith("open") or one.kind == "mixed" for one in log)


def test_two_of_four_may_go_one_after_the_other() -> None:
    pipeline = placed(naive("model"), Chain(shuffle="onion", servers=4, threshold=2))
    threat = Threat(corrupted={"mix2": dead_from("hop1"), "mix4": dead_from("hop3")})
    assert rows_of(play(pipeline, count=1, threat=threat)[0]) == rows_of(play(pipeline, count=1)[0])


def altered(kind: str, **change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def corrupted(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        return tuple(
            replace(one, body={key: change[key](value) if key in change else value for key, value in one.body.items()})
            if one.kind == kind and not isinstance(one.body, bytes)
            else one
            for one in sent
        )

    return corrupted


@pytest.mark.parametrize(
    ("server", "change", "said"),
    [
        ("mix3", altered("status0", signature=lambda value: value ^ 1), "did not sign that mix1 is gone"),
        ("mix3", altered("status0", before=lambda value: value ^ 1), "hold different boxes"),
    ],
)
def test_a_server_that_lies_about_one_that_is_gone_is_named(server: str, change: Change, said: str) -> None:
    with pytest.raises(CroupierError, match=said):
        play(PIPELINE, count=1, threat=Threat(corrupted={"mix1": dead_from("hop0"), server: change}))


def test_a_wrong_share_of_a_key_is_seen_by_who_gets_it() -> None:
    spoil, log = altered("open0", share=lambda value: value ^ 1), list[Letter]()

    def listen(sent: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
        log.extend(sent)
        return sent

    with pytest.raises(CroupierError, match="round 1 cannot go on"):
        play(PIPELINE, count=1, threat=Threat(corrupted={"mix1": dead_from("hop0"), "mix3": spoil, "mix2": listen}))
    assert [one.kind for one in log][-1] == "open0", "it went on with a key that is none"


def test_rows_that_servers_tell_apart_are_refused() -> None:
    flip = altered("mixed", rows=lambda value: value.flip(0))
    with pytest.raises(ProtocolError, match="mix1 and mix2 let out different rows"):
        play(PIPELINE, count=1, threat=Threat(corrupted={"mix2": flip}))


def test_as_many_as_can_finish_read_every_row_and_one_fewer_sees_what_is_released() -> None:
    (done,) = play(PIPELINE, count=1, threat=absent("c1"))
    relay = play(placed(PIPELINE, Relay()), count=1, threat=absent("c1"))[0]
    true = {source: body["vector"] for source, body in letters(relay, "relay", "up").items()}
    assert set(PIPELINE.place.breaks) == set(combinations(SERVERS, 2))
    for name in SERVERS:
        alone = PIPELINE.place.pooled(PIPELINE, {name: witness(done, name)})
        assert alone.ids is None
        assert alone.rows is not None
        assert sorted(row.tolist() for row in alone.rows) == sorted(row.tolist() for row in true.values())
    assert len(true) == len(CLIENTS) - 1


def test_both_thresholds_are_stated() -> None:
    said = explain(PIPELINE)
    assert "up to 1 of 3 mix servers" in said.privacy_threshold
    assert "completes with 2 live mix servers of 3" in said.liveness_threshold


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"shuffle": "dealer", "threshold": 2}, "only keys of boxes can be put together"),
        ({"shuffle": "onion", "threshold": 3}, "threshold = 3 of 3 servers: then none can be missing; use 2 to 2"),
        ({"trust": "full", "shuffle": "onion", "threshold": 2}, "only keys of boxes"),
    ],
)
def test_thresholds_that_fit_no_form_are_refused(place: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as error:
        Pipeline.parse({**naive("model").plain(), "place": {"use": "chain", **place}})
    assert said in str(error.value)


def test_a_key_in_escrow_is_that_of_the_lock() -> None:
    (done,) = play(PIPELINE, count=1)
    coins = done.views["mix1"].coins
    assert coins is not None
    public = letters(done, "c0", "lock")["mix1"]["public"]
    assert lock_of(coins).public == bytes(public.numpy())
