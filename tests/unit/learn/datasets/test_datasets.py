"""Digits, MNIST and households: read as they were written, and damaged files are named."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from croupier.errors import DataError, SpecError
from croupier.learn.data import Data, Windows
from croupier.learn.datasets import Digits, Households, Mnist, digits
from croupier.learn.datasets.idx import read_idx

M = 65535


def gz(data: bytes) -> bytes:
    """Compressed without the time of day: these bytes name test cases."""
    return gzip.compress(data, mtime=0)


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    whole = load_digits()
    rows = digits._read(digits._shipped())
    assert np.array_equal(rows.x.numpy(), (whole.data / 16).astype(np.float32))
    assert np.array_equal(rows.y.numpy(), whole.target)


def test_digits_hold_out_an_even_share_of_each_class() -> None:
    data = Digits(test=0.2).load(None)
    assert (len(data.train), len(data.test), data.shape, data.classes) == (1442, 355, (64,), 10)
    assert data.labels is not None
    _, held = data.test.batch(torch.arange(len(data.test)))
    shares = held.bincount() / (held.bincount() + data.labels.bincount())
    assert (shares - 0.2).abs().max() < 0.01
    assert data.digest == Digits().load(None).digest
    assert data.digest != Digits(test=0.3).load(None).digest


def test_digits_that_cannot_be_found_or_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "digits.csv.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"digits\.csv\.gz cannot be read .*; reinstall scikit-learn"):
        digits._read(broken)
    broken.write_bytes(gz(b"1,2\n3,4\n"))
    with pytest.raises(DataError, match=r"has the shape \(2, 2\), not \(1797, 65\)"):
        digits._read(broken)
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="scikit-learn is not installed"):
        Digits().load(None)


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    (tmp_path / "mnist").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    arrays = (pixels, np.arange(5, dtype=np.uint8), pixels[:3], np.arange(3, dtype=np.uint8))
    for file, array in zip(Mnist.files, arrays, strict=True):
        (tmp_path / file).write_bytes(gz(idx(array)))
    return tmp_path


def test_mnist_is_read_as_it_was_written(mnist: Path) -> None:
    data = Mnist().load(mnist)
    pixels = read_idx(mnist / Mnist.files[0], 3)
    x, y = data.train.batch(torch.arange(5))
    assert x.dtype == torch.float32
    assert np.array_equal(x[:, 0].numpy(), pixels.astype(np.float32) / 255)
    assert y.tolist() == [0, 1, 2, 3, 4]
    assert (data.shape, len(data.test), data.goal) == ((1, 28, 28), 3, "classify")


def test_mnist_can_be_cut_short_but_not_stretched(mnist: Path) -> None:
    data = Mnist(train=2, test=1).load(mnist)
    assert (len(data.train), len(data.test)) == (2, 1)
    with pytest.raises(SpecError, match=r"data\.test = 4: t10k-images.* has 3 records; ask for at most that"):
        Mnist(test=4).load(mnist)
    with pytest.raises(SpecError, match=r"data\.train = 0: .*greater than 0"):
        Data.parse({"use": "mnist", "train": 0}, "data")


LABELS = Mnist.files[1]
GOOD = idx(np.arange(5, dtype=np.uint8))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no gzip", "Not a gzipped file"),
        (gz(GOOD)[:-9], "ended before"),
        (gz(GOOD)[:-8] + bytes(8), "CRC check failed"),
        (gz(GOOD)[:10] + b"\xff" * 8, "Error -3"),
        (gz(b""), "does not start as an idx file"),
        (gz(GOOD[:6]), "does not start as an idx file"),
        (gz(b"\0\0\x0d\1" + GOOD[4:]), "does not start as an idx file of 1-d bytes"),
        (gz(GOOD[:-1]), r"4 bytes where its header says \[5\]"),
        (gz(GOOD + b"\0"), r"6 bytes where its header says \[5\]"),
        (gz(idx(np.arange(4, dtype=np.uint8))), "4 labels for 5 images in train-images"),
        (gz(idx(np.arange(6, 11, dtype=np.uint8))), "a label 10 where 0 to 9 are known"),
    ],
)
def test_corrupt_labels_are_named(mnist: Path, content: bytes, said: str) -> None:
    (mnist / LABELS).write_bytes(content)
    with pytest.raises(DataError, match=rf"{LABELS} is corrupt: .*{said}"):
        Mnist().load(mnist)


def test_images_of_another_size_are_named(mnist: Path) -> None:
    (mnist / Mnist.files[0]).write_bytes(gz(idx(np.zeros((5, 8, 8), np.uint8))))
    with pytest.raises(DataError, match=r"train-images.* images of \(8, 8\) pixels, not \(28, 28\)"):
        Mnist().load(mnist)


def meters(folder: Path, readings: npt.ArrayLike, names: tuple[str, ...] = ("a", "b")) -> Path:
    np.savez(folder / "lcl_households.npz", wh=np.array(readings, np.uint16), household=np.array(names))
    return folder


def plain(folder: Path) -> Path:
    # Every reading tells its household and its time: 1000 h + t.
    return meters(folder, [np.arange(20), 1000 + np.arange(20)])


def parts(part: Households, folder: Path) -> tuple[Windows, Windows]:
    data = part.load(folder)
    assert isinstance(data.train, Windows)
    assert isinstance(data.test, Windows)
    return data.train, data.test


def targets(windows: Windows) -> list[int]:
    _, y = windows.batch(torch.arange(len(windows)))
    return (y[:, 0] * 1000).round().int().tolist()


def test_households_are_cut_in_time_and_never_across_each_other(tmp_path: Path) -> None:
    train, test = parts(Households(width=4), plain(tmp_path))
    assert targets(train) == [*range(4, 16), *range(1004, 1016)]
    assert targets(test) == [*range(16, 20), *range(1016, 1020)]
    for windows in (train, test):
        x, y = windows.batch(torch.arange(len(windows)))
        steps = torch.cat([x[:, :, 0], y], 1).mul(1000).round().diff()
        assert bool((steps == 1).all())
        assert x.shape[1:] == (4, 1)


def test_households_stride_scale_share_and_count(tmp_path: Path) -> None:
    part = Households(width=4, stride=3, scale=0.5, share=0.5, households=1)
    train, test = parts(part, plain(tmp_path))
    assert targets(train) == [8, 14]
    assert targets(test) == [20, 26, 32, 38]
    data = part.load(tmp_path)
    assert data.owners == ("a",)
    assert data.notes == {"masked_train": 0, "masked_test": 0, "scale_kwh": 0.5}


def test_windows_with_a_missing_reading_are_masked_and_counted(tmp_path: Path) -> None:
    readings = np.stack([np.arange(20), 1000 + np.arange(20)])
    readings[0, 6] = readings[1, 19] = M
    data = Households(width=4).load(meters(tmp_path, readings))
    assert isinstance(data.train, Windows)
    assert isinstance(data.test, Windows)
    # Target 6 is missing itself; the windows of targets 7 to 10 would look at it.
    assert targets(data.train) == [4, 5, *range(11, 16), *range(1004, 1016)]
    assert targets(data.test) == [*range(16, 20), *range(1016, 1019)]
    assert (data.notes["masked_train"], data.notes["masked_test"]) == (5, 1)
    assert not any(bool(part.batch(torch.arange(len(part)))[0].isnan().any()) for part in (data.train, data.test))


def test_households_own_their_windows(tmp_path: Path) -> None:
    data = Households(width=4).load(plain(tmp_path))
    assert data.owner is not None
    assert data.owner.tolist() == [0] * 12 + [1] * 12
    assert (data.labels, data.classes, data.shape, data.goal) == (None, 0, (4, 1), "forecast")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            Households(width=16),
            r"data\.width = 16: no whole window .* between readings 16 and 16; use a smaller",
        ),
        (Households(width=30), r"data\.width = 30"),
        (Households(width=4, households=3), r"data\.households = 3: the file has 2; ask for at most that"),
    ],
)
def test_households_without_room(tmp_path: Path, part: Households, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        part.load(plain(tmp_path))


def test_corrupt_households_are_named(tmp_path: Path) -> None:
    path = plain(tmp_path) / "lcl_households.npz"
    whole = path.read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2], whole.replace(b"household", b"housebold")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"lcl_households\.npz is no archive .*; fetch it again"):
            Households(width=4).load(tmp_path)


def test_households_of_another_form_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"wh is uint16 \(20,\) for 2 households"):
        Households(width=4).load(meters(tmp_path, np.arange(20)))
    with pytest.raises(DataError, match="two households have the same name"):
        Households(width=4).load(meters(tmp_path, np.zeros((2, 20)), ("a", "a")))


@pytest.mark.data
def test_the_real_mnist() -> None:
    data = Mnist().load(Path(os.environ["CROUPIER_DATA"]))
    assert data.labels is not None
    assert (len(data.train), len(data.test)) == (60000, 10000)
    assert data.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.mark.data
def test_the_real_households() -> None:
    data = Households(stride=48).load(Path(os.environ["CROUPIER_DATA"]))
    assert len(data.owners) == 269
    for part in (data.train, data.test):
        x, y = part.batch(torch.arange(len(part)))
        assert bool(x.isfinite().all())
        assert bool(y.isfinite().all())
