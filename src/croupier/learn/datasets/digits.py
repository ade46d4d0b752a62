"""Handwritten digits of 8 x 8 pixels, which scikit-learn ships: real data that needs no folder.

This is what examples, tests and `make demo` learn from, because every machine has it. scikit-learn gives no split into
training and test records, so an even share of each class is set aside here, by place and without a draw: every run is
tested on the same records.
"""

from __future__ import annotations

import gzip
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset, TensorRecords

SOURCE = "Optical Recognition of Handwritten Digits (UCI), test part, as shipped with scikit-learn"


class Digits(Data, use="digits"):
    """1,797 handwritten digits as 64 pixels each, 10 classes."""

    licence: ClassVar[str] = "CC BY 4.0"

    test: float = Field(0.2, ge=0.01, le=0.99, description="the share of the records that is held out for testing")

    def load(self, folder: Path | None) -> Dataset:
        """Read the dataset. Raises: DataError when scikit-learn's copy is not there."""
        rows = _read(_shipped())
        held = every(rows.y, self.test)
        train, test = rows.take((~held).nonzero()[:, 0]), rows.take(held.nonzero()[:, 0])
        return Dataset("digits", "classify", 10, train, test, self.licence, SOURCE, labels=train.y)


def every(labels: Tensor, share: float) -> Tensor:
    """Mark an even share of the records of each class, spread over its length, without any randomness."""
    marked = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        members = (labels == label).nonzero()[:, 0]
        steps = (torch.arange(len(members) + 1, dtype=torch.float64) * share).floor()
        marked[members] = steps.diff() > 0
    return marked


def _shipped() -> Path:
    # Importing scikit-learn takes longer than everything else here together; finding it does not import it.
    found = find_spec("sklearn")
    places = list(found.submodule_search_locations or []) if found else []
    path = Path(*places[:1], "datasets", "data", "digits.csv.gz")
    if not places or not path.is_file():
        raise DataError(f"{path} is missing: scikit-learn is not installed as it should be; reinstall it")
    return path


def _read(path: Path) -> TensorRecords:
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            table = np.loadtxt(lines, dtype=np.uint8, delimiter=",", ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); reinstall scikit-learn") from error
    if table.shape != (1797, 65):
        raise DataError(f"{path} has the shape {table.shape}, not (1797, 65); reinstall scikit-learn")
    pixels = torch.from_numpy(table[:, :-1].astype(np.float32) / 16)
    return TensorRecords(pixels, torch.from_numpy(table[:, -1].astype(np.int64)))
