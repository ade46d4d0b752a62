"""An app's model as the vector of a protocol: floats travel, counters stay, metrics have slots with bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from safetensors.torch import save_file

from croupier.errors import DataError, RangeError, SpecError
from croupier.flower.arrays import check_arrays, from_vector, layout_of, to_vector, typed_as, with_metrics
from croupier.flower.layouts import MetricSlot, check_weight, metric_slots, read_layout
from croupier.service.roster import _read_slice, _slice_text


def model() -> ArrayRecord:
    """A layer, a norm's statistics and its counter."""
    return ArrayRecord(
        {
            "norm.running_mean": Array(np.arange(2, dtype=np.float32)),
            "fc.weight": Array(np.arange(6, dtype=np.float32).reshape(2, 3)),
            "norm.num_batches_tracked": Array(np.array(3)),
        }
    )


def test_weights_come_first_then_statistics_then_metrics_and_counters_stay() -> None:
    layout = layout_of(model(), {"train_loss": 16.0})
    assert [part.name for part in layout.carried] == ["fc.weight", "norm.running_mean", "metric:train_loss:16.0"]
    vector = to_vector(model(), layout)
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 0]
    told, beyond = with_metrics(vector, layout, {"train_loss": 4.0, "other": 1.0})
    assert told.tolist()[-1] == 0.25
    assert beyond == []
    arrays, metrics = from_vector(told, layout, model())
    assert metrics == {"train_loss": 4.0}
    assert np.array_equal(arrays["fc.weight"].numpy(), model()["fc.weight"].numpy())
    assert arrays["norm.num_batches_tracked"].numpy() == 3


def test_a_metric_beyond_its_bound_is_said_and_one_that_is_missing_refused() -> None:
    layout = layout_of(model(), {"loss": 2.0})
    told, beyond = with_metrics(to_vector(model(), layout), layout, {"loss": -3.0})
    assert (told.tolist()[-1], beyond) == (-1.0, ["loss"])
    for wrong in ({}, {"loss": float("nan")}):
        with pytest.raises(RangeError, match="the roster carries it"):
            with_metrics(to_vector(model(), layout), layout, wrong)


@pytest.mark.parametrize(("name", "bound"), [("", 1.0), ("a b", 1.0), ("a:b", 1.0), ("a", 0.0), ("a", float("inf"))])
def test_a_metric_that_cannot_be_is_refused(name: str, bound: float) -> None:
    with pytest.raises(SpecError, match="metric"):
        MetricSlot(name, bound)


def test_a_metrics_slot_reads_back_from_a_roster() -> None:
    part = MetricSlot("train_loss", 0.5).part
    assert MetricSlot.of(_read_slice(_slice_text(part), "roster")) == MetricSlot("train_loss", 0.5)


def test_another_model_is_refused() -> None:
    layout = layout_of(model())
    other = ArrayRecord({**dict(model().items()), "fc.weight": Array(np.zeros((3, 2), np.float32))})
    with pytest.raises(SpecError, match=r"fc.weight of shape .*croupier enrol --like"):
        check_arrays(other, layout)
    double = ArrayRecord({"w": Array(np.zeros(2))})
    with pytest.raises(SpecError, match="holds float64"):
        layout_of(double)


def test_what_a_strategy_makes_keeps_types_and_counters() -> None:
    made = ArrayRecord({name: Array(np.asarray(array.numpy() * 1.5)) for name, array in model().items()})
    kept = typed_as(made, model())
    assert {array.dtype for array in kept.values()} == {"float32", "int64"}
    assert kept["norm.num_batches_tracked"].numpy() == 3


def test_a_saved_model_says_how_large_updates_are(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"fc.weight": torch.zeros(2, 3), "norm.num_batches_tracked": torch.tensor(3)}, path)
    layout = read_layout(path, ["train_loss=16"])
    assert [(part.name, part.shape, part.role) for part in layout.slices] == [
        ("fc.weight", (2, 3), "weight"), ("metric:train_loss:16.0", (), "statistic"),
        ("norm.num_batches_tracked", (), "counter"),
    ]  # fmt: skip
    assert list(metric_slots(layout)) == ["metric:train_loss:16.0"]
    with pytest.raises(SpecError, match="NAME=BOUND"):
        read_layout(path, ["train_loss"])
    save_file({"w": torch.zeros(2, dtype=torch.float64)}, path)
    with pytest.raises(SpecError, match="holds F64"):
        read_layout(path)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="no safetensors file"):
        read_layout(path)


def test_clients_count_by_examples_or_by_what_the_roster_names() -> None:
    layout = layout_of(model(), {"train_loss": 16.0})
    check_weight("num-examples", layout)
    check_weight("train_loss", layout)
    for key in ("positives", "", "fc.weight", "metric:train_loss:16.0"):
        with pytest.raises(SpecError, match="the roster names no such metric"):
            check_weight(key, layout)
