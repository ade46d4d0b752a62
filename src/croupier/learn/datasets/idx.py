"""Pictures of 28 x 28 pixels in four gzipped idx files: the form that MNIST gave to its kin.

`mnist` and `fashion` are this with other names and licences. A damaged or foreign file is refused with what is wrong
about it, before any of it is taken for a picture.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, PositiveInt

from croupier.errors import DataError, SpecError
from croupier.learn.data import Data, Dataset, TensorRecords, locate

Bytes = npt.NDArray[np.uint8]
NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


class Idx(Data):
    """Pictures of 10 classes, of which the first `train` and `test` are read, or all."""

    source: ClassVar[str] = ""

    train: PositiveInt | None = Field(None, description="only the first so many training records")
    test: PositiveInt | None = Field(None, description="only the first so many test records")

    def load(self, folder: Path | None) -> Dataset:
        """Read the first `train` and `test` records. Raises: DataError, or SpecError when there are fewer."""
        paths = [locate(folder, file) for file in self.files]
        train = _rows(paths[0], paths[1], "train", self.train)
        test = _rows(paths[2], paths[3], "test", self.test)
        return Dataset(self.use, "classify", 10, train, test, self.licence, self.source, labels=train.y)


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


def check_room(key: str, limit: int | None, there: int, file: str) -> None:
    """Raises: SpecError when more records are asked for than there are."""
    if limit is not None and limit > there:
        raise SpecError(f"task.data.{key} = {limit}: {file} has {there} records; ask for at most that")


def _unpack(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is corrupt: {error}; fetch it again") from error


def _rows(images: Path, labels: Path, key: str, limit: int | None) -> TensorRecords:
    pixels, marks = read_idx(images, 3), read_idx(labels, 1)
    _check(images, pixels, labels, marks)
    check_room(key, limit, len(marks), images.name)
    # Divided in place: the whole of MNIST as floats is too large to hold twice without need.
    x = torch.from_numpy(pixels[:limit, None].astype(np.float32)).div_(255)
    return TensorRecords(x, torch.from_numpy(marks[:limit].astype(np.int64)))


def _check(images: Path, pixels: Bytes, labels: Path, marks: Bytes) -> None:
    if pixels.shape[1:] != (28, 28):
        raise DataError(f"{images} is corrupt: images of {pixels.shape[1:]} pixels, not (28, 28)")
    if len(pixels) != len(marks) or not len(marks):
        raise DataError(f"{labels} is corrupt: {len(marks)} labels for {len(pixels)} images in {images.name}")
    if marks.max() > 9:
        raise DataError(f"{labels} is corrupt: a label {marks.max()} where 0 to 9 are known")
