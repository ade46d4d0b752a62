"""Functions of the user's own, found and called: what a description names, or a Python program gives.

A name, `module:function`, is called only if a module beside the description or in the current directory defines it. A
function that Python gives is called as it is; a description then shows its name, which may be one that nobody can find
again. How a module is found is in `learn.beside`, and what a name is in `learn.own_names`.

Data (`learn.datasets.own`), models (`learn.models.own`), losses, metrics, shadow sets (`audit.recorded.shadows`) and a
deployed client's own training (`service.training`) are all taken through here, so that one rule decides what may be
called: see SECURITY.md. `records` is for manifests and reports, `check_there` for resumed runs (`engine.job`), `look`
for `croupier doctor`. An error inside the user's code is told by its file and line.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

from croupier.core.part import Part
from croupier.errors import CroupierError, OwnError, SpecError
from croupier.learn import beside
from croupier.learn.own_names import GIVEN, FunctionName, named_in

# So many characters of an error are told; --debug shows all.
TOLD = 300


def load_own(key: str, name: str) -> Callable[..., Any]:
    """The function that a description names, or that was given. Raises: SpecError that names the key; OwnError."""
    named = name if isinstance(name, FunctionName) else FunctionName(name)
    if named.function is not None:
        return named.function
    module, _, function = named.partition(":")
    with _at_key(key, named):
        place = beside.find(module, named.folders)
        with _failing(str(place.file)):
            return beside.load(place, function)


def look(key: str, named: FunctionName) -> str:
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
    """Whether a file, as a traceback names it, is the user's own, and not Python's, a package's or Croupier's."""
    return Path(file).is_file() and not beside.is_installed(Path(file))


def error_in_own_code(error: BaseException, is_own: Callable[[str], bool] = is_users) -> str:
    """An error, told by the innermost line of the user's own code in its traceback; nothing where there is none.

    It reads "hospital.py line 12, in data: KeyError: 'age'".
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
    """The functions of the user's own that a description names: name, file and the file's SHA-256, by their keys.

    They are written into manifests and reports, so that it is known which code ran. Training records they are not.
    """
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
        raise OwnError(error_in_own_code(error) or f"{at}{type(error).__name__}: {error}") from error


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
