"""MNIST from its four original files."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import PositiveInt

from croupier.errors import DataError, SpecError
from croupier.learn.data import Data, Dataset, Rows, locate

SOURCE = "MNIST (LeCun, Cortes and Burges), the original distribution"
Bytes = npt.NDArray[np.uint8]


class Mnist(Data, use="mnist"):
    """70,000 handwritten digits of 28 x 28 pixels, 10 classes."""

    licence: ClassVar[str] = "not stated by its source"
    files: ClassVar[tuple[str, ...]] = (
        "mnist/train-images-idx3-ubyte.gz",
        "mnist/train-labels-idx1-ubyte.gz",
        "mnist/t10k-images-idx3-ubyte.gz",
        "mnist/t10k-labels-idx1-ubyte.gz",
    )

    train: PositiveInt | None = None
    test: PositiveInt | None = None

    def load(self, folder: Path | None) -> Dataset:
        """Read the first `train` and `test` records. Raises: DataError, or SpecError when there are fewer."""
        paths = [locate(folder, file) for file in self.files]
        train = _rows(paths[0], paths[1], "train", self.train)
        test = _rows(paths[2], paths[3], "test", self.test)
        return Dataset("mnist", "classify", 10, train, test, self.licence, SOURCE, labels=train.y)


def read_idx(path: Path, dimensions: int) -> Bytes:
    """The array in a gzipped idx file of bytes. Raises: DataError when header, size or checksum is wrong."""
    raw = _unpack(path)
    start = 4 + 4 * dimensions
    if len(raw) < start or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"{path} is corrupt: it does not start as an idx file of {dimensions}-d bytes does")
    shape = np.frombuffer(raw, ">u4", dimensions, 4).tolist()
    if len(raw) - start != math.prod(shape):
        raise DataError(f"{path} is corrupt: {len(raw) - start} bytes where its header says {shape}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def _unpack(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is corrupt: {error}; fetch it again") from error


def _rows(images: Path, labels: Path, key: str, limit: int | None) -> Rows:
    pixels, marks = read_idx(images, 3), read_idx(labels, 1)
    _check(images, pixels, labels, marks)
    if limit is not None and limit > len(marks):
        raise SpecError(f"task.data.{key} = {limit}: {images.name} has {len(marks)} records; ask for at most that")
    # Divided in place: the whole of MNIST as floats is too large to hold twice without need.
    x = torch.from_numpy(pixels[:limit, None].astype(np.float32)).div_(255)
    return Rows(x, torch.from_numpy(marks[:limit].astype(np.int64)))


def _check(images: Path, pixels: Bytes, labels: Path, marks: Bytes) -> None:
    if pixels.shape[1:] != (28, 28):
        raise DataError(f"{images} is corrupt: images of {pixels.shape[1:]} pixels, not (28, 28)")
    if len(pixels) != len(marks) or not len(marks):
        raise DataError(f"{labels} is corrupt: {len(marks)} labels for {len(pixels)} images in {images.name}")
    if marks.max() > 9:
        raise DataError(f"{labels} is corrupt: a label {marks.max()} where 0 to 9 are known")
