"""Writes what the docs take from the parts themselves: `python tools/describe.py` (or `make docs`).

The lists of keys in `docs/description.md`, between its `<!-- generated ... -->` marks, and `docs/croupier.schema.json`,
by which editors complete and check a description. Both are made of the parts' fields and their
`Field(description=...)`; `tests/unit/test_docs.py` holds that they are up to date. docs/results.md is written too
(`tools/results.py`).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from croupier.core.part import Part
from croupier.spec import Spec
from croupier.toml_read import presets
from tools import reference, results

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SCHEMA = DOCS / "description.md", DOCS / "croupier.schema.json"
WIDTH = 100
MARK = re.compile(r"(<!-- generated: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def slots() -> dict[str, type[Part]]:
    """The keys that a part is chosen for by name, with the class that all its choices derive from."""
    return {key: kind for key, _, kind in _walk(Spec) if kind is not None and kind.verb}


def _walk(part: type[Part], path: str = "") -> Iterator[tuple[str, FieldInfo, type[Part] | None]]:
    """Every key below a table, and which kind of part it holds, if any; choices are not entered."""
    for name, field in part.model_fields.items():
        kind = _kind(field)
        yield f"{path}{name}", field, kind
        if kind is not None and not kind.verb:
            yield from _walk(kind, f"{path}{name}.")
        elif kind is not None:
            for choice in chosen_by(kind).values():
                inner = ((each, _kind(each)) for each in choice.model_fields.values())
                yield from (
                    (f"{path}{name}.{key}", each, below)
                    for key, (each, below) in zip(choice.model_fields, inner, strict=True)
                    if below is not None and below.verb not in ("", "data")
                )


def _kind(field: FieldInfo) -> type[Part] | None:
    return field.annotation if isinstance(field.annotation, type) and issubclass(field.annotation, Part) else None


def chosen_by(kind: type[Part]) -> dict[str, type[Part]]:
    """The product's own parts for a slot, by name."""
    return {name: part for name, part in kind.offered().items() if part.__module__.startswith("croupier.")}


def table_of(name: str) -> str:
    """The list of one mark: the keys of a table such as `run`, or the choices for a slot such as `task.fit`."""
    kind = slots().get(name)
    if kind is None:
        fixed = [(key, field) for key, field, below in _walk(Spec) if below is None or below.verb]
        wanted = [(key, field) for key, field in fixed if key == name or key.rpartition(".")[0] == name]
        return "".join(_bullet(key, field) for key, field in wanted)
    lines = []
    for use, part in chosen_by(kind).items():
        lines.append(_wrapped(f"- `{use}`: {_summary(part)}", "  "))
        lines += [_bullet(key, field, "  ") for key, field in part.model_fields.items()]
    return "".join(lines)


def _bullet(key: str, field: FieldInfo, indent: str = "") -> str:
    unset = field.default is None or field.is_required() or field.default is PydanticUndefined
    value = "must be given" if field.is_required() else "" if unset or _kind(field) else _toml(field.default)
    default = f" ({value})" if value else ""
    return _wrapped(f"{indent}- `{key}`{default}: {field.description or ''}", f"{indent}  ")


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _summary(part: type[Part]) -> str:
    """The first sentence of a part's docstring."""
    first = " ".join((part.__doc__ or "").split("\n\n")[0].split())
    sentence = re.match(r".*?\.(?= [A-Z`]|$)", first)
    return (sentence.group() if sentence else first).removesuffix(".")


def _wrapped(text: str, indent: str) -> str:
    """Lines of at most `WIDTH`; what stands in backticks stays on one of them."""
    whole = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    wrapped = textwrap.wrap(whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped).replace("\N{NO-BREAK SPACE}", " ") + "\n"


def described(page: str) -> str:
    """The page, with all its lists written anew."""
    return MARK.sub(lambda found: f"{found[1]}{table_of(found[2])}{found[3]}", page)


def schema() -> dict[str, Any]:
    """The JSON schema of a description, for editors."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A run of Croupier",
        **_object(Spec),
    }


def _object(part: type[Part], use: str = "") -> dict[str, Any]:
    properties = {name: _property(name, field) for name, field in part.model_fields.items()}
    if use:
        properties = {"use": {"const": use, "description": _summary(part)}, **properties}
    shape = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**shape, "required": ["use"]} if use else shape


def _property(name: str, field: FieldInfo) -> dict[str, Any]:
    words = {"description": field.description} if field.description else {}
    kind = _kind(field)
    if kind is None:
        return {**_leaf(field), **words}
    if name == "protocol":
        known = {"enum": presets()}
        changed = _object(kind)
        changed["properties"]["use"] = known
        return {"anyOf": [known, changed], **words}
    if not kind.verb:
        return {**_object(kind), **words}
    choices = chosen_by(kind)
    named: list[dict[str, Any]] = [{"enum": list(choices)}]
    named += [_object(part, use) for use, part in choices.items()]
    if isinstance(field.default, Part):
        named.append(_object(type(field.default)))
    return {"anyOf": named, **words}


def _leaf(field: FieldInfo) -> dict[str, Any]:
    """What a plain value may be, as far as its type tells; names of functions are checked elsewhere."""
    try:
        kind: Any = field.annotation
        found = TypeAdapter(kind).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return {}
    return {} if "$defs" in found else found


def main() -> None:
    """Write all files."""
    results.main()
    reference.main()
    PAGE.write_text(described(PAGE.read_text("utf-8")), "utf-8")
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
