"""CIFAR-10 and Fashion-MNIST."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from croupier.errors import DataError, SpecError
from croupier.learn.data import TensorRecords
from croupier.learn.datasets import Cifar10, Fashion, Mnist

Bytes = npt.NDArray[np.uint8]
TRAIN = tuple(f"train{number}" for number in range(1, 6))


def differences(images: Bytes) -> Bytes:
    """(n, 3, 32, 32) RGB to the stored planes, written down apart from the code under test."""
    red, green, blue = (images[:, colour].astype(np.int64) for colour in range(3))
    planes = np.stack([green, red - green, blue - green])
    for axis in (2, 3):
        planes = np.diff(planes, axis=axis, prepend=0)
    return (planes % 256).astype(np.uint8)


def images() -> Bytes:
    return np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)


def arrays() -> dict[str, npt.NDArray[np.generic]]:
    parts = {name: differences(images()[2 * at : 2 * at + 2]) for at, name in enumerate((*TRAIN, "test"))}
    labels = np.arange(10, dtype=np.uint8)
    return {**parts, "train_labels": labels, "test_labels": labels[:2]}


def archive(folder: Path, **changes: npt.NDArray[np.generic] | None) -> Path:
    held = {name: array for name, array in {**arrays(), **changes}.items() if array is not None}
    np.savez_compressed(folder / "cifar10.npz", **held)  # type: ignore[arg-type]
    return folder


def rows(part: object) -> TensorRecords:
    assert isinstance(part, TensorRecords)
    return part


def test_cifar10_is_read_as_it_was_before_it_was_packed(tmp_path: Path) -> None:
    data = Cifar10().load(archive(tmp_path))
    assert (data.shape, data.classes, data.goal, len(data.train), len(data.test)) == (
        (3, 32, 32),
        10,
        "classify",
        10,
        2,
    )
    got = torch.cat([rows(data.train).x, rows(data.test).x])
    assert got.dtype == torch.float32
    assert np.array_equal(got.numpy(), images().astype(np.float32) / 255)
    assert rows(data.train).y.tolist() == list(range(10))


def test_cifar10_reads_only_the_parts_it_needs(tmp_path: Path) -> None:
    folder = archive(tmp_path, train3=None)
    data = Cifar10(train=3, test=1).load(folder)
    assert (len(data.train), len(data.test)) == (3, 1)
    assert np.array_equal(rows(data.train).x.numpy(), images()[:3].astype(np.float32) / 255)
    assert len(Cifar10(train=4).load(folder).train) == 4
    with pytest.raises(DataError, match=r"cifar10\.npz is no archive of plain arrays with train3; fetch it again"):
        Cifar10(train=5).load(folder)


def test_cifar10_can_not_be_stretched(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"data\.train = 11: cifar10\.npz has 10 records; ask for at most that"):
        Cifar10(train=11).load(archive(tmp_path))
    with pytest.raises(SpecError, match=r"data\.test = 3: cifar10\.npz has 2 records"):
        Cifar10(test=3).load(tmp_path)


NONE = np.zeros((3, 0, 32, 32), np.uint8)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test": None}, "is no archive of plain arrays with test; fetch it again"),
        ({"train_labels": np.array([None] * 10)}, "is no archive of plain arrays with train_labels"),
        ({"train_labels": np.arange(10)}, "train_labels holds int64, not bytes"),
        (
            {"train_labels": np.zeros((10, 1), np.uint8)},
            r"train_labels has the shape \(10, 1\), not one label an image",
        ),
        ({"test_labels": np.zeros(0, np.uint8)}, r"test_labels has the shape \(0,\)"),
        ({"test_labels": np.array([1, 10], np.uint8)}, "test_labels has a label 10 where 0 to 9 are known"),
        ({"train2": np.zeros((2, 3, 32, 32), np.uint8)}, r"train2 has the shape \(2, 3, 32, 32\), not \(3, images,"),
        ({"test": np.zeros((3, 2, 8, 8), np.uint8)}, r"test has the shape \(3, 2, 8, 8\)"),
        ({"train5": NONE}, "10 labels for 8 images in train1, train2, train3, train4, train5"),
        ({"test_labels": np.zeros(1, np.uint8)}, "1 labels for 2 images in test"),
    ],
)
def test_a_corrupt_archive_is_named(tmp_path: Path, changes: dict[str, npt.NDArray[np.generic]], said: str) -> None:
    with pytest.raises(DataError, match=rf"cifar10\.npz .*{said}"):
        Cifar10().load(archive(tmp_path, **changes))


def test_bytes_that_are_no_archive_are_named(tmp_path: Path) -> None:
    path = archive(tmp_path) / "cifar10.npz"
    whole = path.read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cifar10\.npz is no archive of plain arrays"):
            Cifar10().load(tmp_path)
    with pytest.raises(DataError, match=r"cifar10\.npz is missing in .*/no"):
        Cifar10().load(tmp_path / "no")


def test_fashion_has_a_folder_and_a_name_of_its_own() -> None:
    assert [Path(file).name for file in Fashion.files] == [Path(file).name for file in Mnist.files]
    assert {Path(file).parent.name for file in Fashion.files} == {"fashion-mnist"}
    assert (Fashion.licence, Fashion.use) == ("MIT", "fashion-mnist")
    with pytest.raises(DataError, match=r"fashion-mnist/train-images-idx3-ubyte\.gz is missing"):
        Fashion().load(None)


@pytest.mark.data
def test_the_real_fashion() -> None:
    data = Fashion().load(Path(os.environ["CROUPIER_DATA"]))
    assert (data.name, data.shape) == ("fashion-mnist", (1, 28, 28))
    assert rows(data.train).y.bincount().tolist() == [6000] * 10
    assert rows(data.test).y.bincount().tolist() == [1000] * 10
    mnist = Mnist(train=100, test=1).load(Path(os.environ["CROUPIER_DATA"]))
    assert not torch.equal(rows(data.train).x[:100], rows(mnist.train).x)


def recipe(part: Bytes) -> Bytes:
    """The loading recipe of the data folder's README."""
    g, rg, bg = part.cumsum(2, dtype=np.uint8).cumsum(3, dtype=np.uint8)
    return np.stack([rg + g, g, bg + g], -1)


@pytest.mark.data
def test_the_real_cifar10() -> None:
    folder = Path(os.environ["CROUPIER_DATA"])
    data = Cifar10().load(folder)
    assert rows(data.train).y.bincount().tolist() == [5000] * 10
    assert rows(data.test).y.bincount().tolist() == [1000] * 10
    x = rows(data.train).x
    assert (float(x.min()), float(x.max())) == (0.0, 1.0)
    # The mean colour of the training part, as it is quoted everywhere.
    assert x.mean((0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    with np.load(folder / "cifar10.npz") as stored:
        for name, got in (("train1", x[:50]), ("train5", x[40000:40050]), ("test", rows(data.test).x[:50])):
            wanted = recipe(stored[name])[:50].transpose(0, 3, 1, 2)
            assert np.array_equal((got * 255).round().numpy().astype(np.uint8), wanted)


@pytest.mark.data
def test_a_short_cifar10_is_the_beginning_of_the_whole() -> None:
    folder = Path(os.environ["CROUPIER_DATA"])
    short, longer = Cifar10(train=20, test=3).load(folder), Cifar10(train=10010, test=30).load(folder)
    assert torch.equal(rows(short.train).x, rows(longer.train).x[:20])
    assert torch.equal(rows(short.test).y, rows(longer.test).y[:3])
    # The first record is the well-known frog, and the second the truck.
    assert rows(short.train).y[:2].tolist() == [6, 9]
