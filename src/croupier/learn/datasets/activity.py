"""Human activity from a phone worn at the waist: acceleration and rotation, and what its wearer was doing.

Records have owners, the thirty people, so that the split `natural` makes each person a client: clients then differ as
people do and not by a draw. Used by the preset `activity`, and by figures of RNS and IntraShuffler on other data than
pictures (`croupier_lab.papers`).
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset, TensorRecords, locate
from croupier.learn.datasets.archive import Arrays, arrays_of

SOURCE = "Smartphone-based recognition of human activities and postural transitions (Reyes-Ortiz et al. 2015), UCI"
# The basic activities come first, then the transitions between postures.
BASIC, ALL = 6, 12
WIDTH, CHANNELS = 128, 6
# Of thirty; the others are tested on.
PEOPLE = 21
KEYS = ("X", "scale", "y", "subject", "is_test")


class Activity(Data, use="activity"):
    """Windows of 2.56 s at 50 Hz from 30 people: acceleration in g, gravity included, and rotation in rad/s.

    Six basic activities; `transitions` adds the six between postures, which are rare. Test records are those of the
    people that the dataset's own split holds out; each of the others owns its records. Values are the sensor's steps
    times its published resolution: nothing is computed from the people's data. Neighbouring windows of one person
    overlap by half, so that only a split by people puts what overlaps into one hand.
    """

    licence: ClassVar[str] = "cite Reyes-Ortiz et al. 2015; no commercial use"
    files: ClassVar[tuple[str, ...]] = ("har_inertial.npz",)

    transitions: bool = Field(False, description="also the six activities between postures")

    @property
    def many(self) -> int:
        """The people of the dataset's own training part."""
        return PEOPLE

    def load(self, folder: Path | None) -> Dataset:
        """Read the dataset. Raises: DataError."""
        found = _read(locate(folder, self.files[0]))
        classes = ALL if self.transitions else BASIC
        kept, held = found["y"] < classes, found["is_test"]
        train, test = (_rows(found, kept & part) for part in (~held, held))
        people, owner = np.unique(found["subject"][kept & ~held], return_inverse=True)
        return Dataset(
            name="activity",
            goal="classify",
            classes=classes,
            train=train,
            test=test,
            licence=self.licence,
            source=SOURCE,
            labels=train.y,
            owner=torch.from_numpy(owner.astype(np.int64)),
            owners=tuple(f"s{number:02}" for number in people.tolist()),
            notes={} if self.transitions else {"transitions_left_out": int((~kept).sum())},
        )


def _rows(found: Arrays, chosen: npt.NDArray[np.bool_]) -> TensorRecords:
    # Channels first, as convolutions take them.
    x = (found["X"][chosen] * found["scale"]).astype(np.float32).transpose(0, 2, 1)
    return TensorRecords(
        torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(found["y"][chosen].astype(np.int64))
    )


def _read(path: Path) -> Arrays:
    found = arrays_of(path, KEYS)
    if wrong := _wrong(found):
        raise DataError(f"{path} is corrupt: {wrong}; fetch it again")
    return found


def _wrong(found: Arrays) -> str | None:
    """What is not as it should be."""
    count = len(found["y"]) if found["y"].ndim else 0
    want = {"X": (count, WIDTH, CHANNELS), "scale": (CHANNELS,)}
    for key, kind in zip(KEYS, ("int16", "float64", "uint8", "uint8", "bool"), strict=True):
        shape = want.get(key, (count,))
        if (found[key].dtype.name, found[key].shape) != (kind, shape):
            return f"{key} is {found[key].dtype} {found[key].shape}, not {kind} {shape}"
    if count and found["y"].max() >= ALL:
        return f"a label {found['y'].max()} where 0 to {ALL - 1} are known"
    basic, held = found["y"] < BASIC, found["is_test"]
    if not (basic & held).any() or not (basic & ~held).any():
        return "no window of a basic activity to train or to test on"
    if both := set(found["subject"][held].tolist()) & set(found["subject"][~held].tolist()):
        return f"subject {min(both)} is there to train and to test on"
    return None
