"""Clusters beside the usual robust rules: all of them under every attack, and how pure clusters are."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.errors import SpecError
from croupier.spec import load
from croupier.toml_text import to_toml
from croupier_lab.bench.leakage.cluster_baselines import ClusterSize, baselines, measure, show, unfit_baselines

SMALL = ["task.split.clients=12", "task.model.hidden=[16]", "task.fit.epochs=1", "run.workers=1"]


def test_clusters_have_their_purity_and_the_baselines_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described = tmp_path / "small.toml"
    described.write_text(to_toml(load("tazza", SMALL).plain()), "utf-8")
    found = measure(ClusterSize(description=str(described), rounds=2, seeds=2), 0)
    assert (found["clients"], found["malicious"], found["not_run"]) == (12, 3, {})
    rows = found["rows"]
    assert len(rows) == 30
    assert [row["rule"] for row in rows[:6]] == ["Clusters", *baselines(10)]
    own = [row for row in rows if row["rule"] == "Clusters" and row["attack"] != "no attack"]
    assert all(len(row["rounds"]) == 2 and row["purity"]["all"]["low"] <= row["purity"]["all"]["high"] for row in own)
    assert all(row["success"]["rate"] is None for row in rows if "flip" in row["attack"])
    show(found)
    assert "purity" in capsys.readouterr().out


def test_baselines_that_need_more_clients_are_named() -> None:
    assert unfit_baselines(5) == {"Multi-Krum": "told of 2 liars it needs 7 clients a round, and 5 are invited"}
    assert "Multi-Krum" not in baselines(5)
    assert unfit_baselines(10) == {}


def test_a_server_without_clusters_is_refused() -> None:
    with pytest.raises(SpecError, match="clusters nobody"):
        measure(ClusterSize(description="digits-small"), 0)
