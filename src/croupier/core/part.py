"""Parts: the named, frozen, checked values that a run is described with, and their registry.

A part is chosen by a name in TOML (`release = "shuffle"`), by a table (`{ use = "shuffle", grain = "layer" }`) or in
Python by its class, and is the same frozen value in all three. A class that says `use=` in its definition is known by
that name: its file is looked for in the slot's room, and imported, when the name is first asked for, and no list of
parts is kept anywhere (`core.rooms`). Mistakes are told by the path of the key, the value, and the nearest name that is
known. `spec` reads a whole description by `Part.parse`, and every slot of one derives from `Part`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails

from croupier.core.rooms import holding, loaded
from croupier.errors import SpecError, nearest, setting


class _Misfit(SpecError):  # noqa: N818 - reads as what it is
    """A part whose fields are wrong; keeps what the library said until it is known where the part stands."""

    def __init__(self, error: ValidationError, part: type[Part]) -> None:
        super().__init__(_in_python(error, part))
        self.error = error


class Part(BaseModel):
    """A named, frozen, checked value.

    A direct subclass that sets `verb` opens a slot; a subclass of it with `use="name"` can be chosen for that slot
    by name. `lies_in` is the package or module that holds those subclasses which are not in the slot's own file. Fields
    are checked when the value is built; an unknown key is an error at any depth.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    verb: ClassVar[str] = ""
    lies_in: ClassVar[str] = ""
    use: ClassVar[str] = ""
    # The parts that were imported so far, by verb and name.
    named: ClassVar[dict[tuple[str, str], type[Part]]] = {}

    def __init_subclass__(cls, use: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.use = use
        if use:
            Part.named[cls.verb, use] = cls

    @model_validator(mode="wrap")
    @classmethod
    def _in_our_words(cls, data: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        """Raise our error, not the library's, however a part is built."""
        try:
            return build(data)
        except ValidationError as error:
            raise _Misfit(error, cls) from None

    @classmethod
    def parse(cls, data: object, where: str = "") -> Self:
        """Build this part, or the named choice for its slot, from plain data. Raises: SpecError naming the key."""
        if isinstance(data, cls):
            return data
        table = {"use": data} if isinstance(data, str) else data
        if not isinstance(table, Mapping):
            raise SpecError(f"{where or cls.__name__} = {data!r}: expected a table or a name")
        chosen, fields = cls._choose(dict(table), where)
        return chosen._build(fields, where)

    @classmethod
    def offered(cls) -> dict[str, type[Part]]:
        """All parts that can fill this slot, by their names in order."""
        if cls.lies_in:
            loaded(cls.lies_in)
        return {use: part for (verb, use), part in sorted(Part.named.items()) if verb == cls.verb}

    @classmethod
    def choices(cls) -> list[str]:
        """Names that can fill this slot."""
        return list(cls.offered())

    @classmethod
    def known_as(cls, name: str) -> type[Part] | None:
        """The part of this slot that has a name; its file alone is imported."""
        if cls.lies_in and (cls.verb, name) not in Part.named:
            for module in holding(cls.lies_in, f'use="{name}"'):
                import_module(module)
        return Part.named.get((cls.verb, name))

    @classmethod
    def _choose(cls, table: dict[str, Any], where: str) -> tuple[type[Self], dict[str, Any]]:
        if not cls.verb:
            return cls, table
        name = table.pop("use", cls.use or None)
        found = cls.known_as(str(name))
        if found is None or not issubclass(found, cls):
            at = where or cls.verb
            raise SpecError(f"{at} = {name!r}: no {cls.verb} has that name; {nearest(str(name), cls.choices())}")
        return found, table

    @classmethod
    def _build(cls, fields: dict[str, Any], where: str) -> Self:
        ready: dict[str, Any] = {}
        for key, value in fields.items():
            at = f"{where}.{key}" if where else key
            field = cls.model_fields.get(key)
            if field is None:
                raise SpecError(f"{at}: {cls._unknown(key, where)}")
            kind = field.annotation
            nested = isinstance(kind, type) and issubclass(kind, Part)
            ready[key] = kind.parse(_named(value, field.default), at) if nested else value  # type: ignore[union-attr]
        try:
            return cls(**ready)
        except _Misfit as misfit:
            raise SpecError(_first_line(misfit.error, where)) from None

    @classmethod
    def _unknown(cls, key: str, where: str) -> str:
        """What to say of a key that this part does not have: the nearest it has, or the choices that have it."""
        said = f"unknown key{_of(cls, where)}; {nearest(key, cls.model_fields)}"
        if cls.model_fields:
            return said
        others = [use for use, part in cls.offered().items() if key in part.model_fields]
        return f"{said} for it, but {others[-1]!r} has this one" if others else said

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Only what is not the default: the rest is in `plain()`."""
        fields = type(self).model_fields
        return [(key, value) for key, value in self if value != fields[key].get_default(call_default_factory=True)]

    def __str__(self) -> str:
        return repr(self)

    def plain(self) -> dict[str, Any]:
        """The whole value as plain data, defaults included: what the digest binds and TOML shows."""
        named = {"use": type(self).use} if type(self).use else {}
        return named | {key: _plain(value) for key, value in self}

    def digest(self) -> bytes:
        """SHA-256 of the canonical form."""
        text = json.dumps(self.plain(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).digest()


def _named(value: Any, default: Any) -> Any:
    """A table that names no part changes the default one, and keeps the rest of it."""
    if isinstance(value, Mapping) and "use" not in value and isinstance(default, Part) and default.use:
        return {**default.plain(), **value}
    return value


def _of(part: type[Part], where: str) -> str:
    return f" of {part.use!r} ({setting(where, part.use)} starts it afresh)" if part.use and where else ""


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.plain()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _first_line(error: ValidationError, where: str) -> str:
    """What is wrong with a description, by the path of its key."""
    first = error.errors(include_url=False)[0]
    at = ".".join([where] * bool(where) + [str(step) for step in first["loc"]]) or "value"
    if first["type"] == "extra_forbidden":
        return f"{at}: unknown key"
    if first["type"] == "missing":
        return f"{at}: this key is required; set it in the description or with {setting(at, 'VALUE')}"
    return f"{at} = {first['input']!r}: {_worded(first)}" if first["loc"] else f"{at}: {_worded(first)}"


def _in_python(error: ValidationError, part: type[Part]) -> str:
    """What is wrong with the arguments of a part that is built in Python."""
    first = error.errors(include_url=False)[0]
    at = "".join(f"[{step!r}]" if number else str(step) for number, step in enumerate(first["loc"]))
    if first["type"] == "extra_forbidden":
        said = f"unknown argument; {nearest(at, part.model_fields)}"
    elif first["type"] == "missing":
        return f"{part.__name__}({at}=...): this argument is required"
    else:
        said = _worded(first)
    return f"{part.__name__}({at}={first['input']!r}): {said}" if at else f"{part.__name__}: {said}"


def _worded(first: ErrorDetails) -> str:
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("tuple_type", "list_type"):
        return "a list is wanted, in brackets"
    return f"{said[0].lower()}{said[1:]}"
