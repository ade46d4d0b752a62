"""Who decides where a node's keys lie, what a message may say, and who a node is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.enrolled import keys_of
from tests.flowers import deployed, numbers

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import RosterError, SpecError, StoreError, WireError
from croupier.flower.background import Workbench
from croupier.flower.letters import RECORD, Told, introduced, name_in
from croupier.flower.session import begin_session
from croupier.flower.station import KEY, NodeFacts, find_station, station_at
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
