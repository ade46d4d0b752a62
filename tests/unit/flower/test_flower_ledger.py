"""Privacy budgets inside Flower: the ledger lies in the node's own store, and decides before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.serverapp.strategy import FedAvg
from tests.flowers import SHORT, deployed, numbers, numbers_app

import croupier.flower
from croupier.core import canon
from croupier.errors import CroupierWarning
from croupier.flower.letters import FIXED_WORD
from croupier.flower.rehearse import RehearsalPlan
from croupier.flower.station import station_at
from croupier_lab.bench.flower.grid import HereGrid

NODES = 3
# One participation costs epsilon 4.4 at delta 10^-5, two cost 6.6.
ONCE = {
    "protocol": {
        "use": "rns-servers",
        "privacy": {"use": "gaussian", "clip": 0.1, "sigma": 0.2, "budget": 5.0},
        "encode": {"use": "fixed", "form": "delta", "scale": 8},
        "aggregate": "mean",
    }
}


def events(key: Path) -> int:
    """How many participations a node's own store knows of."""
    store = station_at(key, flush=False).store()
    try:
        return len(canon.load(store.fact("memory") or canon.dump({})).get("ledger", ()))
    finally:
        store.close()


def test_a_node_whose_budget_is_used_up_refuses_before_it_trains(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trained: list[int] = []
    with deployed(numbers(), NODES, RehearsalPlan(ONCE, times=SHORT)) as (made, configs):
        monkeypatch.setenv("CROUPIER_KEY", str(made.key("server")))
        app = numbers_app([croupier.flower.shield], lambda node, context: trained.append(node))
        grid = HereGrid(app, configs)
        with pytest.warns(CroupierWarning, match="round 2 was lost"):
            croupier.flower.protect(FedAvg(fraction_evaluate=0.0)).start(grid, numbers(), 2)
        assert sorted(trained) == list(range(NODES)), "nobody trained for the second round"
        keys = [made.key(f"node{number:05d}") for number in range(NODES)]
        assert [events(key) for key in keys] == [1] * NODES
    assert {reply.error.reason for reply in grid.replies if reply.has_error()} == {FIXED_WORD}
    assert "budget" in capfd.readouterr().err
    assert not [one for one in grid.relayed if b"budget" in one or b"epsilon" in one]
