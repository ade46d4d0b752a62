"""Modules beside a description or in the current directory: found by their file, and never by Python's search path.

A description is data that may come from anywhere. What it names must be its reader's own code, never Python's or a
package's. `learn.own` finds and loads all functions through here; `cli` and `learn.own_names` ask where a file lies.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from threading import RLock
from types import CodeType, FunctionType, ModuleType
from typing import Any

from croupier.errors import SpecError, nearest

_LOCK = RLock()
# Folders whose modules were imported, the last one first; they end Python's search path for imports of their own.
_ENTERED: list[Path] = []
# SHA-256 of the sources that were run.
_RAN: dict[Path, str] = {}


@dataclass(frozen=True)
class Place:
    """A module's file, and the folder that its dotted name starts from; both without links."""

    root: Path
    file: Path
    parts: tuple[str, ...]


def find(module: str, folders: Sequence[Path]) -> Place:
    """Where the first of these folders has that module; nothing is run. Raises: SpecError that says what to do."""
    parts = tuple(module.split("."))
    if parts[0] in sys.stdlib_module_names:
        why = f"{parts[0]} is a module of Python itself, which a description cannot call"
        raise SpecError(f"{why}; name a function of your own, in a file of another name")
    for folder in folders:
        root = folder.resolve()
        if (file := _file(root, parts)) is not None:
            _check_free(parts[0], file)
            return Place(root, _checked(root, file), parts)
    known = "beside the description or in the current directory" if len(folders) > 1 else "in the current directory"
    raise SpecError(
        f"there is no {'/'.join(parts)}.py {known}, and nothing else is searched, installed packages neither; "
        "put it there, or run from the folder that holds it"
    )


def load(place: Place, name: str) -> Callable[..., Any]:
    """That function or class. Raises: SpecError when the module does not define it; whatever its code raises."""
    with _LOCK:
        module = _imported(place)
    found = vars(module).get(name)
    if not callable(found):
        known = [key for key, value in vars(module).items() if callable(value) and _is_defined(value, place)]
        raise SpecError(f"{place.file.name} has no function {name!r}; {nearest(name, known)}")
    if not _is_defined(found, place):
        raise SpecError(
            f"{name} is not defined in {place.file.name}, which only brings it in; write a function of your own there, "
            f"def {name}(...), that calls it"
        )
    function: Callable[..., Any] = found
    return function


def glance(place: Place, name: str) -> int:
    """The line where a module defines or assigns that name, read and not run. Raises: SpecError when it does not."""
    try:
        tree = ast.parse(place.file.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        raise SpecError(f"{shown(place.file)} cannot be read as Python ({error}); mend it") from None
    lines = dict(_bound(tree.body))
    if name not in lines:
        raise SpecError(f"{place.file.name} has no function {name!r}; {nearest(name, lines)}")
    return lines[name]


def digest(file: Path) -> str:
    """SHA-256 of the source that ran, or of the file where nothing of it has run yet."""
    return _RAN.get(file) or hashlib.sha256(file.read_bytes()).hexdigest()


def is_entered(file: str) -> bool:
    """Whether a file lies in a folder that own modules were imported from, and came with no package."""
    path = Path(file)
    return path.is_file() and any(map(path.resolve().is_relative_to, _ENTERED)) and not is_installed(path)


def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python, to an installed package or to Croupier."""
    real = path.resolve()
    return not {"site-packages", "dist-packages"}.isdisjoint(real.parts) or any(map(real.is_relative_to, _homes()))


def shown(file: Path) -> str:
    """A file as its owner would name it from here."""
    here = Path.cwd().resolve()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


@cache
def _homes() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parent.parent)]
    return tuple(Path(path).resolve() for path in found)


def _file(root: Path, parts: Sequence[str]) -> Path | None:
    at = root.joinpath(*parts)
    # As Python has it: a package goes before a module of the same name.
    return next((file for file in (at / "__init__.py", at.with_name(f"{at.name}.py")) if file.is_file()), None)


def _check_free(name: str, file: Path) -> None:
    """Raises: SpecError when a package has the name: whoever imports the package later would be given the file."""
    found = PathFinder.find_spec(name, [path for path in sys.path if path and is_installed(Path(path))])
    if found is not None and found.origin is not None:
        raise SpecError(
            f"{shown(file)} has the name of an installed package ({found.origin}), which goes before it; give your "
            "file another name"
        )


def _checked(root: Path, file: Path) -> Path:
    real = file.resolve()
    if is_installed(real):
        raise SpecError(f"{real} is installed, and not yours; write a function of your own that calls it")
    if not real.is_relative_to(root):
        raise SpecError(f"{shown(file)} is a link to {real}, out of its folder; put the file itself there")
    return real


def _imported(place: Place) -> ModuleType:
    """The module, run once, with the packages that it lies in."""
    main = sys.modules.get("__main__")
    if (said := getattr(main, "__file__", None)) and main is not None and Path(said).resolve() == place.file:
        return main
    _enter(place.root)
    module = None
    for depth in range(1, 1 + len(place.parts)):
        parent, module = module, _one(place.root, place.parts[:depth])
        if parent is not None:
            setattr(parent, place.parts[depth - 1], module)
    assert module is not None
    return module


def _one(root: Path, parts: tuple[str, ...]) -> ModuleType:
    name, file = ".".join(parts), _file(root, parts)
    if (known := sys.modules.get(name)) is not None:
        if not _is_at(known, file.resolve() if file else root.joinpath(*parts)):
            there = getattr(known, "__file__", None) or "built in"
            raise SpecError(f"another module is called {name} already ({there}); give your file another name")
        return known
    if file is None:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(root.joinpath(*parts))]
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        return module
    inner = [str(file.parent)] if file.name == "__init__.py" else None
    real = _checked(root, file)
    found = importlib.util.spec_from_file_location(
        name, real, loader=_Source(name, str(real)), submodule_search_locations=inner
    )
    assert found is not None
    assert found.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _enter(root: Path) -> None:
    """Let the folder's modules import each other; what another folder has under the same names is forgotten first."""
    for other in [one for one in _ENTERED if one != root]:
        mine = {name: _file(root, (name,)) for name in _inside(other)}
        if any(file and not _is_at(sys.modules[name], file.resolve()) for name, file in mine.items()):
            leave(other)
    if root not in _ENTERED:
        _ENTERED.insert(0, root)
    if _source_finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _source_finder)
    if str(root) not in sys.path:
        # Last: what is installed wins, for Croupier's own imports as for the folder's. Of several folders, the newest.
        known, at = set(map(str, _ENTERED)), len(sys.path)
        while at and sys.path[at - 1] in known:
            at -= 1
        sys.path.insert(at, str(root))
    _forget_finders(root)
    importlib.invalidate_caches()


class _Source(SourceFileLoader):
    """Runs what the source says: bytecode beside it, which may say something else, is neither read nor written."""

    def get_code(self, fullname: str) -> CodeType:
        """The source, compiled now."""
        path = self.get_filename(fullname)
        data = self.get_data(path)
        code: CodeType = self.source_to_code(data, path)
        _RAN[Path(path).resolve()] = hashlib.sha256(data).hexdigest()
        return code


def _source_finder(path: str) -> FileFinder:
    """For Python's search path: modules of an entered folder come from their sources. Raises: ImportError elsewhere."""
    real = Path(path).resolve()
    if not any(map(real.is_relative_to, _ENTERED)) or not real.is_dir() or is_installed(real):
        raise ImportError(f"{path} is no folder that own modules were imported from")
    return FileFinder(path, (_Source, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES))


def _forget_finders(root: Path) -> None:
    """Those that Python made for a folder before it was entered, or while it was."""
    for path in [path for path in sys.path_importer_cache if Path(path).resolve().is_relative_to(root)]:
        del sys.path_importer_cache[path]


def leave(root: Path) -> None:
    """Forget a folder's modules; functions that were taken from them keep working."""
    for name in _inside(root):
        del sys.modules[name]
    for file in [file for file in _RAN if file.is_relative_to(root)]:
        del _RAN[file]
    _ENTERED.remove(root)
    _forget_finders(root)
    sys.path[:] = [path for path in sys.path if path != str(root)]


def _inside(root: Path) -> list[str]:
    return [name for name, module in list(sys.modules.items()) if name != "__main__" and _is_under(module, root)]


def _is_at(module: ModuleType, path: Path) -> bool:
    said = getattr(module, "__file__", None)
    return Path(said).resolve() == path if said else str(path) in getattr(module, "__path__", ())


def _is_under(module: ModuleType, root: Path) -> bool:
    said = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", None) or ()), None)
    # Folders are entered without links: what lies in one begins with its name, and few modules need a closer look.
    return isinstance(said, str) and said.startswith(f"{root}{os.sep}") and not is_installed(Path(said))


def _is_defined(value: Any, place: Place) -> bool:
    """Whether what is called was written in this module or a part of this package; decorators are looked through."""
    try:
        inner = inspect.unwrap(value)
        file = inner.__code__.co_filename if isinstance(inner, FunctionType) else inspect.getfile(inner)
    except (TypeError, ValueError, OSError):
        return False
    if not isinstance(inner, FunctionType | type):
        return False
    real = Path(file).resolve()
    if place.file.name == "__init__.py":
        return real.is_relative_to(place.file.parent) and not is_installed(real)
    return real == place.file


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Names that a module's own statements define or assign, with their lines; imports are not its own."""
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name, one.lineno
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            yield from ((each.id, one.lineno) for each in targets if isinstance(each, ast.Name))
        elif isinstance(one, ast.If | ast.Try | ast.With):
            yield from _bound([*one.body, *getattr(one, "orelse", ())])
