"""What the shadow function of a folder of recorded updates gives, checked: the adversary's records, and the truth.

Recorded updates come without data, so the user names a function that gives, by client, the shadow sets, records to ask
about and, for membership, suspects. What it gives is checked before anything is attacked. `audit.recorded.files` calls
`shadow_records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.audit.knowledge import Sample
from croupier.core.part import Part
from croupier.errors import DataError, SpecError
from croupier.learn.own import call
from croupier.learn.own_names import Importable
from croupier.learn.tensor_files import one_line

# What the function gives, by client.
GIVES = "{'shadows': {client: (inputs, labels)}, 'asked': {...}, and if you like 'members': {...}, 'others': {...}}"


class Shadows(Part):
    """Where the shadow sets and the records asked about come from."""

    verb = "shadow"


class OwnShadows(Shadows, use="own"):
    """What the user's function `make` gives when it is called with the data folder and the names of the clients."""

    make: Importable


@dataclass(frozen=True)
class ShadowRecords:
    """Records by client: `shadows` for the adversary, `asked` that were trained on, and suspects of both kinds.

    `members` were trained on, `others` were not.
    """

    shadows: Mapping[str, Sample] = field(repr=False)
    asked: Mapping[str, Sample] = field(repr=False)
    members: Mapping[str, Sample] = field(repr=False)
    others: Mapping[str, Sample] = field(repr=False)

    @property
    def classes(self) -> int:
        """One more than the largest label; 0 where quantities are learnt."""
        labels = [y for part in (self.shadows, self.asked, self.members, self.others) for _, y in part.values()]
        return 0 if labels[0].is_floating_point() else 1 + max(int(y.max()) for y in labels)


def shadow_records(shadow: Shadows, data: Path | None, clients: tuple[str, ...]) -> ShadowRecords:
    """What the shadow function gives, checked. Raises: SpecError, OwnError, DataError."""
    if not isinstance(shadow, OwnShadows):
        raise SpecError(f"updates.toml: shadow = {shadow.use!r}: use 'own' with make = 'module:function'")
    given = call("shadow.make", shadow.make, data, clients, takes="folder, clients")
    at, parts = f"shadow.make = {str(shadow.make)!r}", ShadowRecords.__dataclass_fields__
    if not isinstance(given, Mapping) or not {"shadows", "asked"} <= set(given) <= set(parts):
        raise DataError(f"{at}: it gave {type(given).__name__}; return {GIVES}")
    held: dict[str, dict[str, Sample]] = {}
    for name in parts:
        table = given.get(name, {})
        if not isinstance(table, Mapping):
            raise DataError(f"{at}: {name} is {type(table).__name__}; return {GIVES}")
        held[name] = {str(who): _sample(f"{at}: {name} of {str(who)!r}", pair) for who, pair in table.items()}
    for name in ("shadows", "asked"):
        if lacking := sorted((set(clients) or set(held["shadows"])) - set(held[name])):
            remedy = "whose updates were recorded; give it records, or move its files away"
            raise DataError(f"{at}: {name} has nothing of {lacking[0]!r}, {remedy}")
    if odd := sorted(set(held["members"]) ^ set(held["others"])):
        raise DataError(f"{at}: members and others both need records of {odd[0]!r}; give both")
    kinds = {
        (tuple(x.shape[1:]), x.dtype, tuple(y.shape[1:]), y.dtype): f"{name} of {who!r}"
        for name, part in held.items()
        for who, (x, y) in part.items()
    }
    if len(kinds) > 1:
        (first, one), (second, two) = list(kinds.items())[:2]
        raise DataError(f"{at}: {one} has inputs and labels of {first}, {two} of {second}; give all alike")
    return ShadowRecords(**held)


def _sample(at: str, pair: Any) -> Sample:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{at} is no pair; give (inputs, labels)")
    try:
        x, y = (torch.as_tensor(np.asarray(part) if not isinstance(part, Tensor) else part) for part in pair)
    except (TypeError, ValueError) as error:
        raise DataError(f"{at} is no numbers ({one_line(error)}); give arrays") from None
    if not x.ndim or not y.ndim or len(x) != len(y) or not len(y):
        raise DataError(f"{at} has inputs of shape {tuple(x.shape)} and labels {tuple(y.shape)}; give one for each")
    x = x.float() if x.is_floating_point() else x.long()
    y = y.float().reshape(len(y), -1) if y.is_floating_point() else y.long().reshape(-1)
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise DataError(f"{at} has values that are NaN or infinite; clean it first")
    if len(x) != len(y) or (not y.is_floating_point() and int(y.min()) < 0):
        raise DataError(f"{at} has labels that are no classes; count them from 0, one for each input")
    return x, y
