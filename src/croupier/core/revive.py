"""Frozen values to plain ones that JSON can hold, and back exactly, by the types that they are known to have.

An audit keeps each finished part and takes it up again after an interruption (`audit.harness`). What is taken up must
be the very value, types included, or the report would differ from that of an audit that was never stopped. The audit's
question `permutation` hands values to its attack in the same form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from croupier.errors import StoreError


def plain(value: Any) -> Any:
    """A value as maps with text keys, lists, text, numbers, truth values and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def revived(kind: Any, value: Any) -> Any:
    """What `plain` was given, of this type: a dataclass, tuple, list, map, choice with None, or anything plain.

    Raises: KeyError, TypeError or ValueError where the value is none of that type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return kind(**{name: revived(each, value[name]) for name, each in _fields(kind).items()})
    if origin in (Union, UnionType):
        (other,) = [each for each in inner if each is not NoneType]
        return None if value is None else revived(other, value)
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(revived(each, one) for each, one in zip(kinds, value, strict=True))
    if origin is list:
        return [revived(inner[0], one) for one in value]
    if isinstance(origin, type) and issubclass(origin, Mapping) and inner[0] in (int, str):
        return {inner[0](key): revived(inner[1], one) for key, one in value.items()}
    return value


@lru_cache(maxsize=64)
def _fields(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


# Where plain values are kept by name: a dictionary, or a folder (`engine.shelf`).
Shelf = MutableMapping[str, Any]


def put(shelf: Shelf, name: str, value: Any) -> None:
    """Put a value on the shelf, as plain ones."""
    shelf[name] = plain(value)


def got(shelf: Shelf, name: str, kind: Any) -> Any:
    """A value from the shelf. Raises: StoreError for what is no longer of its type."""
    try:
        return revived(kind, shelf[name])
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"{name}: what is kept of it is of another form; remove the folder that keeps it") from None
