"""The benches of what sums tell: their numbers are there, and they say the same to people."""

from __future__ import annotations

import pytest
from tests.scenes import Here

from croupier.errors import SpecError
from croupier_lab.bench.leakage import disaggregation, residue_sums
from croupier_lab.source_inference import experiment


def test_what_residue_sums_tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(residue_sums, "BEFORE", {2: "2.7"})
    monkeypatch.setattr(residue_sums, "FACTORS", {2: 6})
    monkeypatch.setattr(experiment, "Panel", Here)
    found = residue_sums.measure(residue_sums.ResidueSumsSize(clients=(2,), digits=2, seeds=2), 0)
    assert found["distinguisher"] == {"counts": 1, "mod": 0.5}
    assert found["bits"][0]["most_bits"] == pytest.approx(2.64, abs=0.01)
    assert found["exact_two_clients_two_digits"] < found["bits"][0]["most_bits"]
    assert found["factors"][0]["low"] < 6.2 < found["factors"][0]["high"]
    assert 2 < found["views"][0]["most_bits"]["rate"] < 4
    assert set(found["attacks"][0]["attacks"]) == {"prior", "named+prior", "carries", "carries+prior", "tuned+prior"}
    residue_sums.show(found)
    said = capsys.readouterr().out
    assert "right 100% of the time on counts, 50% on 'mod'" in said
    assert "carries+prior" in said


def test_disaggregation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(disaggregation, "Panel", Here)
    found = disaggregation.measure(
        disaggregation.DisaggregationSize(clients=4, cohorts=(2, 4), rounds=4, seeds=2, alpha=1.0), 0
    )
    assert [row["cohort"] for row in found["rows"]] == [2, 4]
    assert found["rows"][1]["rank"] == [1]
    disaggregation.show(found)
    said = capsys.readouterr().out
    assert "cohorts of 4 (always the same: nothing to solve): rank 1" in said
    assert "on true models" in said


def test_sizes_that_cannot_be() -> None:
    assert disaggregation.DisaggregationSize(clients=6).chosen == (3, 5, 6)
    assert disaggregation.DisaggregationSize(clients=2).chosen == (2,)
    with pytest.raises(SpecError, match="two must be left"):
        disaggregation.DisaggregationSize(clients=4, colluders=3)
    with pytest.raises(SpecError, match="can be invited"):
        disaggregation.DisaggregationSize(clients=4, cohorts=(5,))
