"""Data: records that can be batched, the dataset made of them, and the part that loads it.

`Records` is all that training asks for: how many there are, and a batch by numbers. `TensorRecords` holds them one by
one; `Windows` cuts them from a long series when asked, so that a year of half hours is kept once and not in every
window. `Data` is the part that a description names as `task.data`, one class for each dataset in `datasets/`;
`learn.assemble` loads it. `locate` finds its files, and `fingerprint` gives the digest that binds a run to the very
records it used.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from croupier.core.part import Part
from croupier.errors import DataError, option

# The end of an error about missing files, for users who may choose other data.
OTHER = '; or use data = "digits", which needs none'


class Records(Protocol):
    """Numbered records: inputs and what is to be learnt about them."""

    def __len__(self) -> int:
        """How many records there are."""

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the records with these numbers."""

    def everything(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of all records."""

    def take(self, index: Tensor) -> Records:
        """Only the records with these numbers, in this order."""

    def digest(self) -> str:
        """SHA-256 of the contents, the same on every machine and device."""

    def to(self, device: str | torch.device) -> Records:
        """The same records on a device."""


@dataclass(frozen=True, eq=False)
class TensorRecords:
    """Records that are held one by one. Raises: DataError when inputs and targets do not pair up."""

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs but {len(self.y)} targets: give one target for each input")

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the records with these numbers."""
        return self.x[index], self.y[index]

    def everything(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of all records, without a copy."""
        return self.x, self.y

    def take(self, index: Tensor) -> TensorRecords:
        """Only the records with these numbers, in this order."""
        return TensorRecords(self.x[index], self.y[index])

    def digest(self) -> str:
        """SHA-256 of the contents."""
        return fingerprint("rows", self.x, self.y)

    def to(self, device: str | torch.device) -> TensorRecords:
        """The same records on a device."""
        return TensorRecords(self.x.to(device), self.y.to(device))


@dataclass(frozen=True, eq=False)
class Windows:
    """Records cut from one series when asked for: `width` values, and the value right after as the target.

    Raises: DataError when a window reaches out of the series.
    """

    series: Tensor
    starts: Tensor
    width: int

    def __post_init__(self) -> None:
        if len(self.starts) and not 0 <= self._first <= self._last < len(self.series) - self.width:
            room = f"the series has {len(self.series)} values"
            raise DataError(f"a window of {self.width} values and its target reach out of the series: {room}")

    @cached_property
    def _first(self) -> int:
        return int(self.starts.min())

    @cached_property
    def _last(self) -> int:
        return int(self.starts.max())

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (batch, width, 1) and targets (batch, 1) of the windows with these numbers."""
        steps = torch.arange(self.width + 1, device=self.series.device)
        values = self.series[self.starts[index].unsqueeze(1) + steps]
        return values[:, :-1].unsqueeze(2), values[:, -1:]

    def everything(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of all windows."""
        return self.batch(torch.arange(len(self), device=self.starts.device))

    def take(self, index: Tensor) -> Windows:
        """Only the windows with these numbers, and only the stretch of the series that they cover."""
        starts = self.starts[index]
        if not len(starts):
            return Windows(self.series[:0], starts, self.width)
        first, last = int(starts.min()), int(starts.max())
        return Windows(self.series[first : last + self.width + 1], starts - first, self.width)

    def digest(self) -> str:
        """SHA-256 of the contents."""
        return fingerprint(f"windows {self.width}", self.series, self.starts)

    def to(self, device: str | torch.device) -> Windows:
        """The same records on a device."""
        return Windows(self.series.to(device), self.starts.to(device), self.width)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records to train and to test on, and where they come from."""

    name: str
    goal: Literal["classify", "forecast"]
    classes: int
    train: Records
    test: Records
    licence: str
    source: str
    labels: Tensor | None = None
    owner: Tensor | None = None
    owners: tuple[str, ...] = ()
    # Whose each test record is, as a place in `owners`, where owners have records to be tested on.
    test_owner: Tensor | None = None
    notes: Mapping[str, int | float | str] = field(default_factory=dict)
    # What a target of 1 stands for in the data's own unit (kWh, say).
    unit: float = 1.0
    # How many numbers words can have, 0 for padding included, where inputs are words; 0 where they are quantities.
    tokens: int = 0
    # What people call the classes, where they have names.
    named: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        inputs, _ = self.train.batch(torch.zeros(1, dtype=torch.int64))
        return tuple(inputs.shape[1:])

    @property
    def worded(self) -> bool:
        """Whether inputs are numbers of words, which are names, and not quantities."""
        inputs, _ = self.train.batch(torch.zeros(1, dtype=torch.int64))
        return not inputs.is_floating_point()

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for one input."""
        if self.classes:
            return self.classes
        _, targets = self.train.batch(torch.zeros(1, dtype=torch.int64))
        return targets.shape[1]

    def facts(self) -> dict[str, Any]:
        """What the data are; of classes also which is the commonest among the test records, and what share it has."""
        found: dict[str, Any] = {"train": len(self.train), "test": len(self.test), "inputs": list(self.shape)}
        found |= {"classes": self.classes, "digest": self.digest}
        if self.classes:
            counts = torch.bincount(self.test.everything()[1].flatten())
            found |= {"commonest": int(counts.argmax()), "share": float(counts.max() / counts.sum())}
        return found

    def tests(self, index: Mapping[str, Tensor]) -> dict[str, Records]:
        """The test part of each client, where clients are owners (as `index` deals the records); else none."""
        if self.owner is None or self.test_owner is None:
            return {}
        number = {name: at for at, name in enumerate(self.owners)}
        if any(who not in number or bool((self.owner[rows] != number[who]).any()) for who, rows in index.items()):
            return {}
        return {who: self.test.take((self.test_owner == number[who]).nonzero()[:, 0]) for who in index}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that training can see."""
        held = [part for part in (self.labels, self.owner, self.test_owner) if part is not None]
        words = [self.tokens] if self.tokens else []
        said = json.dumps([self.name, self.goal, self.classes, len(held), self.owners, *words])
        return fingerprint(said, self.train.digest(), self.test.digest(), *held)


class Data(Part):
    """What is learnt from."""

    verb = "data"
    lies_in = "croupier.learn.datasets"
    licence: ClassVar[str] = ""
    # What must lie under the data folder, so that a check-up can say what is missing before a run does.
    files: ClassVar[tuple[str, ...]] = ()
    # Whether the records of some owners only can be asked for.
    selects_owners: ClassVar[bool] = False
    # Whether records are known to be pictures with colours.
    coloured: ClassVar[bool] = False

    # The unit of targets and errors, where they have one.
    unit: ClassVar[str] = ""

    @property
    def own_function(self) -> str:
        """The function of the user's own that makes the data; nothing where none is called."""
        return ""

    @property
    def many(self) -> int | None:
        """How many owners the data have, where that is known before they are loaded."""
        return None

    def of_everybody(self) -> Data:
        """The same with all owners, where only some were asked for."""
        return self

    @abstractmethod
    def load(self, folder: Path | None) -> Dataset:
        """Read the dataset. Raises: DataError when a file is missing or not what it should be."""

    @classmethod
    def present(cls, folder: Path | None) -> bool:
        """Whether everything this data needs is there."""
        return not cls.files or (folder is not None and all((folder / file).is_file() for file in cls.files))


def folder_of(named: str | Path | None) -> Path | None:
    """The data folder: the named one, else what CROUPIER_DATA says."""
    said = named or os.environ.get("CROUPIER_DATA")
    return Path(said).expanduser() if said else None


def _remedy() -> str:
    return f"pass {option('data')} FOLDER or set CROUPIER_DATA to a folder laid out as docs/data.md says"


def locate(folder: Path | None, file: str) -> Path:
    """The path of a file under the data folder. Raises: DataError when it is not there."""
    if folder is None:
        raise DataError(f"{file} is missing: no data folder was named; {_remedy()}{OTHER}")
    if not (folder / file).is_file():
        absent = "" if folder.is_dir() else ", which is no folder"
        raise DataError(f"{file} is missing in {folder}{absent}; {_remedy()}{OTHER}")
    return folder / file


def fingerprint(*parts: str | Tensor) -> str:
    """SHA-256 over texts and tensors, each after its kind and size so that none can run into the next."""
    seal = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            seal.update(f"text {len(part.encode())};{part}".encode())
            continue
        array = part.detach().cpu().contiguous().numpy()
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        seal.update(f"{little.dtype.name} {list(little.shape)};".encode())
        seal.update(little.data if little.size else b"")
    return seal.hexdigest()
