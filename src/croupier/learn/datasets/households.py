"""Low Carbon London: half-hourly use of electricity of single households, to forecast the next half hour.

The one built-in dataset that forecasts a quantity and tells no class. A household is a client by nature, and its habits
show in its load; that makes it the data of IntraShuffler's attacks (`audit.traits`). Windows never cross from one
household to another, and what a test asks for lies later in time than all training. Used by the presets `households`,
`intra-london` and `intra-london-sum`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, PositiveInt

from croupier.errors import DataError, SpecError
from croupier.learn.data import Data, Dataset, Windows, locate

SOURCE = "Low Carbon London smart meters, UK Power Networks, on the London Datastore"
MISSING = 65535
Ints = npt.NDArray[np.int64]
Readings = npt.NDArray[np.uint16]


class Households(Data, use="households"):
    """Windows over each household's year; the last part of the time is for the test.

    Readings are divided by one public constant, `scale` in kWh: one computed from the data would tell about
    them.
    """

    licence: ClassVar[str] = "not stated by the copy; see the London Datastore's terms"
    files: ClassVar[tuple[str, ...]] = ("lcl_households.npz",)
    selects_owners: ClassVar[bool] = True
    unit: ClassVar[str] = "kWh"

    width: PositiveInt = Field(48, description="how many values a window has")
    stride: PositiveInt = Field(1, description="how far apart windows start")
    scale: float = Field(1.0, gt=0, description="what readings are divided by")
    share: float = Field(0.8, gt=0, lt=1, description="the share of each series that is trained on")
    households: PositiveInt | None = Field(None, description="only the first so many")

    @property
    def many(self) -> int | None:
        """Those that are asked for, if not all."""
        return self.households

    def of_everybody(self) -> Households:
        """All households."""
        return self if self.households is None else self.model_copy(update={"households": None})

    def load(self, folder: Path | None) -> Dataset:
        """Read the dataset. Raises: DataError, or SpecError when there is no room for what was asked."""
        watt_hours, names = self._first(*_read(locate(folder, self.files[0])))
        cut = round(watt_hours.shape[1] * self.share)
        train, masked = self._starts(watt_hours, self.width, cut)
        # The first test window may look back into the training time, but what it foretells may not lie there.
        test, test_masked = self._starts(watt_hours, cut, watt_hours.shape[1])
        series = self._series(watt_hours)
        return Dataset(
            name="households",
            goal="forecast",
            classes=0,
            train=Windows(series, torch.from_numpy(train), self.width),
            test=Windows(series, torch.from_numpy(test), self.width),
            licence=self.licence,
            source=SOURCE,
            owner=torch.from_numpy(train // watt_hours.shape[1]),
            owners=names,
            test_owner=torch.from_numpy(test // watt_hours.shape[1]),
            notes={"masked_train": masked, "masked_test": test_masked, "scale_kwh": self.scale},
            unit=self.scale,
        )

    def _first(self, watt_hours: Readings, names: tuple[str, ...]) -> tuple[Readings, tuple[str, ...]]:
        if self.households is not None and self.households > len(names):
            there = f"the file has {len(names)}; ask for at most that"
            raise SpecError(f"task.data.households = {self.households}: {there}")
        return watt_hours[: self.households], names[: self.households]

    def _starts(self, watt_hours: Readings, begin: int, end: int) -> tuple[Ints, int]:
        """Where windows with a target in [begin, end) of a household's time begin; how many others lack a reading."""
        first = np.arange(max(begin - self.width, 0), end - self.width, self.stride)
        gaps = np.cumsum(watt_hours == MISSING, axis=1, dtype=np.int64)
        gaps = np.pad(gaps, ((0, 0), (1, 0)))
        whole = gaps[:, first + self.width + 1] == gaps[:, first] if len(first) else np.zeros((1, 0), bool)
        if not whole.any():
            span = f"no whole window and its target fit between readings {begin} and {end}"
            raise SpecError(f"task.data.width = {self.width}: {span}; use a smaller width or another share")
        household, place = whole.nonzero()
        return household * watt_hours.shape[1] + first[place], int((~whole).sum())

    def _series(self, watt_hours: Readings) -> torch.Tensor:
        """All households one after another. A missing reading is NaN, so that using one could not go unseen."""
        values = watt_hours.reshape(-1).astype(np.float32) / np.float32(1000 * self.scale)
        values[watt_hours.reshape(-1) == MISSING] = np.nan
        return torch.from_numpy(values)


def _read(path: Path) -> tuple[Readings, tuple[str, ...]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            watt_hours, names = arrays["wh"], tuple(str(name) for name in arrays["household"])
    except Exception as error:  # a damaged archive of arrays can fail in any way at all
        raise DataError(f"{path} is no archive of plain arrays with wh and household; fetch it again") from error
    if watt_hours.dtype != np.uint16 or watt_hours.shape[:-1] != (len(names),) or not watt_hours.size:
        found = f"{watt_hours.dtype} {watt_hours.shape} for {len(names)} households"
        raise DataError(f"{path} is corrupt: wh is {found}, not one row of uint16 each")
    if len(set(names)) != len(names):
        raise DataError(f"{path} is corrupt: two households have the same name")
    return watt_hours, names
