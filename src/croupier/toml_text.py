"""Descriptions and other tables as TOML text that reads back to the same values.

Python reads TOML and does not write it. Run directories (`engine.job.job`), `--print-config` and `croupier recommend`
need a form that a person can change and that reads back to the very same description; unset values are shown as
comments. `service.fields` writes cards, rosters and the like by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from croupier.core.part import Part
from croupier.learn.own_names import FunctionName


def to_toml(spec: Part | Mapping[str, Any]) -> str:
    """The spec as TOML that reads back to the same spec; what is unset (None) is a comment."""
    lines: list[str] = []
    _table(spec.plain() if isinstance(spec, Part) else spec, (), lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in inner and value is not None}
    if path and (plain or not inner):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_literal(value)}{_remark(value)}" for key, value in plain.items()]
    lines += [f"# {_key(key)} is not set" for key, value in table.items() if value is None]
    for key, value in inner.items():
        _table(value, (*path, key), lines)


def _remark(value: Any) -> str:
    """Who reads the description later must know that it does not hold all that was run."""
    given = isinstance(value, FunctionName) and value.function is not None
    return "  # a function that Python gave: resume with croupier.resume(..., own=[function])" if given else ""


def _key(name: str) -> str:
    """A name as a key: bare where TOML allows that, and in quotes elsewhere (a client's name may hold anything)."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _literal(name)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, Mapping):
        # A table within a list.
        return "{" + ", ".join(f"{_key(key)} = {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for the one control character that JSON leaves bare.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
