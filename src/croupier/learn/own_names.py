"""Names of the user's own functions: `module:function` in a description, or the function itself from Python.

A name remembers the folder of the description that says it, so that `learn.own` can find and call the function; a
function that Python gives goes by its name, which may be one that nobody can find again. Fields of parts that name a
function have the type `Importable` (`task.data.make`, `task.model.make`), or call `as_named` (losses and metrics).
`spec` reads a description under `reading`, and `audit.knowledge` carries names to the processes of attacks by `carried`
and `revived`.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator
from torch import nn

from croupier.core.part import Part
from croupier.errors import SpecError
from croupier.learn import beside

WRITE = "write module:function, for example mine:make"
PYTHON = "from Python, give the function itself (when resuming: croupier.resume(..., own=[function]))"
GIVEN = "given in Python"


class FunctionName(str):
    """`module:function`, the folder of the description that says so, and the function itself where Python gave it.

    Else a string, so that descriptions, digests and tables show the name and nothing else; but two of these are equal
    only where folder and function are, too.
    """

    folder: Path | None
    function: Callable[..., Any] | None

    def __new__(cls, text: str, folder: Path | None = None, function: Callable[..., Any] | None = None) -> FunctionName:
        """A name."""
        made = super().__new__(cls, text)
        made.folder, made.function = folder, function
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FunctionName):
            return str(self) == str(other) and (self.folder, self.function) == (other.folder, other.function)
        return str(self) == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # For the processes of audits, which find a function by its module and name alone: this one must be found so.
        if self.function is not None and not _travels(self.function):
            raise _lost(self)
        return FunctionName, (str(self), self.folder, self.function)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where its module may lie: beside the description, else in the current directory."""
        return (Path.cwd(),) if self.folder is None else (self.folder, Path.cwd())


@dataclass(frozen=True)
class _Reading:
    """The folder of the description that is being read, and the functions that Python gave for it."""

    folder: Path | None = None
    given: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


_READING: ContextVar[_Reading | None] = ContextVar("croupier_reading", default=None)


@contextlib.contextmanager
def reading(folder: Path | None, given: Sequence[Callable[..., Any]] = ()) -> Iterator[None]:
    """While this lasts, names that are read belong to this folder, and functions that Python gave are found by name."""
    before = _READING.set(_Reading(folder, {name_of(one): one for one in given}))
    try:
        yield
    finally:
        _READING.reset(before)


def name_of(function: Callable[..., Any]) -> str:
    """`module:function` of a function, or of the class of what else can be called."""
    held = function if hasattr(function, "__qualname__") else type(function)
    return f"{held.__module__}:{held.__qualname__}"


def as_named(value: Any) -> FunctionName:
    """The name of a function of the user's own, or the function. Raises: ValueError when it is neither."""
    known = _READING.get() or _Reading()
    if isinstance(value, FunctionName):
        return value
    if isinstance(value, str):
        given = known.given.get(value)
        return FunctionName(value if given else _well_named(value), known.folder, given)
    if isinstance(value, nn.Module):
        raise ValueError(f"a model; give a function that makes one. {WRITE}")
    if not callable(value):
        raise ValueError(f"{WRITE}; in Python a function, too")
    return FunctionName(name_of(value), function=value)


def _well_named(path: str) -> str:
    if path.startswith("__main__:") or "<" in path:
        raise ValueError(
            "what __main__, a lambda or another function holds cannot be named; put a function into a module beside "
            f"the description, or {PYTHON}"
        )
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", path):
        raise ValueError(WRITE)
    return path


Importable = Annotated[str, PlainValidator(as_named)]


def named_in(part: Part, where: str = "") -> dict[str, FunctionName]:
    """Every function that a description names, by its key."""
    found: dict[str, FunctionName] = {}
    for key, value in part:
        at = f"{where}.{key}" if where else key
        for one in value if isinstance(value, tuple) else (value,):
            found |= named_in(one, at) if isinstance(one, Part) else {at: one} if isinstance(one, FunctionName) else {}
    return found


def carried(table: Mapping[str, Any]) -> dict[str, Any]:
    """A part's plain values with the folders of the functions that it names, for a process that is told nothing else.

    Raises: SpecError where a function that Python gave cannot be found by its file and name.
    """
    return {key: _carried(value) if isinstance(value, FunctionName) else value for key, value in table.items()}


def revived(table: Mapping[str, Any]) -> dict[str, Any]:
    """A part's plain values, with names made of what `carried` wrote."""
    return {
        key: FunctionName(value["named"], Path(value["folder"]))
        if isinstance(value, Mapping) and "named" in value
        else value
        for key, value in table.items()
    }


def _carried(named: FunctionName) -> dict[str, str]:
    if named.function is None:
        module = named.partition(":")[0]
        return {"named": str(named), "folder": str(beside.find(module, named.folders).root)}
    function = named.function
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    file = Path(getattr(home, "__file__", None) or "")
    if home is None or not _travels(function) or not file.is_file() or "." in getattr(function, "__qualname__", "."):
        raise _lost(named)
    parts = [file.stem] if home.__name__ == "__main__" else home.__name__.split(".")
    up = len(parts) - (file.name != "__init__.py")
    return {"named": f"{'.'.join(parts)}:{function.__qualname__}", "folder": str(file.resolve().parents[up])}


def _lost(named: FunctionName) -> SpecError:
    return SpecError(
        f"make = {str(named)!r}: an audit hands the function to other processes, which cannot find it: it is a lambda, "
        "an inner function or typed in by hand; define it at the top of a module of your own"
    )


def _travels(function: Callable[..., Any]) -> bool:
    """Whether another process finds it by its module and name."""
    if isinstance(function, partial):
        return _travels(function.func)
    function = function if hasattr(function, "__qualname__") else type(function)
    module = sys.modules.get(function.__module__ or "")
    if module is None or (module.__name__ == "__main__" and not hasattr(module, "__file__")):
        return False
    at: Any = module
    for step in function.__qualname__.split("."):
        at = getattr(at, step, None)
    return at is function
