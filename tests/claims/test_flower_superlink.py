"""A real SuperLink with SuperNodes, protected, and everybody who tries to get round it. Minutes each."""

from __future__ import annotations

import importlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from croupier.errors import ProtocolError
from croupier.service.roster import Timetable
from croupier_lab.bench.flower.deployed import DeployedRun, open_run, protected_run
from croupier_lab.bench.flower.superlink import APP, SuperLink, found_in, plain_copy
from croupier_lab.bench.flower.traces import Haystack, TracedUpdate

pytestmark = pytest.mark.long
SHORT = Timetable(phase=150.0, round=600.0, hold=5.0)
NODES = 3
ONE = "num-server-rounds=1"
EVERY_NODE = [f"node{number}" for number in range(NODES)]


def saying(done: DeployedRun, text: str) -> list[str]:
    """Which nodes said something."""
    return [name for name in EVERY_NODE if text in done.logs[name]]


@pytest.fixture
def task() -> Iterator[Any]:
    """What the app's nodes do, as a module here."""
    sys.path.insert(0, str(APP))
    try:
        yield importlib.import_module("roundapp.task")
    finally:
        sys.path.remove(str(APP))
        for name in [name for name in sys.modules if name.startswith("roundapp")]:
            del sys.modules[name]


def learned(task: Any) -> list[TracedUpdate]:
    """What each node makes of the first model in the first round, and how it is held before it is shared."""
    flat = torch.nn.utils.parameters_to_vector
    found = []
    for part in range(NODES):
        torch.manual_seed(1)
        net = task.Net()
        start = flat(net.parameters()).detach().numpy().copy()
        records, _ = task.load_data(part, NODES)
        task.train(net, records, 2, 0.1, 1000 + part)
        count = len(records[0])
        # The preset: an example counts 10^-4, and the public scale of the first round is 1.
        found.append(TracedUpdate(flat(net.parameters()).detach().numpy(), start, count, (1e4 * count,), bits=(30,)))
    return found


def test_no_update_is_in_anything_that_the_superlink_stored_or_relayed(task: Any) -> None:
    torch.set_num_threads(1)
    sought = learned(task)
    plain = open_run(NODES, ONE, tapped=True)
    found_in(plain.said)
    for seen in (Haystack(plain.relayed), Haystack(plain.stored)):
        # The control: without protection each node's update is there, nearly all of it.
        moved = [int((one.update != one.start).sum()) for one in sought]
        assert all(one.traces(seen).get("update <f4", 0) > 0.8 * many for one, many in zip(sought, moved, strict=True))
    done = protected_run(NODES, ONE, tapped=True)
    assert found_in(done.said)["accuracy"] > 0.6
    for held in (done.relayed, done.stored):
        assert sought[0].start[:64].tobytes() in held, "the model that is handed out passes"
        assert [one.traces(Haystack(held)) for one in sought] == [{}] * NODES


def test_a_deployment_learns_what_the_plain_app_learns() -> None:
    done = protected_run(NODES, "num-server-rounds=2")
    found, plain = found_in(done.said), found_in(open_run(NODES, "num-server-rounds=2").said)
    # One of 397 test pictures may fall to the other side for what is rounded.
    assert abs(found["accuracy"] - plain["accuracy"]) <= 1.5 / 397
    assert np.isclose(found["loss"], plain["loss"], atol=1e-3)
    assert len(found["seconds"]) == 2
    assert "alarm" not in "".join(done.logs.values())
    assert saying(done, '"event": "sent"') == EVERY_NODE


def test_a_node_that_is_killed_in_a_round_leaves_the_rest() -> None:
    killed = threading.Event()

    def kill_when_it_trains(link: SuperLink) -> None:
        def watch() -> None:
            end = time.monotonic() + 300
            while '"event": "opened"' not in link.log("node2") and time.monotonic() < end:
                time.sleep(0.05)
            if '"event": "sent"' not in link.log("node2"):
                killed.set()
            link.kill("node2")

        threading.Thread(target=watch, daemon=True).start()

    done = protected_run(NODES, ONE, times=SHORT, meanwhile=kill_when_it_trains)
    assert killed.is_set(), "it was killed too late to be missed"
    assert found_in(done.said)["accuracy"] > 0.6
    assert '"event": "closed"' in done.logs["node0"]
    assert '"event": "missing"' in done.said


FORGE = '''
from dataclasses import replace
from croupier.core.flow import Exchange
from croupier.place.servers import SumServers

honest = SumServers.collect


def collect(self, *given, **named):
    """Publish another sum than was computed."""
    flow, answer = honest(self, *given, **named), None
    while True:
        try:
            ask = flow.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(ask, Exchange):
            ask = replace(ask, send=tuple(map(forged, ask.send)))
        answer = yield ask


def forged(letter):
    if letter.kind != "published" or isinstance(letter.body, bytes):
        return letter
    vector = letter.body["vector"].clone()
    vector[0] ^= 1
    return replace(letter, body={**letter.body, "vector": vector})


SumServers.collect = collect
'''


def test_a_forged_sum_raises_the_alarm_at_every_node(tmp_path: Path) -> None:
    """The server's program is the app's own: here it forges, and its operator had the bundle approved."""
    app = Path(shutil.copytree(APP, tmp_path / "forging", ignore=shutil.ignore_patterns("__pycache__")))
    with (app / "roundapp" / "server_app.py").open("a") as file:
        file.write(FORGE)
    done = protected_run(NODES, ONE, app=app, approves=app)
    assert saying(done, '"event": "alarm"') == EVERY_NODE
    assert saying(done, "tag does not fit") == EVERY_NODE


def test_a_bundle_that_nobody_approved_is_run_by_nobody(tmp_path: Path) -> None:
    """The app without the two lines, from whoever may start a run: its updates would pass in the clear."""
    done = protected_run(NODES, ONE, app=plain_copy(APP, tmp_path))
    assert saying(done, "is not approved in") == EVERY_NODE
    assert "Aggregated MetricRecord" not in done.said


def test_a_run_that_speaks_of_protection_is_refused_by_every_node(tmp_path: Path) -> None:
    """Even where the bundle itself, with such a key in its configuration, was approved."""
    app = Path(shutil.copytree(APP, tmp_path / "off", ignore=shutil.ignore_patterns("__pycache__")))
    with (app / "pyproject.toml").open("a") as file:
        file.write('croupier-protect = "on"\n')
    done = protected_run(NODES, f'{ONE} croupier-protect="off"', app=app, approves=app)
    assert saying(done, "whoever starts a run has no say") == EVERY_NODE
    assert saying(done, '"event": "sent"') == []
    with pytest.raises(ProtocolError, match="the app did not end"):
        found_in(done.said)
