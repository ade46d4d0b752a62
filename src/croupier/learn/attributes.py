"""Coarse attributes of clients, computed from their records: what attacks are to infer, and by which classes.

What counts as a trait depends on the data: when and how much a household uses electricity, or which class most of a
client's records have. Borders between classes come from the auxiliary clients alone, because the adversary has only
these to set them by. `audit.traits.auxiliary` and `audit.traits.tiers` compute them; `audit.traits.scores` compares
answers with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from croupier.errors import SpecError
from croupier.learn.data import Dataset, Windows

# Half hours from 08:00 to 20:00: a household that uses more of its electricity then than most is day-active.
DAY = slice(16, 40)
# From 17:00 to 22:00 a grid is loaded most.
EVENING = slice(34, 44)
A_DAY = 48


@dataclass(frozen=True)
class Attribute:
    """One attribute that an attack is asked for: what it is, its classes by name, and every client's class."""

    title: str
    classes: tuple[str, ...]
    labels: Mapping[str, int]

    def of(self, names: Sequence[str]) -> Tensor:
        """The classes of these clients."""
        return torch.tensor([self.labels[name] for name in names])


def attributes(dataset: Dataset, index: Mapping[str, Tensor], auxiliary: Sequence[str]) -> dict[str, Attribute]:
    """The attributes of clients with these records; where to cut is told by the auxiliary alone.

    Raises: SpecError for data without classes that are not the dataset `households`.
    """
    if dataset.labels is not None:
        found = {who: int(torch.bincount(dataset.labels[rows]).argmax()) for who, rows in index.items()}
        names = tuple(f"class {number}" for number in range(dataset.classes))
        return {"dominant": Attribute("the class most of its records have", names, found)}
    if not isinstance(dataset.train, Windows) or dataset.name != "households":
        raise SpecError(f"task.data = {dataset.name!r}: no attribute of its clients is known; use 'households'")
    day, evening, use = _electricity(dataset, dataset.train, index)
    return {
        "day": _cut("day- or night-active: the share of electricity used from 08 to 20 h", ("night", "day"), day,
                    auxiliary),
        "evening": _cut("how much it loads the evening peak: the mean use from 17 to 22 h", ("low", "high"), evening,
                        auxiliary),
        "use": _cut("how much electricity it uses", ("low", "middle", "high"), use, auxiliary),
    }  # fmt: skip


def _electricity(dataset: Dataset, train: Windows, index: Mapping[str, Tensor]) -> list[dict[str, float]]:
    """The share used by day, the mean use of an evening, and that of all hours, in the time that is trained on."""
    series = train.series.reshape(len(dataset.owners), -1)
    last = int((train.starts % series.shape[1]).max()) + train.width
    whole = series[:, : last // A_DAY * A_DAY].double().reshape(len(series), -1, A_DAY)
    place = {who: at for at, who in enumerate(dataset.owners)}
    share = whole[:, :, DAY].nansum((1, 2)) / whole.nansum((1, 2))
    found = (share, whole[:, :, EVENING].nanmean((1, 2)), whole.nanmean((1, 2)))
    return [{who: float(each[place[who]]) for who in index} for each in found]


def _cut(title: str, classes: tuple[str, ...], values: Mapping[str, float], auxiliary: Sequence[str]) -> Attribute:
    """Classes of equal size among the auxiliary."""
    known = torch.tensor([values[who] for who in auxiliary], dtype=torch.float64)
    shares = torch.arange(1, len(classes), dtype=torch.float64) / len(classes)
    ends = torch.quantile(known, shares)
    return Attribute(title, classes, {who: int((ends < value).sum()) for who, value in values.items()})
