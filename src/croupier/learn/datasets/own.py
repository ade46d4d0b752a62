"""The user's own records, from a function that the description names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset, Rows
from croupier.learn.own import Importable, call

NAMES = ("x_train", "y_train", "x_test", "y_test")


class Own(Data, use="own"):
    """What `make`, a function named as package.module:function, gives when called with the data folder (or None).

    It returns x_train, y_train, x_test and y_test as tensors or arrays: inputs of one shape, which become float32,
    and whole labels counted from 0.
    """

    licence: ClassVar[str] = "yours"

    make: Importable

    def load(self, folder: Path | None) -> Dataset:
        """Call the function and check what it gives. Raises: SpecError, or DataError when that is no dataset."""
        given = call("task.data.make", self.make, folder)
        if not isinstance(given, tuple | list) or len(given) != 4:
            raise self._bad(f"it gave {type(given).__name__}, not four parts", f"return {', '.join(NAMES)}")
        x, y, x_test, y_test = (self._tensor(name, part) for name, part in zip(NAMES, given, strict=True))
        train, test = self._rows("train", x, y), self._rows("test", x_test, y_test)
        if train.x.shape[1:] != test.x.shape[1:]:
            shapes = f"inputs of shape {tuple(train.x.shape[1:])} to train and {tuple(test.x.shape[1:])} to test"
            raise self._bad(shapes, "give both the same shape")
        classes = 1 + int(max(train.y.max(), test.y.max()))
        if classes > len(train) + len(test):
            raise self._bad(f"a label {classes - 1} for {len(train) + len(test)} records", "count classes from 0")
        return Dataset("own", "classify", classes, train, test, self.licence, self.make, labels=train.y)

    def _tensor(self, name: str, part: Any) -> Tensor:
        try:
            return part.detach().cpu() if isinstance(part, Tensor) else torch.from_numpy(np.asarray(part).copy())
        except (TypeError, ValueError) as error:
            raise self._bad(f"{name} is {type(part).__name__} ({error})", "give a tensor or an array") from None

    def _rows(self, key: str, x: Tensor, y: Tensor) -> Rows:
        if y.dim() != 1 or x.dim() < 2 or len(x) != len(y) or not len(y):
            shapes = f"x_{key} has the shape {tuple(x.shape)} and y_{key} {tuple(y.shape)}"
            raise self._bad(shapes, "give at least one input, each at least a row of numbers, and one label for each")
        return Rows(self._inputs(f"x_{key}", x), self._labels(f"y_{key}", y))

    def _inputs(self, name: str, x: Tensor) -> Tensor:
        if x.is_complex() or not bool(x.float().isfinite().all()):
            raise self._bad(f"{name} holds what is no finite real number", "clean it first")
        return x.float().contiguous()

    def _labels(self, name: str, y: Tensor) -> Tensor:
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise self._bad(f"{name} holds {y.dtype}".replace("torch.", ""), "give whole labels, 0, 1, 2 and so on")
        labels = y.long()
        if int(labels.min()) < 0:
            raise self._bad(f"{name} has a label {int(labels.min())}", "count classes from 0")
        return labels

    def _bad(self, what: str, remedy: str) -> DataError:
        return DataError(f"task.data.make = {self.make!r}: {what}; {remedy}")
