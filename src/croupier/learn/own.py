"""Functions of the user's own, named in a description by where they can be imported from."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from croupier.errors import SpecError, nearest


def _well_named(path: str) -> str:
    if path.startswith("__main__:") or "<lambda>" in path:
        raise ValueError("what __main__ or a lambda holds cannot be named; put a function into a module of its own")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", path):
        raise ValueError("write package.module:function, for example mine:make")
    return path


Importable = Annotated[str, AfterValidator(_well_named)]


def call(key: str, path: str, *args: Any) -> Any:
    """What the function gives that `package.module:function` names; modules of the current directory are found too.

    Raises: SpecError that names the key when there is no such function, or when it fails.
    """
    function = _find(key, path)
    try:
        return function(*args)
    except Exception as error:
        raise SpecError(f"{key} = {path!r}: the function failed with {error!r}; mend it") from error


def _find(key: str, path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        home = importlib.import_module(module)
    except Exception as error:  # a module that is imported runs, and can fail in any way at all
        remedy = f"run from the folder that holds {module.partition('.')[0]}, or install it"
        raise SpecError(f"{key} = {path!r}: {module} cannot be imported ({error!r}); {remedy}") from error
    function = getattr(home, name, None)
    if not callable(function):
        known = [each for each, value in vars(home).items() if callable(value) and not each.startswith("_")]
        raise SpecError(f"{key} = {path!r}: {module} has no function {name!r}; {nearest(name, known)}")
    found: Callable[..., Any] = function
    return found
