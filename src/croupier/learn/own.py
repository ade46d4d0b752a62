"""Functions of the user's own: named in a description, or given by a Python program.

A name, `module:function`, is called only if a module beside the description or in the current directory defines it. A
function that Python gives is called as it is; a description then shows its name, which may be one that nobody can find
again.

Data, models, losses, metrics and shadow sets are all taken through here, so that one rule decides what may be called:
see SECURITY.md. An error inside the user's code is told by its file and line.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any

from pydantic import PlainValidator
from torch import nn

from croupier.core.part import Part
from croupier.errors import CroupierError, OwnError, SpecError
from croupier.learn import beside

WRITE = "write module:function, for example mine:make"
PYTHON = "from Python, give the function itself (when resuming: croupier.resume(..., own=[function]))"
GIVEN = "given in Python"
# So many characters of an error are told; --debug shows all.
TOLD = 300


class Named(str):
    """`module:function`, the folder of the description that says so, and the function itself where Python gave it.

    A string in every other respect, so that descriptions, digests and tables show the name and nothing else.
    """

    folder: Path | None
    function: Callable[..., Any] | None

    def __new__(cls, text: str, folder: Path | None = None, function: Callable[..., Any] | None = None) -> Named:
        """A name."""
        made = super().__new__(cls, text)
        made.folder, made.function = folder, function
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Named):
            return str(self) == str(other) and (self.folder, self.function) == (other.folder, other.function)
        return str(self) == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Audits have processes of their own. Those find a function by its name, as this one must have been.
        if self.function is not None and not _travels(self.function):
            raise _lost(self)
        return Named, (str(self), self.folder, self.function)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where its module may lie: beside the description, else in the current directory."""
        return (Path.cwd(),) if self.folder is None else (self.folder, Path.cwd())


@dataclass(frozen=True)
class _Reading:
    """What is known where a description is read."""

    folder: Path | None = None
    given: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


_READING: ContextVar[_Reading | None] = ContextVar("croupier_reading", default=None)


@contextlib.contextmanager
def reading(folder: Path | None, given: Sequence[Callable[..., Any]] = ()) -> Iterator[None]:
    """Names in what is read now are looked for in this folder; functions that are given go by their names."""
    before = _READING.set(_Reading(folder, {name_of(one): one for one in given}))
    try:
        yield
    finally:
        _READING.reset(before)


def name_of(function: Callable[..., Any]) -> str:
    """`module:function` of a function, or of the class of what else can be called."""
    held = function if hasattr(function, "__qualname__") else type(function)
    return f"{held.__module__}:{held.__qualname__}"


def as_named(value: Any) -> Named:
    """The name of a function of the user's own, or the function. Raises: ValueError when it is neither."""
    known = _READING.get() or _Reading()
    if isinstance(value, Named):
        return value
    if isinstance(value, str):
        given = known.given.get(value)
        return Named(value if given else _well_named(value), known.folder, given)
    if isinstance(value, nn.Module):
        raise ValueError(f"a model; give a function that makes one. {WRITE}")
    if not callable(value):
        raise ValueError(f"{WRITE}; in Python a function, too")
    return Named(name_of(value), function=value)


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


def named_in(part: Part, where: str = "") -> dict[str, Named]:
    """Every function that a description names, by its key."""
    found: dict[str, Named] = {}
    for key, value in part:
        at = f"{where}.{key}" if where else key
        for one in value if isinstance(value, tuple) else (value,):
            found |= named_in(one, at) if isinstance(one, Part) else {at: one} if isinstance(one, Named) else {}
    return found


def carried(table: Mapping[str, Any]) -> dict[str, Any]:
    """A part's plain values with the folders of the functions that it names, for a process that is told nothing else.

    Raises: SpecError where a function that Python gave cannot be found by its file and name.
    """
    return {key: _carried(value) if isinstance(value, Named) else value for key, value in table.items()}


def revived(table: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values again."""
    return {
        key: Named(value["named"], Path(value["folder"])) if isinstance(value, Mapping) and "named" in value else value
        for key, value in table.items()
    }


def _carried(named: Named) -> dict[str, str]:
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


def _lost(named: Named) -> SpecError:
    return SpecError(
        f"make = {str(named)!r}: an audit hands the function to other processes, which cannot find it: it is a lambda, "
        "an inner function or typed in by hand; define it at the top of a module of your own"
    )


def load_own(key: str, name: str) -> Callable[..., Any]:
    """The function that a description names, or that was given. Raises: SpecError that names the key; OwnError."""
    named = name if isinstance(name, Named) else Named(name)
    if named.function is not None:
        return named.function
    module, _, function = named.partition(":")
    with _at_key(key, named):
        place = beside.find(module, named.folders)
        with _failing(str(place.file)):
            return beside.load(place, function)


def look(key: str, named: Named) -> str:
    """Where a function stands, by reading and not running. Raises: SpecError that names the key."""
    if named.function is not None:
        return GIVEN
    module, _, function = named.partition(":")
    with _at_key(key, named):
        place = beside.find(module, named.folders)
        return f"{beside.shown(place.file)} line {beside.glance(place, function)}"


def call(key: str, name: str, *args: Any, takes: str = "") -> Any:
    """What the function gives that a description names. What it prints goes to standard error.

    Raises: SpecError that names the key when it may not be called or takes other arguments; OwnError when it fails.
    """
    function = load_own(key, name)
    with _at_key(key, name):
        _check_takes(function, args, takes)
        with _failing(), contextlib.redirect_stdout(sys.stderr):
            return function(*args)


def is_users(file: str) -> bool:
    """Whether a line of a traceback is of somebody's own file, and not of Python's, a package's or Croupier's."""
    return Path(file).is_file() and not beside.is_installed(Path(file))


def told(error: BaseException, is_own: Callable[[str], bool] = is_users) -> str:
    """An error by the innermost line of the user's own code in it; nothing where there is none.

    "hospital.py line 12, in data: KeyError: 'age'"
    """
    said = " ".join(str(error).split())
    said = said if len(said) <= TOLD else f"{said[:TOLD]} ..."
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return (
            f"{beside.shown(Path(error.filename).resolve())} line {error.lineno}: {type(error).__name__}: {error.msg}"
        )
    frames = [frame for frame in _frames(error) if is_own(frame[0])]
    if not frames:
        return ""
    file, line, inside = frames[-1]
    return f"{beside.shown(Path(file).resolve())} line {line}, in {inside}: {what}"


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    """File, line and function of each step, also where another process took it."""
    steps = [(frame.filename, frame.lineno or 0, frame.name) for frame in extract_tb(error.__traceback__)]
    # A process pool hands on the other side's traceback as text.
    far = re.findall(r'File "(.+?)", line (\d+), in (.+)', str(getattr(error.__cause__, "tb", "")))
    return steps + [(file, int(line), name) for file, line, name in far]


def records(part: Part) -> dict[str, dict[str, str]]:
    """What a description names, with its file and the file's SHA-256, for a record of what ran."""
    found = {}
    for key, named in named_in(part).items():
        if named.function is not None:
            found[key] = {"name": str(named), "file": GIVEN}
            continue
        with _at_key(key, named):
            file = beside.find(named.partition(":")[0], named.folders).file
        found[key] = {"name": str(named), "file": str(file), "sha256": beside.digest(file)}
    return found


def check_there(part: Part, before: Mapping[str, Mapping[str, str]], path: str) -> None:
    """Raises: SpecError when a function that a run began with is not found from here, with where it was."""
    for key, named in named_in(part).items():
        was = before.get(key, {}).get("file", "")
        try:
            look(key, named)
        except SpecError as error:
            if was == GIVEN:
                remedy = f"a Python program gave it: go on there, croupier.resume({path!r}, own=[function])"
                raise SpecError(f"{key} = {str(named)!r}: {remedy}") from None
            raise SpecError(f"{error} (when the run began it was in {was})" if was else str(error)) from None


@contextlib.contextmanager
def _at_key(key: str, name: str) -> Iterator[None]:
    try:
        yield
    except OwnError as error:
        raise OwnError(f"{key} = {str(name)!r}: {error}") from error.__cause__
    except SpecError as error:
        raise SpecError(f"{key} = {str(name)!r}: {error}") from None


@contextlib.contextmanager
def _failing(file: str = "") -> Iterator[None]:
    """Errors of code that is called here are told by its own file and line."""
    try:
        yield
    except CroupierError:
        raise
    except (Exception, SystemExit) as error:
        at = f"{beside.shown(Path(file))}: " if file else ""
        raise OwnError(told(error) or f"{at}{type(error).__name__}: {error}") from error


def _check_takes(function: Callable[..., Any], args: Sequence[Any], takes: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args)
    except TypeError as error:
        wanted = f"def {getattr(function, '__name__', 'make')}({takes})" if takes else f"{len(args)} arguments"
        raise SpecError(f"it cannot be called ({error}); write {wanted}") from None


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
