"""Who decides where a node's keys lie, what a message may say, and who a node is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.enrolled import keys_of
from tests.flowers import deployed, numbers

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import RosterError, SpecError, StoreError, WireError
from croupier.flower.background import Workbench
from croupier.flower.letters import FIXED_WORD, RECORD, Told, introduced, name_in
from croupier.flower.mod import ShieldMod
from croupier.flower.session import begin_session
from croupier.flower.station import KEY, QUERIES, ROSTER, NodeFacts, find_station, queries_pass, station_at
from croupier_lab.bench.flower.grid import HereGrid


@pytest.fixture(autouse=True)
def _nobody_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROUPIER_KEY", raising=False)
    monkeypatch.delenv("CROUPIER_ROSTER", raising=False)


@pytest.mark.parametrize("key", ["croupier", "croupier-key", "croupier.protect"])
def test_a_run_has_no_say(key: str) -> None:
    with pytest.raises(SpecError, match=f"run_config '{key}': whoever starts a run has no say"):
        find_station(NodeFacts({KEY: "/srv/ann/ann.key"}, {key: "off"}))


def test_a_node_without_a_key_is_told_how_to_name_one(tmp_path: Path) -> None:
    for rehearsal in ("", str(tmp_path)):
        with pytest.raises(SpecError, match="this node has no key file"):
            find_station(NodeFacts({"partition-id": 0}, {}, rehearsal))


def test_a_key_is_found_by_the_nodes_configuration_and_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with deployed(numbers(), 2) as (made, configs):
        assert find_station(NodeFacts(configs[2], {"lr": 0.1})).member.name == "node00001"
        monkeypatch.setenv("CROUPIER_KEY", str(made.key("node00000")))
        assert find_station(NodeFacts({}, {})).member.name == "node00000"
        assert find_station(NodeFacts(configs[2], {})).member.name == "node00001"
        with pytest.raises(StoreError):
            find_station(NodeFacts({KEY: str(made.folder / "nobody.key")}, {}))
        with pytest.raises(RosterError, match="a strategy is the server's"):
            begin_session(station_at(made.key("sum1")))


@pytest.mark.parametrize("value", ["", 0, 1, True, False, 0.5])
@pytest.mark.parametrize("key", [KEY, ROSTER])
def test_what_is_no_path_is_refused_and_not_passed_over(
    key: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    for name in ("CROUPIER_KEY", "CROUPIER_ROSTER"):
        monkeypatch.setenv(name, "/srv/bob/file")
    with pytest.raises(SpecError, match=rf"node_config {key} = {value!r}: give a path in quotes .*{key}="):
        find_station(NodeFacts({KEY: "/srv/ann/ann.key", key: value}, {}))


@pytest.mark.parametrize("value", ["false", "no", "true", "", 0, 1, 0.0])
def test_queries_pass_only_by_a_plain_true(value: object) -> None:
    assert queries_pass({QUERIES: True}) is True
    assert queries_pass({QUERIES: False}) is False
    assert queries_pass({}) is False
    with pytest.raises(SpecError, match=rf"node_config {QUERIES} = {value!r}: write true or false"):
        queries_pass({QUERIES: value})


@pytest.mark.parametrize(
    ("said", "passes", "why"),
    [
        ({QUERIES: True}, True, ""),
        ({QUERIES: False}, False, "operator may let queries pass"),
        ({}, False, "operator may let queries pass"),
        ({QUERIES: "false"}, False, "write true or false"),
    ],
)
def test_a_query_is_answered_by_an_operators_leave(
    said: dict[str, Any], passes: bool, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    app = ClientApp(mods=[ShieldMod()])

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict({"all": MetricRecord({"records": 4711})}), reply_to=message)

    with deployed(numbers(), 2) as (_, configs):
        grid = HereGrid(app, {1: {**configs[1], **said}})
        (reply,) = grid.send_and_receive([Message(RecordDict(), dst_node_id=1, message_type="query")])
    assert reply.has_error() is not passes
    assert (b"4711" in b"".join(grid.relayed)) is passes
    if why:
        assert reply.error.reason == FIXED_WORD
        assert why in capfd.readouterr().err


def test_what_a_message_holds_of_ours_is_checked() -> None:
    told = Told(notice=b"signed", beside=canon.dump({}), weight="num-examples")
    content = RecordDict({RECORD: told.record(), "config": ConfigRecord({"lr": 0.1})})
    assert Told.read(content) == told
    assert RECORD not in content, "the app does not see it"
    assert Told.read(content) is None
    for wrong in (ConfigRecord({"notice": "text"}), ConfigRecord({"off": True}), MetricRecord({"notice": 1})):
        with pytest.raises(WireError, match="a message whose record"):
            Told.read(RecordDict({RECORD: wrong}))
    with pytest.raises(WireError, match="no table of numbers"):
        Told(beside=canon.dump({"scale": 1.0})).tensors()


def test_a_node_proves_its_name_for_one_question() -> None:
    HereGrid(ClientApp(), {})
    keys = {name: keys_of(name) for name in ("ann", "bob")}
    public = {name: one.public for name, one in keys.items()}
    nonce, other = Coins.from_seed(1).child("a").export(), Coins.from_seed(1).child("b").export()
    asked = Message(RecordDict(), dst_node_id=7, message_type="train")
    reply = introduced(asked, "ann", keys["ann"].identity, Told(hello=nonce))
    assert name_in(reply, nonce, public) == "ann"
    assert name_in(reply, other, public) is None
    assert name_in(introduced(asked, "ann", keys["bob"].identity, Told(hello=nonce)), nonce, public) is None
    assert name_in(introduced(asked, "cleo", keys["bob"].identity, Told(hello=nonce)), nonce, public) is None


def test_training_runs_in_the_thread_that_flower_called() -> None:
    bench, here = Workbench(), threading.get_ident()

    async def job() -> list[int]:
        import asyncio

        work = bench.here(lambda jobs: [threading.get_ident() for _ in jobs])
        found = await asyncio.to_thread(work, [()])
        return [*found, threading.get_ident()]

    trained, looped = bench.run(job())
    assert trained == here
    assert looped != here


def test_what_a_job_raises_is_raised_where_it_was_called() -> None:
    bench = Workbench()

    async def job() -> None:
        raise SpecError("no")

    with pytest.raises(SpecError, match="no"):
        bench.run(job())
