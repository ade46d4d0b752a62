"""The user's own records, from a function that the description names.

The function is found and called by `learn.own`, never by Python's search path, and what it gives is checked and made a
dataset by `learn.given`. `doctor`, `explain` and `--print-config` do not call it.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from croupier.errors import DataError
from croupier.learn.data import Data, Dataset
from croupier.learn.given import Goal, OwnRecords
from croupier.learn.own import call, load_own
from croupier.learn.own_names import Importable


class OwnData(Data, use="own"):
    """What `make` gives when called with the data folder (or None): a function of a module beside the description or in
    the current directory, named as module:function, or in Python the function itself.

    It returns x_train, y_train, x_test and y_test as tensors or arrays; behind them, where records have owners,
    owner_train and perhaps owner_test; or a table of client to its own four. Inputs have one shape: whole numbers stay
    whole, all others become float32. Whole targets are classes counted from 0, floats are quantities; `goal` says which
    where that is not so. The function's attribute `classes`, where it has one, names the classes for people.
    """

    licence: ClassVar[str] = "yours"

    make: Importable = Field(description="your function, as `module:function`")
    goal: Goal | None = Field(None, description="`classify` or `regress`; by the targets unless set")

    @property
    def own_function(self) -> str:
        """`make`."""
        return self.make

    def load(self, folder: Path | None) -> Dataset:
        """Call the function and check what it gives. Raises: SpecError, or DataError when that is no dataset."""
        given = call("task.data.make", self.make, folder, takes="folder")
        dataset = OwnRecords(self.make, self.licence, self.goal).dataset(given)
        function = load_own("task.data.make", self.make)
        names = getattr(function, "classes", None) if inspect.isfunction(function) else None
        return dataset if names is None else replace(dataset, named=self._named(names, dataset.classes))

    def _named(self, names: object, classes: int) -> tuple[str, ...]:
        """Raises: DataError when the function's `classes` are not a name for each class."""
        if not isinstance(names, tuple | list) or not classes <= len(names) or {type(one) for one in names} != {str}:
            raise DataError(
                f"task.data.make = {self.make!r}: its attribute classes is no list of {classes} names; "
                "give one for each class, or leave it out"
            )
        return tuple(names)
