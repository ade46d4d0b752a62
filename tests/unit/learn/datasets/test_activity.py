"""Activity from a phone: the windows as they were written, whose they are, and what is said when they are not whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.core.update import Model, Update
from croupier.errors import DataError, SpecError
from croupier.learn.assemble import Hardware, assemble
from croupier.learn.data import Dataset, TensorRecords
from croupier.learn.datasets import Activity
from croupier.learn.fit import Adam
from croupier.learn.models import ActivityCnn
from croupier.learn.split import Dirichlet, Iid, Natural

COUNT = 60
# Everybody does everything; person 4 is held out.
LABELS = np.arange(COUNT, dtype=np.uint8) % 12
PEOPLE = np.repeat(np.array([9, 2, 4], np.uint8), 20)


def arrays(**changed: Any) -> dict[str, Any]:
    steps = np.random.default_rng(0).integers(-1000, 1000, (COUNT, 128, 6), dtype=np.int16)
    whole = {"X": steps, "scale": np.arange(1, 7) / 720, "y": LABELS, "subject": PEOPLE, "is_test": PEOPLE == 4}
    return whole | changed


def write(folder: Path, **changed: Any) -> Path:
    np.savez(folder / "har_inertial.npz", **arrays(**changed))
    return folder


def rows(dataset: Dataset) -> tuple[TensorRecords, TensorRecords]:
    assert isinstance(dataset.train, TensorRecords)
    assert isinstance(dataset.test, TensorRecords)
    return dataset.train, dataset.test


def test_windows_are_read_in_their_units_with_channels_first(tmp_path: Path) -> None:
    data = Activity(transitions=True).load(write(tmp_path))
    whole = arrays()
    train, test = rows(data)
    want = (whole["X"] * whole["scale"]).astype(np.float32).transpose(0, 2, 1)
    assert (train.x.dtype, train.y.dtype, data.shape) == (torch.float32, torch.int64, (6, 128))
    assert np.array_equal(train.x.numpy(), want[PEOPLE != 4])
    assert np.array_equal(test.x.numpy(), want[PEOPLE == 4])
    assert np.array_equal(train.y.numpy(), LABELS[PEOPLE != 4])
    assert (data.classes, dict(data.notes), data.tokens) == (12, {}, 0)


def test_transitions_are_left_out_and_counted(tmp_path: Path) -> None:
    data = Activity().load(write(tmp_path))
    assert data.labels is not None
    assert int(data.labels.max()) == 5
    assert data.classes == 6
    assert data.notes == {"transitions_left_out": int((LABELS >= 6).sum())}
    assert len(data.train) + len(data.test) == int((LABELS < 6).sum())
    assert data.digest == Activity().load(tmp_path).digest
    assert data.digest != Activity(transitions=True).load(tmp_path).digest


def test_every_person_who_trains_is_a_client(tmp_path: Path) -> None:
    data = Activity(transitions=True).load(write(tmp_path))
    shards = Natural()(data, Coins.from_seed(0))
    assert list(shards) == ["s02", "s09"]
    assert data.owners == ("s02", "s09")
    train, _ = rows(data)
    whole = arrays()
    want = (whole["X"][PEOPLE == 2] * whole["scale"]).astype(np.float32).transpose(0, 2, 1)
    assert np.array_equal(train.x[shards["s02"]].numpy(), want)
    for split in (Iid(clients=4), Dirichlet(clients=4)):
        assert sorted(torch.cat(list(split(data, Coins.from_seed(0)).values())).tolist()) == list(range(40))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"X": arrays()["X"].astype(np.int32)}, r"X is int32 \(60, 128, 6\), not int16"),
        ({"X": arrays()["X"][:, :64]}, r"X is int16 \(60, 64, 6\), not int16 \(60, 128, 6\)"),
        ({"scale": np.ones(3)}, r"scale is float64 \(3,\), not float64 \(6,\)"),
        ({"y": np.uint8(3)}, "X is int16"),
        ({"y": LABELS + np.uint8(1)}, "a label 12 where 0 to 11 are known"),
        ({"subject": PEOPLE[:-1]}, r"subject is uint8 \(59,\), not uint8 \(60,\)"),
        ({"is_test": PEOPLE == 5}, "no window of a basic activity to train or to test on"),
        ({"y": LABELS % 6 + np.uint8(6)}, "no window of a basic activity"),
        ({"is_test": np.arange(COUNT) < 30}, "subject 2 is there to train and to test on"),
    ],
)
def test_corrupt_windows_are_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=rf"har_inertial\.npz is corrupt: {said}.*; fetch it again"):
        Activity().load(write(tmp_path, **changed))


def test_what_is_no_archive_is_named(tmp_path: Path) -> None:
    path = write(tmp_path) / "har_inertial.npz"
    whole = path.read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2], whole.replace(b"subject", b"subjact")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"har_inertial\.npz is no archive .* X, scale, y, .*; fetch it again"):
            Activity().load(tmp_path)
    with pytest.raises(DataError, match=r"har_inertial\.npz is missing"):
        Activity().load(None)


def windows(*shape: int) -> Dataset:
    held = TensorRecords(torch.randn(3, *shape), torch.tensor([0, 1, 2]))
    return Dataset("windows", "classify", 6, held, held, "none", "made up", labels=held.y)


@pytest.mark.parametrize("shape", [(6, 40), (5, 128), (768,), (1, 6, 128)])
def test_a_network_over_time_takes_six_channels_over_time(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=r"'activity-cnn': needs inputs of shape \(6, 41 or more\) .* \"activity\""):
        ActivityCnn().build(windows(*shape))
    assert ActivityCnn().build(windows(6, 41))(torch.randn(2, 6, 41)).shape == (2, 6)


def test_to_standardise_is_to_subtract_gravity_from_the_first_axis_and_to_double() -> None:
    plain, told = ActivityCnn().build(windows(6, 128)), ActivityCnn(standardise=True).build(windows(6, 128))
    assert list(plain.state_dict()) == list(told.state_dict())
    told.load_state_dict(plain.state_dict())
    x = torch.randn(2, 6, 128)
    moved = x.clone()
    moved[:, 0] -= 1
    assert torch.equal(told(x), plain(moved * 2))
    assert not torch.allclose(told(x), plain(x * 2))


@pytest.mark.data
def test_the_real_windows() -> None:
    folder = Path(os.environ["CROUPIER_DATA"])
    data = Activity(transitions=True).load(folder)
    train, test = rows(data)
    assert (len(train), len(test)) == (7767, 3162)
    counts = train.y.bincount() + test.y.bincount()
    assert counts.tolist() == [1722, 1544, 1407, 1801, 1979, 1958, 70, 33, 107, 85, 139, 84]
    assert set(data.owners) == {f"s{n:02}" for n in range(1, 31)} - {
        f"s{n:02}" for n in (2, 4, 9, 10, 12, 13, 18, 20, 24)
    }
    assert len(Activity().load(folder).train) + len(Activity().load(folder).test) == 10411
    # Whoever stands feels one g, mostly along the phone's first axis.
    standing = train.x[train.y == 4].mean((0, 2))
    assert 0.9 < float(standing[:3].norm()) < 1.1
    assert float(standing[0]) > 0.9


@pytest.mark.data
def test_training_on_real_windows_improves() -> None:
    torch.set_num_threads(1)
    coins = Coins.from_seed(3)
    network, folder = ActivityCnn(standardise=True), Path(os.environ["CROUPIER_DATA"])
    made = assemble(
        Activity(), Natural(clients=1), network, Adam(batch=32), coins, folder=folder, machine=Hardware(workers=1)
    )
    (done,) = made.task.fit([(made.task.first.vector, next(iter(made.task.shards.values())), coins.child("job"))])
    before = made.task.evaluate(made.task.first)["accuracy"]
    assert isinstance(done, Update)
    after = made.task.evaluate(Model(done.vector))["accuracy"]
    assert before < 0.3
    assert after > before + 0.1
