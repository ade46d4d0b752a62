"""A real SuperLink with SuperNodes: protected, with a node killed, and with a bundle that nobody approved. Minutes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from croupier.service.roster import Timetable
from croupier_lab.bench.flower.deployed import protected_run
from croupier_lab.bench.flower.superlink import APP, SuperLink, found_in, plain_copy

pytestmark = pytest.mark.long
SHORT = Timetable(phase=90.0, round=600.0, hold=5.0)


def test_a_deployment_learns_and_nothing_of_an_update_is_logged() -> None:
    done = protected_run(3, "num-server-rounds=2")
    found = found_in(done.said)
    assert found["accuracy"] > 0.8
    assert len(found["seconds"]) == 2
    assert "alarm" not in "".join(done.logs.values())
    assert all('"event": "sent"' in done.logs[f"node{number}"] for number in range(3))


def test_a_node_that_is_killed_in_a_round_leaves_the_rest() -> None:
    def kill_when_it_trains(link: SuperLink) -> None:
        def watch() -> None:
            end = time.monotonic() + 300
            while '"event": "opened"' not in link.log("node2") and time.monotonic() < end:
                time.sleep(0.05)
            link.kill("node2")

        threading.Thread(target=watch, daemon=True).start()

    done = protected_run(3, "num-server-rounds=1", times=SHORT, meanwhile=kill_when_it_trains)
    assert found_in(done.said)["accuracy"] > 0.6
    assert '"event": "closed"' in done.logs["node0"]


def test_a_bundle_that_nobody_approved_is_run_by_nobody(tmp_path: Path) -> None:
    """The app without the two lines, from whoever may start a run: its updates would pass in the clear."""
    done = protected_run(3, "num-server-rounds=1", app=plain_copy(APP, tmp_path))
    refused = [name for name, said in done.logs.items() if "is not approved in" in said]
    assert sorted(refused) == ["node0", "node1", "node2"]
    assert "Aggregated MetricRecord" not in done.said
