"""The bench of Algorithm 5: both forms choose alike, and what it says is there."""

from __future__ import annotations

import pytest
import torch

from croupier_lab.bench.speed.unshuffling import UnshufflingSize, measure, show


def test_both_forms_choose_alike(capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.get_num_threads()
    try:
        found = measure(UnshufflingSize(clients=4, shadow=20, parameters=6), 3)
    finally:
        torch.set_num_threads(before)
    assert found["same_choices"] == found["sampled_parameters"] == 6
    assert found["parameters"] > 1000
    assert found["parameters"] % 10 == 0
    assert all(found[key] > 0 for key in ("full_s_per_parameter", "cached_s_per_parameter", "all_targets_s"))
    assert found["ratio"] == pytest.approx(found["full_s_per_parameter"] / found["cached_s_per_parameter"])
    show(found)
    assert "same choice on 6 of 6 sampled parameters" in capsys.readouterr().out
