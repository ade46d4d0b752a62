"""What a user's own function gives (`task.data = {use = "own"}`), checked and made a dataset.

The function may return four arrays (records and targets, to train and to test on), the same with the owner of each
record, or a table of clients with four arrays each; of NumPy, torch or plain lists. Here they all become one `Dataset`,
or one line that says which part does not fit and what to return instead. Whether targets are classes or quantities is
read off their type where the description does not say. `learn/datasets/own` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from croupier.core.envelope import NAME
from croupier.errors import DataError
from croupier.learn.data import Dataset, TensorRecords

PARTS = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("owner_train", "owner_test")
FORM = f"return {', '.join(PARTS)}"
MORE = ", with owner_train (and owner_test) behind them, or a table of client to these four"
# So few whole numbers as floats are rather classes that were read as floats than quantities.
FEW = 20

Goal = Literal["classify", "regress"]


@dataclass(frozen=True)
class _Owned:
    """The four parts, whose each record is (as places among the owners), and the owners."""

    parts: tuple[Tensor, Tensor, Tensor, Tensor]
    train: Tensor | None = None
    test: Tensor | None = None
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnRecords:
    """What the function `source` gave, for a goal that the description names or that the targets show.

    Raises: DataError that names the part, what is wrong with it, and the remedy.
    """

    source: str
    licence: str
    goal: Goal | None = None

    def dataset(self, given: Any) -> Dataset:
        """The dataset."""
        held = self._clients(given) if isinstance(given, Mapping) else self._arrays(given)
        x, y, x_test, y_test = held.parts
        regress = self._regress(y)
        train, test = self._rows("train", x, y, regress), self._rows("test", x_test, y_test, regress)
        if train.x.shape[1:] != test.x.shape[1:]:
            shapes = f"inputs of shape {tuple(train.x.shape[1:])} to train and {tuple(test.x.shape[1:])} to test"
            raise self._bad(shapes, "give both the same shape")
        if train.x.dtype != test.x.dtype:
            remedy = "give both as floats where they are quantities, or both as whole numbers"
            raise self._bad(f"x_train holds {_kind(x)} and x_test {_kind(x_test)}", remedy)
        if train.y.shape[1:] != test.y.shape[1:]:
            counts = f"{train.y.shape[1]} targets for each record to train and {test.y.shape[1]} to test"
            raise self._bad(counts, "give both the same number")
        return Dataset(
            "own", "forecast" if regress else "classify", 0 if regress else self._classes(train, test), train, test,
            self.licence, self.source, labels=None if regress else train.y, owner=held.train, owners=held.owners,
            test_owner=held.test, tokens=_tokens(train.x, test.x),
        )  # fmt: skip

    def _arrays(self, given: Any) -> _Owned:
        """Four arrays, and one or two more that say whose each training, and each test, record is."""
        if not isinstance(given, tuple | list) or not 4 <= len(given) <= 6:
            many = f" of {len(given)}" if isinstance(given, tuple | list) else ""
            raise self._bad(f"it gave {type(given).__name__}{many}, not four parts", FORM + MORE)
        x, y, x_test, y_test = (self._tensor(name, part) for name, part in zip(PARTS, given[:4], strict=True))
        if len(given) == 4:
            return _Owned((x, y, x_test, y_test))
        named = self._names(OWNERS[: len(given) - 4], given[4:])
        for key, names, targets in zip(OWNERS, named, (y, y_test), strict=False):
            if len(names) != len(targets):
                lengths = f"{key} has {len(names)} owners for {len(targets)} records"
                raise self._bad(lengths, "give one owner for each record")
        owners = tuple(sorted(set(named[0])))
        if unknown := sorted(set(named[-1]) - set(owners)):
            remedy = "give it some, or leave its test records out"
            raise self._bad(f"{unknown[0]!r} owns test records and no training record", remedy)
        at = {name: place for place, name in enumerate(owners)}
        train, *test = [torch.tensor([at[name] for name in names]) for names in named]
        return _Owned((x, y, x_test, y_test), train, test[0] if test else None, owners)

    def _clients(self, given: Mapping[Any, Any]) -> _Owned:
        """One dataset a client, by its name."""
        if not given:
            raise self._bad("it gave a table without clients", f"give each client's name and {', '.join(PARTS)}")
        owners = tuple(self._names(("the table",), [list(given)])[0])
        held: list[tuple[Tensor, ...]] = []
        for name, parts in zip(owners, given.values(), strict=True):
            if not isinstance(parts, tuple | list) or len(parts) != 4:
                raise self._bad(
                    f"of {name!r} it gave {type(parts).__name__}, not four parts", f"give {', '.join(PARTS)}"
                )
            mine = tuple(self._tensor(f"{key} of {name!r}", part) for key, part in zip(PARTS, parts, strict=True))
            self._check_client(name, mine, held[0] if held else mine, owners[0])
            held.append(mine)
        joined = [torch.cat([parts[at] for parts in held]) for at in range(4)]
        train, test = (
            torch.repeat_interleave(torch.arange(len(owners)), torch.tensor([len(parts[at]) for parts in held]))
            for at in (1, 3)
        )
        return _Owned((joined[0], joined[1], joined[2], joined[3]), train, test, owners)

    def _check_client(self, name: str, mine: tuple[Tensor, ...], first: tuple[Tensor, ...], other: str) -> None:
        """Raises: DataError when a client's parts cannot stand behind the first one's."""
        for key, part, like in zip(PARTS, mine, first, strict=True):
            if part.dim() != like.dim() or part.shape[1:] != like.shape[1:] or _kind(part) != _kind(like):
                is_, was = (f"{_kind(one)} {tuple(one.shape[1:])}" for one in (part, like))
                raise self._bad(f"{key} of {name!r} holds {is_} and of {other!r} {was}", "give all clients the same")
        for key, at in (("train", 0), ("test", 2)):
            if len(mine[at]) != len(mine[at + 1]):
                counts = f"{name!r} has {len(mine[at])} inputs and {len(mine[at + 1])} targets to {key}"
                raise self._bad(counts, "give one target for each input")
        if not len(mine[1]):
            raise self._bad(f"{name!r} has no training record", "give it some, or leave it out")

    def _names(self, keys: Sequence[str], given: Sequence[Any]) -> list[list[str]]:
        """Owners as names of parties: whole numbers are numbered as clients are, texts stand for themselves."""
        held = [self._owners(key, owners) for key, owners in zip(keys, given, strict=True)]
        digits = len(str(max((value for values in held for value in values if isinstance(value, int)), default=0)))
        return [[f"c{value:0{digits}}" if isinstance(value, int) else value for value in values] for values in held]

    def _owners(self, key: str, owners: Any) -> list[int | str]:
        array = np.asarray(owners.detach().cpu() if isinstance(owners, Tensor) else owners)
        if array.ndim != 1:
            raise self._bad(f"{key} has the shape {array.shape}", "give one owner for each record")
        values: list[int | str] = array.tolist()
        for value in dict.fromkeys(values):
            text = isinstance(value, str) and re.fullmatch(r"[\w.-]+", value) and len(value.encode()) <= NAME
            if not text and not (array.dtype.kind in "iu" and isinstance(value, int) and value >= 0):
                letters = f"letters, digits, '_', '.' and '-', {NAME} bytes at most"
                raise self._bad(f"{key} names an owner {value!r}", f"give whole numbers from 0, or names of {letters}")
        return values

    def _tensor(self, name: str, part: Any) -> Tensor:
        try:
            return part.detach().cpu() if isinstance(part, Tensor) else torch.from_numpy(np.asarray(part).copy())
        except (TypeError, ValueError) as error:
            raise self._bad(f"{name} is {type(part).__name__} ({error})", "give a tensor or an array") from None

    def _regress(self, y: Tensor) -> bool:
        """Whether quantities are learnt. Raises: DataError where floats could as well be classes."""
        if self.goal is not None:
            return self.goal == "regress"
        found = set(y.flatten().tolist()) if y.is_floating_point() else set()
        if 0 < len(found) <= FEW and all(value.is_integer() and value >= 0 for value in found):
            seen = f"y_train holds {_kind(y)}, but only {len(found)} whole numbers up to {max(found):g}"
            remedy = "give integers where they are classes, or set task.data.goal = 'regress' where they are quantities"
            raise self._bad(seen, remedy)
        return y.is_floating_point()

    def _rows(self, key: str, x: Tensor, y: Tensor, regress: bool) -> TensorRecords:
        shaped = y.dim() in ((1, 2) if regress else (1,)) and x.dim() >= 2 and len(x) == len(y)
        if not shaped or not x.numel() or not y.numel():
            shapes = f"x_{key} has the shape {tuple(x.shape)} and y_{key} {tuple(y.shape)}"
            wanted = "at least one input, each a row of at least one number"
            raise self._bad(shapes, f"give {wanted}, and one {'target' if regress else 'label'} for each")
        if regress:
            return TensorRecords(self._inputs(f"x_{key}", x), self._quantities(f"y_{key}", y))
        return TensorRecords(self._inputs(f"x_{key}", x), self._labels(f"y_{key}", y))

    def _inputs(self, name: str, x: Tensor) -> Tensor:
        """Whole numbers stay whole, as names of words or kinds; everything else becomes float32."""
        if not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool):
            return x.long().contiguous()
        self._check_finite(name, x)
        return x.float().contiguous()

    def _quantities(self, name: str, y: Tensor) -> Tensor:
        if y.dtype == torch.bool:
            raise self._bad(f"{name} holds bool", "give numbers")
        self._check_finite(name, y)
        return y.float().reshape(len(y), -1).contiguous()

    def _check_finite(self, name: str, values: Tensor) -> None:
        if values.is_complex():
            raise self._bad(f"{name} holds what is no finite real number ({_kind(values)})", "clean it first")
        wrong = ~values.float().isfinite()
        if bool(wrong.any()):
            first = [int(at) for at in wrong.nonzero()[0]]
            raise self._bad(f"{name} holds what is no finite real number (first at {first})", "clean it first")

    def _labels(self, name: str, y: Tensor) -> Tensor:
        read = self.goal == "classify" and y.is_floating_point() and _whole(y)
        if (y.is_floating_point() and not read) or y.is_complex() or y.dtype == torch.bool:
            raise self._bad(f"{name} holds {_kind(y)}", "give whole labels, 0, 1, 2 and so on")
        labels = y.long()
        if int(labels.min()) < 0:
            raise self._bad(f"{name} has a label {int(labels.min())}", "count classes from 0")
        return labels

    def _classes(self, train: TensorRecords, test: TensorRecords) -> int:
        classes = 1 + int(max(train.y.max(), test.y.max()))
        if classes > len(train) + len(test):
            raise self._bad(f"a label {classes - 1} for {len(train) + len(test)} records", "count classes from 0")
        return classes

    def _bad(self, what: str, remedy: str) -> DataError:
        return DataError(f"task.data.make = {self.source!r}: {what}; {remedy}")


def _tokens(*inputs: Tensor) -> int:
    """How many whole numbers inputs can be, where they are names; 0 where they are quantities."""
    whole: Sequence[int] = [int(x.max()) for x in inputs if not x.is_floating_point() and x.numel()]
    return 1 + max(0, *whole) if whole else 0


def _whole(values: Tensor) -> bool:
    return bool((values == values.round()).all())


def _kind(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
