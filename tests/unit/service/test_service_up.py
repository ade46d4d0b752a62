"""`up`: every party a process of its own gives the simulation's run, survives a kill, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.engine.local import Local
from croupier.engine.loop import rounds
from croupier.engine.state import Round
from croupier.service.player import Hook
from croupier.service.start import assembled
from croupier.service.up import UpResult, up
from croupier.spec import Spec, load

SETS = ["federation.rounds=2", "task.together=1", "task.split.clients=4"]


def described(preset: str) -> Spec:
    """A small run, of clients that train one by one, as processes do."""
    return load(preset, SETS)


def simulated(spec: Spec) -> list[Round]:
    """The same run in one process."""
    task = assembled(spec, Coins.from_seed(1)).task
    keep = {"*": "digest"}
    return list(rounds(spec.protocol, task, spec.federation, Coins.from_seed(1), Local(), keep=keep))  # type: ignore[arg-type]


def check_same(found: UpResult, here: list[Round]) -> None:
    """The same models, measures and views."""
    assert [line["model"] for line in found.rounds] == [canon.digest(one.state.model.vector).hex() for one in here]
    assert [line["accuracy"] for line in found.rounds] == [one.metrics["accuracy"] for one in here]
    views = {name: {one.number + 1: one.views[name].digest().hex() for one in here} for name in here[0].views}
    assert found.views == views


def test_processes_give_the_run_of_the_simulation() -> None:
    spec = described("rns-servers")
    found = up(spec, seed=1)
    check_same(found, simulated(spec))
    plain = found.plain()
    assert set(plain["parties"]) == {"c0", "c1", "c2", "c3", "sum1", "sum2", "sum3", "server"}
    assert all(facts["bytes_out"] > 0 for facts in plain["parties"].values())
    assert json.dumps(plain)


def killed_at(step: str) -> Callable[[], Hook]:
    """A hook that kills its own process, as nothing can be caught or cleaned up after, at a step of the first round."""

    def made() -> Hook:
        def hook(at: str, number: int) -> None:
            if at == step and number == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        return hook

    return made


@pytest.mark.parametrize(
    ("party", "step"), [("c1", "sent:share"), ("sum2", "got:share"), ("server", "leave:published"), ("server", "end")]
)
def test_a_party_that_is_killed_goes_on_to_the_same_model(party: str, step: str) -> None:
    spec = described("rns-servers")
    found = up(spec, seed=1, hooks={party: killed_at(step)})
    assert found.restarts == 1
    assert [line["model"] for line in found.rounds] == [
        canon.digest(one.state.model.vector).hex() for one in simulated(spec)
    ]


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
