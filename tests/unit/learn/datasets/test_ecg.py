"""Electrocardiograms: the windows as they were written, whose they are, and what is said when they are not whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.errors import DataError
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Ecg
from croupier.learn.models import Rnn
from croupier.learn.split import Natural

COUNT = 60
# Records 1 and 2 train, 3 and 4 test, 5 has a pacemaker; person 2 made records 2 and 4.
RECORD = np.repeat(np.array([1, 2, 3, 4, 5], np.int16), 12)
PERSON = np.repeat(np.array([1, 2, 3, 2, 5], np.int16), 12)
PART = np.repeat(np.array([1, 1, 2, 2, 0], np.uint8), 12)
LABELS = np.arange(COUNT, dtype=np.uint8) % 5


def arrays(**changed: Any) -> dict[str, Any]:
    steps = np.random.default_rng(0).integers(0, 2048, (COUNT, 600), dtype=np.int16)
    window = np.tile(np.arange(12, dtype=np.int16), 5)
    whole = {"X": steps, "y": LABELS, "patient": PERSON, "part": PART, "record": RECORD, "window": window}
    return whole | changed


def write(folder: Path, **changed: Any) -> Path:
    np.savez(folder / "mitbih_5s.npz", **arrays(**changed))
    return folder


def rows(dataset: Dataset) -> tuple[TensorRecords, TensorRecords]:
    assert isinstance(dataset.train, TensorRecords)
    assert isinstance(dataset.test, TensorRecords)
    return dataset.train, dataset.test


def test_windows_are_steps_of_samples_in_millivolts_of_other_people(tmp_path: Path) -> None:
    data = Ecg().load(write(tmp_path))
    train, test = rows(data)
    learn, held = (LABELS < 4) & (PART == 1), (LABELS < 4) & (PART == 2) & (PERSON != 2)
    want = (arrays()["X"].astype(np.float32) - 1024) / 200
    assert (data.shape, data.classes, train.x.dtype) == ((30, 20), 4, torch.float32)
    assert np.array_equal(train.x.numpy().reshape(-1, 600), want[learn])
    assert np.array_equal(test.x.numpy().reshape(-1, 600), want[held])
    assert np.array_equal(test.y.numpy(), LABELS[held])
    assert data.owners == ("p1", "p2")
    clear = int(((LABELS < 4) & (RECORD == 4)).sum())
    unclear = int(((LABELS == 4) & (PART > 0)).sum())
    assert data.notes == {
        "paced_left_out": 12,
        "unclassified_left_out": unclear,
        "of_people_in_both_left_out": clear,
    }


def test_without_apart_the_end_of_every_recording_is_held_out(tmp_path: Path) -> None:
    data = Ecg(apart=False).load(write(tmp_path))
    train, test = rows(data)
    late = np.tile(np.arange(12) >= 9, 5)
    kept = (LABELS < 4) & (PART > 0)
    assert (len(train), len(test)) == (int((kept & ~late).sum()), int((kept & late).sum()))
    assert data.owners == ("p1", "p2", "p3")
    assert data.notes["of_people_in_both_left_out"] == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"X": np.zeros((COUNT, 599), np.int16)}, "X is int16 \\(60, 599\\)"),
        ({"y": LABELS.astype(np.int64)}, "y is int64"),
        ({"y": LABELS + 1}, "a label 5"),
        ({"part": PART + 1}, "a part 3"),
        ({"part": PART * 0 + 1}, "no window to train or to test on"),
        ({"patient": PERSON[:9]}, "patient is int16 \\(9,\\)"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Ecg().load(write(tmp_path, **changed))


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "mitbih_5s.npz").write_bytes(b"no")
    with pytest.raises(DataError, match="is no archive of plain arrays"):
        Ecg().load(tmp_path)


@pytest.mark.data
def test_the_real_recordings_have_twenty_two_people_to_train_on() -> None:
    data = Ecg().load(Path(os.environ["CROUPIER_DATA"]))
    assert (len(data.train), len(data.test), data.shape) == (7942, 7581, (30, 20))
    assert data.labels is not None
    assert torch.bincount(data.labels).tolist() == [5730, 452, 1704, 56]
    assert len(Natural()(data, Coins.from_seed(0))) == 22
    assert Rnn().build(data)(data.train.batch(torch.arange(2))[0]).shape == (2, 4)
