"""CIFAR-10 from one archive of six parts, kept as differences so that it stays small.

The parts are stored as differences between neighbouring pixels, which compress far better than the pixels; reading
undoes that exactly. Parts that a description does not ask for (`train`, `test`) are not unpacked. Used by the preset
`cifar10` and by the figures on photographs of all four systems (`croupier_lab.papers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset, TensorRecords, locate
from croupier.learn.datasets.idx import check_room

SOURCE = "CIFAR-10 (Krizhevsky 2009), in the original order"
Bytes = npt.NDArray[np.uint8]


class Cifar10(Data, use="cifar10"):
    """60,000 photographs of 32 x 32 pixels in three colours, 10 classes; only the parts that are needed are read."""

    licence: ClassVar[str] = "not stated by its source"
    files: ClassVar[tuple[str, ...]] = ("cifar10.npz",)
    coloured: ClassVar[bool] = True

    train: PositiveInt | None = Field(None, description="only the first so many training records")
    test: PositiveInt | None = Field(None, description="only the first so many test records")

    def load(self, folder: Path | None) -> Dataset:
        """Read the first `train` and `test` records. Raises: DataError, or SpecError when there are fewer."""
        path = locate(folder, self.files[0])
        train = _rows(path, "train", [f"train{number}" for number in range(1, 6)], self.train)
        test = _rows(path, "test", ["test"], self.test)
        return Dataset("cifar10", "classify", 10, train, test, self.licence, SOURCE, labels=train.y)


def pixels(planes: Bytes) -> Bytes:
    """Red, green and blue, from differences along both sides of green, red less green and blue less green."""
    green, red, blue = planes.cumsum(2, dtype=np.uint8).cumsum(3, dtype=np.uint8)
    return np.stack([red + green, green, blue + green], 1)


def _rows(path: Path, key: str, parts: Sequence[str], limit: int | None) -> TensorRecords:
    marks = _labels(path, f"{key}_labels")
    check_room(key, limit, len(marks), path.name)
    x, found = _fill(path, parts, len(marks) if limit is None else limit, limit is None)
    if found < len(x) or (limit is None and found > len(x)):
        raise DataError(f"{path} is corrupt: {len(marks)} labels for {found} images in {', '.join(parts)}")
    return TensorRecords(x.div_(255), torch.from_numpy(marks[:limit].astype(np.int64)))


def _fill(path: Path, parts: Sequence[str], count: int, whole: bool) -> tuple[Tensor, int]:
    """The first pictures of these parts, and how many were there; later parts are unpacked only for the whole."""
    # Filled part by part: all of CIFAR-10 as floats is too large to hold twice without need.
    x, found = torch.empty(count, 3, 32, 32), 0
    for part in parts:
        if found >= count and not whole:
            break
        planes = _planes(path, part)
        some = pixels(planes[:, : max(count - found, 0)])
        x[found : found + len(some)] = torch.from_numpy(some)
        found += planes.shape[1]
    return x, found


def _planes(path: Path, part: str) -> Bytes:
    planes = _read(path, part)
    if planes.ndim != 4 or (planes.shape[0], *planes.shape[2:]) != (3, 32, 32):
        raise DataError(f"{path} is corrupt: {part} has the shape {planes.shape}, not (3, images, 32, 32)")
    return planes


def _labels(path: Path, name: str) -> Bytes:
    marks = _read(path, name)
    if marks.ndim != 1 or not len(marks):
        raise DataError(f"{path} is corrupt: {name} has the shape {marks.shape}, not one label an image")
    if marks.max() > 9:
        raise DataError(f"{path} is corrupt: {name} has a label {marks.max()} where 0 to 9 are known")
    return marks


def _read(path: Path, name: str) -> Bytes:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            array: Bytes = arrays[name]
    except Exception as error:  # a damaged archive of arrays can fail in any way at all
        raise DataError(f"{path} is no archive of plain arrays with {name}; fetch it again") from error
    if array.dtype != np.uint8:
        raise DataError(f"{path} is corrupt: {name} holds {array.dtype}, not bytes; fetch it again")
    return array
