"""The bench of Tazza: what it says is there."""

from __future__ import annotations

import pytest
import torch

from croupier.errors import SpecError
from croupier_lab.bench.speed.model_permutation import ModelPermutationSize, measure, show


def test_every_number_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.get_num_threads()
    found = measure(ModelPermutationSize(models=("rnn", "mlp"), records=20, batch=8, repeats=1), 1)
    assert torch.get_num_threads() == before
    rnn, mlp = found["models"]
    assert (rnn["model"], rnn["parameters"], rnn["steps"]) == ("rnn", 14_084, 3)
    assert mlp["parameters"] == 785 * 1024 + 1025 * 1024 + 1025 * 10
    for row in (rnn, mlp):
        assert all(row[key] > 0 for key in row if key.endswith("_s") and row[key] is not None)
        assert row["epoch_s"] == pytest.approx(3 * row["batch_step_s"])
        assert row["still"] < 0.01
    assert mlp["dpsgd_s"] is not None
    assert set(rnn["still_by_group"]) == {"input.0", "rnn.weight_ih_l0.0", "rnn.weight_ih_l1.0"}
    assert "input axis 0 (30): time runs along it" in rnn["held"]
    show(found)
    said = capsys.readouterr().out
    assert "14,084" in said
    assert "rnn: 3 groups are permuted" in said
    assert "held, because time runs along it: input axis 0 (30)" in said


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(SpecError, match="'mpl': known are mlp"):
        measure(ModelPermutationSize(models=("mpl",)), 1)
