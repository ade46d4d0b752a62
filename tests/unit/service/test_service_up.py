"""`up`: every party a process of its own gives the simulation's run, survives a kill, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.served import serving

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.errors import ProtocolError
from croupier.service.training import assembled
from croupier.service.up import up
from croupier.spec import load

SETS = ["federation.rounds=2", "task.together=1", "task.split.clients=4"]
# Forked processes and gRPC do not go together once gRPC runs: each rehearsal has a fresh process of its own.
PROGRAM = """
import json, os, signal, sys
from croupier.service.up import up
from croupier.spec import load

sets, party, step = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]

def made():
    def hook(at, number):
        if at == step and number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return hook

found = up(load("rns-servers", sets), seed=1, hooks={party: made} if party else {})
print(json.dumps({**found.plain(), "views": found.views, "restarts": found.restarts}))
"""


def rehearsed(party: str = "", step: str = "") -> dict[str, Any]:
    """A small run, of clients that train one by one, as processes do; one party is killed at a step of its first round.

    Nothing in it can catch that, or clean up after it.
    """
    command = [sys.executable, "-c", PROGRAM, json.dumps(SETS), party, step]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture(scope="module")
def here() -> list[Round]:
    """The same run in one process."""
    spec = load("rns-servers", SETS)
    task = assembled(spec, Coins.from_seed(1)).task
    keep = {"*": "digest"}
    return list(rounds(spec.protocol, task, spec.federation, Coins.from_seed(1), Local(), keep=keep))  # type: ignore[arg-type]


def models(done: list[Round]) -> list[str]:
    """What binds each round's model."""
    return [canon.digest(one.state.model.vector).hex() for one in done]


def test_processes_give_the_run_of_the_simulation(here: list[Round]) -> None:
    found = rehearsed()
    assert [line["model"] for line in found["rounds"]] == models(here)
    assert [line["accuracy"] for line in found["rounds"]] == [one.metrics["accuracy"] for one in here]
    views = {name: {str(one.number + 1): one.views[name].digest().hex() for one in here} for name in here[0].views}
    assert found["views"] == views
    assert set(found["parties"]) == {"c0", "c1", "c2", "c3", "sum1", "sum2", "sum3", "server"}
    assert all(facts["bytes_out"] > 0 for facts in found["parties"].values())


@pytest.mark.parametrize(
    ("party", "step"), [("c1", "sent:share"), ("sum2", "got:share"), ("server", "leave:published"), ("server", "end")]
)
def test_a_party_that_is_killed_goes_on_to_the_same_model(here: list[Round], party: str, step: str) -> None:
    found = rehearsed(party, step)
    assert found["restarts"] == 1
    assert [line["model"] for line in found["rounds"]] == models(here)


def test_a_process_in_which_grpc_has_run_is_refused() -> None:
    async def listen() -> None:
        async with serving():
            pass

    asyncio.run(listen())
    with pytest.raises(ProtocolError, match="call it from a fresh process"):
        up(load("rns-servers", SETS))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes under /proc")
def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    program = (
        "from croupier.service.up import up\nfrom croupier.spec import load\n"
        "up(load('rns-servers', ['federation.rounds=2000']), watch=lambda event, facts: print(event, flush=True))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        while b"round" not in running.stdout.readline():
            assert running.poll() is None
        assert list(tmp_path.glob("croupier-up-*"))
        running.kill()
        running.stdout.close()
    end = time.monotonic() + 20
    while (list(tmp_path.glob("croupier-up-*")) or alive(tmp_path)) and time.monotonic() < end:
        time.sleep(0.05)
    assert list(tmp_path.glob("croupier-up-*")) == []
    assert alive(tmp_path) == []


def alive(folder: Path) -> list[str]:
    """Processes that were started with this folder for their temporary files, and still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={folder}".encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(path.parent.name)
        except OSError:
            continue
    return found
