"""Rooms of parts: which file of a folder holds a part or a class, found in the text of the files.

There are about a hundred parts and a run uses ten. To import all of them takes longer than to train a small model, and
a list of who lies where would have to be kept. A part's class says `use="name"`, so that its file can be found by that
text and imported alone: `core.part` does so, and `learn.datasets` and `learn.models` offer their classes in the same
way. `tests/laws/test_rooms.py` holds that every part is found.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def modules(room: str) -> list[str]:
    """The modules of a package and of the folders in it; of a module, itself."""
    found = find_spec(room)
    if found is None or found.submodule_search_locations is None:
        return [room]
    return [one.name for one in pkgutil.walk_packages(found.submodule_search_locations, f"{room}.")]


def holding(room: str, text: str) -> list[str]:
    """The modules of a room whose source has this text, and those whose source cannot be read: it may be in them."""
    return [name for name in modules(room) if (source := _source(name)) is None or text in source]


def loaded(room: str) -> None:
    """See that every module of a room is imported."""
    for name in modules(room):
        import_module(name)


def when_asked(room: str, names: list[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that offers the classes of its modules by name, and imports each when asked."""

    def find(name: str) -> Any:
        for module in holding(room, f"class {name}") if name in names else ():
            if hasattr(found := import_module(module), name):
                return getattr(found, name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return find


def _source(name: str) -> str | None:
    loader = getattr(find_spec(name), "loader", None)
    read = getattr(loader, "get_source", None)
    text: str | None = read(name) if read else None
    return text
