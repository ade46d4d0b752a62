"""Descriptions as text: presets and TOML files read into tables, and keys to change as they are written.

`spec` reads every description through here and makes parts of its tables; commands list presets (`croupier doctor`) and
name reports (`called`) by it. `toml_text` does the opposite: it writes parts as TOML.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from croupier.errors import SpecError, nearest, option

# How keys of a description are changed.
Sets = Sequence[str] | Mapping[str, Any]


def presets() -> list[str]:
    """Names of the descriptions that come with the package."""
    folder = resources.files("croupier") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def about(preset: str) -> str:
    """A preset in one line: how its file begins."""
    return preset_text(preset).splitlines()[0].removeprefix("#").strip()


def preset_text(name: str) -> str:
    """The TOML of a preset."""
    return (resources.files("croupier") / "presets" / f"{name}.toml").read_text("utf-8")


def read_table(source: str | Path) -> dict[str, Any]:
    """The table of a preset or of a TOML file, with a name for the run. Raises: SpecError when it is neither."""
    path = Path(source)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:64] or "run"
    if isinstance(source, str) and source in presets():
        text = preset_text(source)
    elif path.is_file():
        text = _text(path)
    else:
        raise SpecError(f"{str(source)!r} is neither a file nor a preset; {_meant(path)}")
    try:
        return {"name": name, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{source}: not valid TOML: {error}") from None


def _meant(path: Path) -> str:
    """What was probably meant: the description in a folder, a preset, or a file beside what was named."""
    if (inside := path / "task.toml").is_file():
        return f"did you mean {str(inside)!r}?"
    beside = [str(one) for one in path.parent.glob("*.toml")] if path.suffix == ".toml" else []
    return nearest(str(path), [*presets(), *beside])


def called(name: str, source: object) -> str:
    """What an audit calls a description: by its folder where its file is a mere `task.toml`."""
    file = Path(source).resolve() if isinstance(source, str | Path) else Path()
    mere = name == "task" and file.name == "task.toml" and re.fullmatch(r"[\w.-]{1,64}", file.parent.name, re.A)
    return file.parent.name if mere else name


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def pairs(sets: Sets) -> list[tuple[str, Any]]:
    """Keys and values to set."""
    if isinstance(sets, Mapping):
        return [(str(key), value) for key, value in sets.items()]
    return [_pair(each) for each in ([sets] if isinstance(sets, str) else sets)]


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"{option('set')} {text!r}: write key=value, for example federation.rounds=10")
    return key, _value(value.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
