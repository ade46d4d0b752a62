"""The bench of many clients: every row is a whole run, and growth is of seconds for each client."""

from __future__ import annotations

from typing import Any

import pytest

from croupier_lab.bench.speed import client_counts
from croupier_lab.bench.speed.client_counts import ClientCountsSize, describe, measure, show


def test_what_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # In this process: the memory is then not its own, and the rest is the same.
    monkeypatch.setattr(client_counts, "apart", lambda work, *given: work(*given))
    found = measure(ClientCountsSize(clients=(6, 4), rounds=2), 1)
    assert [(row["clients"], row["protocol"]) for row in found["rows"]] == [
        (4, "plain"), (6, "plain"), (4, "rns-servers"), (6, "rns-servers"),
    ]  # fmt: skip
    for row in found["rows"]:
        assert row["parameters"] == 1146
        assert row["round_s"] > 0
        assert row["cpu_s_per_client"] == row["round_cpu_s"] / row["clients"]
        assert row["peak_bytes"] >= row["peak_bytes_first"] > 0
        assert row["run_bytes"] > 0
    assert found["growth"].keys() == {"plain", "rns-servers"}
    show(found)
    assert "CPU ms a client" in capsys.readouterr().out


def test_growth_is_of_the_most_against_the_fewest() -> None:
    rows: list[dict[str, Any]] = [
        {"protocol": "plain", "cpu_s_per_client": 2.0}, {"protocol": "plain", "cpu_s_per_client": 3.0},
    ]  # fmt: skip
    assert client_counts._growth(rows, "plain") == 1.5


def test_it_prints_the_largest_run() -> None:
    assert describe(ClientCountsSize(clients=(4, 9), rounds=3)).task.split.plain()["clients"] == 9
