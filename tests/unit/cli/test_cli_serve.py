"""`croupier serve` and `croupier join`: what they refuse, how they end, and whole runs of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.shell import Shell
from tests.unit.service.test_service_rotation import FIRST, HOSTS, Town

from croupier.errors import IntegrityError, ProtocolError
from croupier.service import start
from croupier.service.home import Home
from croupier.service.roster import Roster, Timetable
from croupier.service.views import open_views


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


def key(name: str) -> Path:
    return Path(name) / f"{name}.key"


def events(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_what_cannot_begin_is_one_line(shell: Shell, town: Town) -> None:
    assert "ann is a client; croupier join --key ann/ann.key" in shell.refused("serve", "ann", "--key", key("ann"))
    assert "sum1 is a host; croupier serve sum1" in shell.refused("join", "--key", key("sum1"))
    assert "the key file is that of sum1, a sum-server" in shell.refused("serve", "relay", "--key", key("sum1"))
    assert "dora has accepted no roster" in shell.refused("join", "--key", key("dora"))
    assert "only the server has results" in shell.refused("serve", "sum1", "--key", key("sum1"), "--out", "here")
    assert "everybody accepted the rest" in shell.refused("join", "--key", key("ann"), "--set", "federation.rounds=9")
    assert "there is no absent_here.py" in shell.refused("join", "--key", key("ann"), "--fit", "absent_here:train")
    given = ("--fit", "absent_here:train", "--data", "records")
    assert "your own function trains" in shell.refused("join", "--key", key("ann"), *given)
    assert "cannot be read" in shell.refused("join", "--key", "nobody/nobody.key")


def test_a_roster_that_was_not_accepted_is_refused(shell: Shell, town: Town) -> None:
    Path("federation.roster").write_text(town.first.text())
    said = shell.refused("join", "--key", key("dora"), "--roster", "federation.roster")
    assert "dora has not accepted it" in said


def test_a_missing_group_secret_is_named(shell: Shell, town: Town) -> None:
    (Path("ann") / "ann.runs" / town.first.run.hex() / "1.group").unlink()
    said = shell.refused("join", "--key", key("ann"))
    assert "ann has no group secret under version 1" in said
    assert said.endswith("croupier group --open group.sealed --key ann/ann.key")


def test_of_several_runs_one_must_be_named(shell: Shell, town: Town, tmp_path: Path) -> None:
    other = Roster(
        town.first.cards, town.first.spec, bytes(16), town.first.quorum, town.first.timetable, layout=town.first.layout
    )
    town.pin("sum1", other)
    assert "rosters of 2 runs; name one: --roster" in shell.refused("serve", "sum1", "--key", key("sum1"))


@pytest.mark.parametrize(
    ("error", "code", "event"),
    [(IntegrityError("a wrong sum"), 3, "alarm"), (ProtocolError("nobody came"), 1, "error"), (None, 0, "stopped")],
)
def test_the_exit_status_says_how_it_ended(
    error: Exception | None, code: int, event: str, shell: Shell, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(party: Any, address: str) -> None:
        party.store.close()
        if error:
            raise error

    monkeypatch.setattr(start, "run_here", ended)
    found, out, said = shell("serve", "sum-server", "--key", key("sum1"), "--status", "127.0.0.1:0", "--json")
    assert found == code
    assert events(said)[-1]["event"] == event
    if code:
        assert (events(said)[-1]["why"], out) == (str(error), "")
    else:
        assert json.loads(out)["over"] is False


def test_what_lies_beside_the_key(shell: Shell, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[Any] = []

    def looked(member: Any, place: Any, options: Any, on_round: Any) -> Any:
        places.append((place, options))
        raise ProtocolError("enough seen")

    monkeypatch.setattr(start, "make_party", looked)
    run = Path(town.first.run.hex())
    shell("serve", "server", "--key", key("server"), "--data", "records")
    shell("join", "--key", key("ann"), "--keep-view", "--set", "run.workers=1")
    (server, plain), (ann, kept) = places
    assert server.folder == Path("server") / "server.runs" / run / "store"
    assert (server.out, server.data) == (server.folder.parent / "out", Path("records"))
    assert (plain.keep, kept.keep) == ("nothing", "keep")
    assert ann.own.run.workers == 1
    assert ann.out is None


TRAIN = """
def train(weights, round):
    return {name: value * 0.5 + round / 100 for name, value in weights.items()}, 10
"""


def party(name: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    verb = ["serve", name] if name in HOSTS else ["join"]
    command = [sys.executable, "-m", "croupier", *verb, "--key", str(folder / key(name)), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_client_trains_with_its_own_function(tmp_path: Path) -> None:
    """Hosts and two clients here; the third is `croupier join --fit` in a process of its own, which takes its time."""
    town = Town(tmp_path, times=Timetable(phase=60.0, round=80.0, hold=1.0))
    (tmp_path / "mine_at_home.py").write_text(TRAIN)
    joined = party("ann", tmp_path, "--fit", "mine_at_home:train", "--keep-view", "--json")
    seen: list[Any] = []

    async def main() -> list[Any]:
        parties = [town.party(name, [], seen.append) for name in (*HOSTS, *FIRST) if name != "ann"]
        async with asyncio.timeout(90):
            return await asyncio.gather(*map(start.run_party, parties))

    asyncio.run(main())
    out, said = joined.communicate(timeout=30)
    assert (joined.returncode, json.loads(out)["over"]) == (0, True)
    assert [one["round"] for one in events(said) if one["event"] == "closed"] == [1, 2, 3, 4]
    assert [line["present"] for line in seen] == [3] * 4
    home = Home.open(tmp_path / key("ann"))
    views = open_views(home.run_folder(town.first.run) / "views", home)
    assert [(one.party, one.round) for one in views] == [("ann", number) for number in (1, 2, 3, 4)]


def test_sigterm_ends_a_host_that_can_start_again(town: Town, tmp_path: Path) -> None:
    for _ in range(2):
        host = party("sum1", tmp_path)
        assert host.stderr is not None
        heard: list[dict[str, Any]] = []
        while not heard or heard[-1]["event"] != "listening":
            heard.append(json.loads(host.stderr.readline()))
        start_of_end = time.monotonic()
        host.send_signal(signal.SIGTERM)
        _, said = host.communicate(timeout=20)
        assert host.returncode == 0
        assert events(said)[-1]["event"] == "stopped"
        assert time.monotonic() - start_of_end < 15
