"""What is trained at home: the description's task, or a function of the client's own.

`service.start` gives clients and the server their work from here, and `service.up` its parties the task.
`croupier enrol` asks for the task whose shapes a roster holds; `croupier join` loads the function that `--fit` names.
Nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.update import Layout, Slice, Update
from croupier.engine.task import Task
from croupier.errors import CroupierError, DataError, OwnError, SpecError
from croupier.learn import beside, own
from croupier.learn.assemble import Assembled, Hardware, assemble
from croupier.learn.own_names import FunctionName, as_named
from croupier.service.roster import Roster
from croupier.spec import Spec, load

_FIT = "--fit"


def assembled(spec: Spec, coins: Coins, data: Path | None = None) -> Assembled:
    """The description's task: data, network, training and measuring. Raises: SpecError, DataError."""
    task = spec.task
    return assemble(
        task.data, task.split, task.model, task.fit, coins,
        options=task.options, folder=data, machine=Hardware(spec.run.device, spec.run.workers),
    )  # fmt: skip


def task_at_hand(spec: Spec, coins: Coins, data: Path | None = None) -> Task:
    """The task of whoever makes a roster. Raises: SpecError, DataError where the data are not at hand."""
    try:
        return assembled(spec, coins, data).task
    except (DataError, SpecError) as error:
        raise type(error)(
            f"{error} (a roster says how large updates are, so it is made where the data or some like them are at hand)"
        ) from None


def without_part(task: Task, names: Sequence[str]) -> list[str]:
    """Clients that have no part of these data: each needs records or a function of its own."""
    return [] if len(task.shards) == 1 else [name for name in names if name not in task.shards]


def at_home(roster: Roster, sets: Sequence[str]) -> Spec | None:
    """The description with what is another here: where records lie, on what they are trained. Raises: SpecError."""
    for one in sets:
        if not one.startswith(("task.", "run.")):
            raise SpecError(
                f"--set {one}: everybody accepted the rest of the description with the roster; only task.* and run.* "
                "can be another on one machine"
            )
    return load(roster.spec.plain(), sets) if sets else None


def check_layout(mine: Layout, agreed: Layout) -> None:
    """Raises: SpecError when the network here is not the one that the roster was made for."""
    if not agreed.slices:
        raise SpecError("the roster does not say how large updates are; make it anew with this version: croupier enrol")
    if mine != agreed:
        theirs = {(part.name, part.shape) for part in agreed.slices}
        other = next((part for part in mine.slices if (part.name, part.shape) not in theirs), None)
        what = f"{other.name} of shape {other.shape}" if other else f"{len(mine.slices)} tensors"
        raise SpecError(
            f"task.model: the network made here has {what}, and the roster's has not; use the data and the version "
            "of Croupier that the roster was made with"
        )


def shard_of(task: Task, name: str) -> str:
    """Which part of the data is this client's: the one of its name, or all of it. Raises: SpecError."""
    if name in task.shards:
        return task.shards[name]
    if len(task.shards) == 1:
        return next(iter(task.shards.values()))
    raise SpecError(
        f"task.split gives {len(task.shards)} parts, {min(task.shards)} to {max(task.shards)}, and none is called "
        f"{name!r}; with records of your own, set task.split to one client (--set task.split.clients=1)"
    )


def load_training(name: str) -> FunctionName:
    """The function that `--fit module:function` names, found and loaded. Raises: SpecError, OwnError."""
    try:
        named = as_named(name)
    except ValueError as error:
        raise SpecError(f"{_FIT} = {name!r:.60}: {error}") from None
    return FunctionName(str(named), named.folder, own.load_own(_FIT, named))


@dataclass(frozen=True)
class OwnFit:
    """A client's own training as the work that its flow asks for; `number` says which round it is, counted from 1.

    `def train(weights, round)` is given the model's tensors by name, and gives new ones and how many examples they saw.
    """

    train: FunctionName
    layout: Layout
    number: Callable[[], int]

    def __call__(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Update | CroupierError]:
        """An update for each job, or what was wrong with what the function gave."""
        return [self._one(start) for start, *_ in jobs]

    def _one(self, start: Tensor) -> Update | CroupierError:
        # A copy: training in place must not change the model that the difference is taken from.
        weights = self.layout.split(start.clone())
        try:
            return self._checked(own.call(_FIT, self.train, weights, self.number(), takes="weights, round"))
        except SpecError as error:
            return error

    def _checked(self, given: Any) -> Update:
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Mapping):
            raise self._bad(f"it gave {_kind(given)}; give the new weights by name, and how many examples they saw")
        weights, examples = given
        if not isinstance(examples, int) or isinstance(examples, bool) or examples < 1:
            raise self._bad(f"examples = {examples!r:.60}: give a whole number of 1 or more")
        wanted = {part.name for part in self.layout.carried}
        for name in sorted(wanted - set(weights)):
            raise self._bad(f"{name} is missing; give all of {len(wanted)} tensors that it was given")
        for name in sorted(set(map(str, weights)) - wanted):
            raise self._bad(f"{name!r:.60} is none of the tensors that it was given; leave it out")
        for part in self.layout.carried:
            self._check_tensor(part, weights[part.name])
        count = torch.tensor([float(examples)], dtype=torch.float64)
        return Update(self.layout.flatten(weights), self.layout, {"weight": count})

    def _check_tensor(self, part: Slice, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise self._bad(f"{part.name} is {_kind(value)}; give a torch tensor")
        if tuple(value.shape) != part.shape:
            raise self._bad(f"{part.name} has shape {tuple(value.shape)}, not {part.shape}")
        if value.dtype != torch.float32:
            raise self._bad(f"{part.name} has dtype {str(value.dtype).removeprefix('torch.')}, not float32")
        if wrong := int((~torch.isfinite(value)).sum()):
            raise self._bad(
                f"{part.name} has {wrong} of {value.numel()} values that are NaN or infinite; lower the rate"
            )

    def _bad(self, why: str) -> OwnError:
        """An error that names where the function stands: nothing was raised there."""
        code = getattr(self.train.function, "__code__", None)
        at = f"{beside.shown(Path(code.co_filename).resolve())} line {code.co_firstlineno}: " if code else ""
        return OwnError(f"{_FIT} = {str(self.train)!r}: {at}{why}")


def _kind(value: Any) -> str:
    return f"{type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")
