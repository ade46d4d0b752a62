"""The campaign of faults: a short one finds nothing, and its judge sees what is planted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, ProtocolError
from croupier.service import announcer, client
from croupier.service.roster import Timetable
from croupier.service.up import UpResult
from croupier_lab.bench.services import faults, killed_processes
from croupier_lab.bench.services.deployment import Deployment, PlayedServices, ServiceFault, clocks
from croupier_lab.bench.services.faults import FAILURES, PLAN, FaultsSize, judge, measure, show
from croupier_lab.bench.services.killed_processes import play_processes
from croupier_lab.bench.services.toy import CLIENTS, PIPELINES, toy_task

COINS = Coins.from_seed(3)
TIMES = Timetable(phase=1.0, round=4.0, hold=0.3)


@pytest.fixture
def _short_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are gone for good are not waited for as long as a real server does."""
    monkeypatch.setattr(announcer, "FAREWELL", 0.5)


def played(folder: Path, name: str = "plain", *faults: ServiceFault, times: Timetable = TIMES) -> PlayedServices:
    async def main() -> PlayedServices:
        return await Deployment(PIPELINES[name], toy_task(), PLAN, COINS, folder, times, faults).clocked()

    with clocks():
        return asyncio.run(main())


@pytest.mark.usefixtures("_short_farewell")
@pytest.mark.parametrize("faults", [4, pytest.param(24, marks=pytest.mark.long)])
def test_a_short_campaign_finds_nothing(faults: int) -> None:
    found = measure(FaultsSize(faults=faults, processes=0, pipelines=("plain", "sum servers", "masks")), 5)
    assert found["injected"] >= faults
    assert {what: found[what] for what in ("lost", "wrong", "hung", "reused")} == {
        "lost": 0, "wrong": 0, "hung": 0, "reused": 0,
    }, found["failures"]  # fmt: skip


@pytest.mark.usefixtures("_short_farewell")
def test_a_server_that_is_killed_when_a_round_is_lost_does_not_go_on(tmp_path: Path) -> None:
    faults = (ServiceFault("gone", "c2", "got:model", 0), ServiceFault("killed", "server", "end", 0))
    found = played(tmp_path, "masks", *faults, times=Timetable(phase=0.5, round=1.0, hold=0.2))
    assert {one.what for one in found.injected} >= {"killed"}
    assert found.lines == []
    assert "round 1 cannot go on" in str(found.ended["server"])
    assert judge("masks", found, COINS) == Counter()


def test_processes_that_are_killed_come_back() -> None:
    steps = [("server", "end", 0), ("sum2", "got:here", 0), ("c1", "sent:share", 1)]
    # Where gRPC runs already no process can be forked: they have a fresh one to come from.
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        found, why = fresh.submit(play_processes, "sum servers", steps, 4).result()
    assert found["injected"] >= 1
    assert sum(found[what] for what in (*FAILURES, "aborted")) == 0
    assert why == ""


STEPS = [("server", "end", 0), ("c1", "end", 0)]


def test_what_went_wrong_with_processes_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def up(*_: object, **__: object) -> UpResult:
        raise ProtocolError("server: round 1: 3 clients are too few")

    monkeypatch.setattr(killed_processes, "up", up)
    assert play_processes("plain", STEPS, 4) == (Counter(runs=1, aborted=1), "server: round 1: 3 clients are too few")
    # No party but the server ended with a word, and it had no round.
    monkeypatch.setattr(killed_processes, "up", lambda *_, **__: UpResult((), {"server": {}}, 1.0))
    monkeypatch.setattr(killed_processes, "_models", lambda *_: [])
    assert +play_processes("plain", STEPS, 4)[0] == Counter(runs=1, lost=killed_processes.ROUNDS + 1)
    # The deadline interrupts even a wait for nothing.
    monkeypatch.setattr(killed_processes, "LIMIT", 0.2)
    monkeypatch.setattr(killed_processes, "up", lambda *_, **__: time.sleep(30))
    assert play_processes("plain", STEPS, 4) == (Counter(runs=1, hung=1), "")


def test_a_campaign_names_what_ended_runs_with_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [(Counter(runs=1, aborted=1), "server: nobody came"), (Counter(runs=1, hung=1), "")]

    class Fresh(ThreadPoolExecutor):
        def __init__(self, count: int, _context: object) -> None:
            super().__init__(count)

    monkeypatch.setattr(faults, "ProcessPoolExecutor", Fresh)
    monkeypatch.setattr(faults, "play_processes", lambda *_: ends.pop(0))
    found = measure(FaultsSize(faults=1, kills=1, cuts=0, processes=2, pipelines=("plain",)), 5)
    assert found["aborts"]["plain, processes: server: nobody came"] == 1
    assert found["hung"] == 1
    assert found["failures"][0].endswith("{'hung': 1}")
    show(found)
    assert "of the 2 runs with real processes `reused` counts nothing" in capsys.readouterr().out


@pytest.mark.usefixtures("_short_farewell")
@pytest.mark.parametrize("name", ["masks", "sum servers"])
def test_a_restored_backup_sends_nothing_more(tmp_path: Path, name: str) -> None:
    sent = "sent:up" if name == "masks" else "sent:share"
    faults = (ServiceFault("saved", "c1", "open", 0), ServiceFault("restored", "c1", sent, 0))
    found = played(tmp_path, name, *faults)
    assert judge(name, found, COINS) == Counter()
    assert isinstance(found.ended["c1"], IntegrityError)
    assert "restored backup" in str(found.ended["c1"])


@pytest.mark.usefixtures("_short_farewell")
def test_without_the_question_to_the_hosts_secrets_are_used_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that proves it: a client that does not ask covers two updates with one mask."""

    async def trusting(*given: object) -> None:
        return None

    monkeypatch.setattr(client, "check_recall", trusting)
    # While another client is away the server waits, and the round is still open when this one is back.
    away = ServiceFault("gone", "c2", "got:model", 1)
    found = played(
        tmp_path, "masks", ServiceFault("saved", "c1", "end", 0), ServiceFault("restored", "c1", "sent:up", 1), away
    )
    assert judge("masks", found, COINS)["reused"] == 1


def test_the_judge_sees_another_model_a_lost_round_and_a_hang(tmp_path: Path) -> None:
    found = played(tmp_path)
    assert judge("plain", found, COINS) == Counter()
    other = [{**found.lines[0], "model": "00"}, *found.lines[1:]]
    assert judge("plain", replace(found, lines=other), COINS) == Counter(wrong=1)
    assert judge("plain", replace(found, lines=found.lines[:1]), COINS) == Counter(lost=1)
    assert judge("plain", replace(found, stuck=["c0"]), COINS) == Counter(hung=1)
    assert judge("plain", replace(found, ended={**found.ended, "c0": ValueError()}), COINS) == Counter(lost=1)
    assert judge("plain", replace(found, ended={**found.ended, "c0": IntegrityError()}), COINS) == Counter(wrong=1)


@pytest.mark.parametrize("step", ["open", "got:up", "work:aggregate", "end"])
def test_a_server_that_stops_does_not_end_the_run(tmp_path: Path, step: str) -> None:
    found = played(tmp_path, "plain", ServiceFault("stopped", "server", step, 0))
    assert judge("plain", found, COINS) == Counter()
    assert len(found.lines) == 2


def test_a_server_whose_round_is_over_when_it_starts_again_tells_everybody(tmp_path: Path) -> None:
    """Its clock jumped: the round failed at once, before anybody could ask the server that had just come back."""
    found = played(tmp_path, "plain", ServiceFault("clock ahead", "server", "open", 0))
    assert judge("plain", found, COINS) == Counter()
    assert set(found.ended) == {"server", *CLIENTS}


@pytest.mark.parametrize("party", ["server", "relay", "c2"])
def test_a_full_disk_costs_time_and_nothing_else(tmp_path: Path, party: str) -> None:
    found = played(tmp_path, "relay", ServiceFault("disk", party, "open", 1))
    assert judge("relay", found, COINS) == Counter()
    assert len(found.lines) == 2
