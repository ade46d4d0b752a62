"""Heartbeats: five seconds of an electrocardiogram, and the arrhythmia that it shows.

Each person owns its windows, and can be a client. With `apart` nobody is both trained and tested on, because a network
may recognise a person where it should recognise a beat; without it the end of every recording is tested on. Used by
figures of Tazza (`croupier_lab.papers.tazza`).
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

SOURCE = "MIT-BIH Arrhythmia Database (Moody and Mark 2001), PhysioNet"
# N, S, V and F of the AAMI standard; Q, beats that nobody could classify and paced ones, is left out.
CLASSES, UNKNOWN = 4, 5
SAMPLES, STEP = 600, 20
# Analogue to digital: 1024 is 0 mV, and 200 steps are 1 mV.
ZERO, PER_MV = 1024, 200
# The parts of the usual split by patients (de Chazal et al. 2004); 0 are recordings with a pacemaker.
TRAIN, TEST = 1, 2
KEYS = ("X", "y", "patient", "part", "record", "window")
Chosen = npt.NDArray[np.bool_]


class Ecg(Data, use="ecg"):
    """Windows of 5 s at 120 Hz as 30 steps of 20 samples in millivolts; classes N, S, V and F.

    With `apart` those who are tested on are other people than those who are trained on, as the usual split has it, less
    one person who is in both; without it the last fifth of every recording is tested on. Each person owns its windows.
    Windows of the class Q and recordings with a pacemaker are left out, and counted.
    """

    licence: ClassVar[str] = "Open Data Commons Attribution 1.0"
    files: ClassVar[tuple[str, ...]] = ("mitbih_5s.npz",)

    apart: bool = Field(True, description="test on other people than are trained on")

    def load(self, folder: Path | None) -> Dataset:
        """Read the dataset. Raises: DataError."""
        path = locate(folder, self.files[0])
        found = _read(path)
        paced, unclear = found["part"] == 0, found["y"] >= CLASSES
        learn, held, twice = _by_person(found) if self.apart else _by_time(found)
        kept = ~paced & ~unclear
        if not (kept & learn).any() or not (kept & held).any():
            raise DataError(f"{path} has no window to train or to test on; fetch it again")
        train, test = (_rows(found, kept & part) for part in (learn, held))
        people, owner = np.unique(found["patient"][kept & learn], return_inverse=True)
        return Dataset(
            name="ecg",
            goal="classify",
            classes=CLASSES,
            train=train,
            test=test,
            licence=self.licence,
            source=SOURCE,
            labels=train.y,
            owner=torch.from_numpy(owner.astype(np.int64)),
            owners=tuple(f"p{number}" for number in people.tolist()),
            notes={
                "paced_left_out": int(paced.sum()),
                "unclassified_left_out": int((unclear & ~paced).sum()),
                "of_people_in_both_left_out": int((kept & twice).sum()),
            },
        )


def _by_person(found: Arrays) -> tuple[Chosen, Chosen, Chosen]:
    """Who is trained on, who is tested on, and who was in both and is not tested on."""
    learn, held = found["part"] == TRAIN, found["part"] == TEST
    twice = held & np.isin(found["patient"], found["patient"][learn])
    return learn, held & ~twice, twice


def _by_time(found: Arrays) -> tuple[Chosen, Chosen, Chosen]:
    held = np.zeros(len(found["y"]), np.bool_)
    for record in np.unique(found["record"]):
        here = found["record"] == record
        number = found["window"][here]
        held[here] = number >= np.quantile(number, 0.8)
    return ~held, held, np.zeros_like(held)


def _rows(found: Arrays, chosen: Chosen) -> TensorRecords:
    x = (found["X"][chosen].astype(np.float32) - ZERO) / PER_MV
    return TensorRecords(
        torch.from_numpy(x.reshape(-1, SAMPLES // STEP, STEP)), torch.from_numpy(found["y"][chosen].astype(np.int64))
    )


def _read(path: Path) -> Arrays:
    found = arrays_of(path, KEYS)
    if wrong := _wrong(found):
        raise DataError(f"{path} is corrupt: {wrong}; fetch it again")
    return found


def _wrong(found: Arrays) -> str | None:
    """What is not as it should be."""
    count = len(found["y"]) if found["y"].ndim else 0
    for key, kind in zip(KEYS, ("int16", "uint8", "int16", "uint8", "int16", "int16"), strict=True):
        shape = (count, SAMPLES) if key == "X" else (count,)
        if (found[key].dtype.name, found[key].shape) != (kind, shape):
            return f"{key} is {found[key].dtype} {found[key].shape}, not {kind} {shape}"
    if count and found["y"].max() >= UNKNOWN:
        return f"a label {found['y'].max()} where 0 to {UNKNOWN - 1} are known"
    if count and found["part"].max() > TEST:
        return f"a part {found['part'].max()} where 0 to {TEST} are known"
    return None
