"""The description of a run: TOML on the outside, frozen parts inside."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from croupier.core.part import Part
from croupier.errors import SpecError, nearest
from croupier.federation import Federation
from croupier.learn.augment import Augment, NoAugment
from croupier.learn.data import Data
from croupier.learn.datasets import Digits
from croupier.learn.fit import Fit, Sgd
from croupier.learn.models import Mlp, Network
from croupier.learn.root import NONE, Root
from croupier.learn.split import Dirichlet, Split
from croupier.pipeline import Pipeline


class Learning(Part):
    """What is learned, from what, by which model. `together` small clients train stacked; 1 trains each alone.

    `opaque` names modules of the network whose insides nobody looks at: what enters and leaves them keeps its order.
    """

    data: Data = Digits()
    split: Split = Dirichlet()
    model: Network = Mlp()
    fit: Fit = Sgd(lr=0.1, epochs=5, batch=32)
    augment: Augment = NoAugment()
    root: Root = NONE
    together: int = Field(64, ge=1)
    warm: str | None = None
    opaque: tuple[str, ...] = ()


class Machine(Part):
    """How this machine runs it: private, and no part of the protocol's digest."""

    device: str = "cpu"
    workers: int | None = Field(None, ge=1, le=256)
    through_bytes: bool = False
    checkpoint_every: int = Field(1, ge=1)
    views: tuple[str, ...] = ()
    record: Literal["nothing", "digest"] = "nothing"

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
            raise ValueError("a device is cpu, cuda, or cuda with a number such as cuda:1")
        return device


class Spec(Part):
    """A whole run."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    task: Learning = Learning()
    federation: Federation = Federation()
    protocol: Pipeline = Pipeline()
    run: Machine = Machine()


def presets() -> list[str]:
    """Names of the descriptions that come with the package."""
    folder = resources.files("croupier") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(source: str | Path | Mapping[str, Any] | Spec, sets: Sequence[str] = ()) -> Spec:
    """A spec from a preset's name, a TOML file, a table or a spec, changed by `key=value` settings.

    Raises: SpecError that names the key, the value and the nearest known name.
    """
    table = (
        source.plain() if isinstance(source, Spec) else dict(source) if isinstance(source, Mapping) else _read(source)
    )
    for setting in sets:
        _apply(table, setting)
    return Spec.parse(table)


def _read(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem)[:64] or "run"
    if isinstance(source, str) and source in presets():
        text = (resources.files("croupier") / "presets" / f"{source}.toml").read_text("utf-8")
    elif path.is_file():
        text = _text(path)
    else:
        raise SpecError(f"{str(source)!r} is neither a file nor a preset; {nearest(str(source), presets())}")
    try:
        return {"name": name, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{source}: not valid TOML: {error}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def _apply(table: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise SpecError(f"--set {setting!r}: write key=value, for example federation.rounds=10")
    *steps, last = key.strip().split(".")
    if (steps or [last])[0] not in Spec.model_fields and (
        known := [p for p in _keys(Spec()) if p.endswith(f".{last}")]
    ):
        raise SpecError(f"{key.strip()}: unknown key; did you mean {known[0]!r}?")
    for step in steps:
        inner = table.get(step, {})
        # A part given by its bare name has no fields yet: make room for them.
        inner = inner.plain() if isinstance(inner, Part) else {"use": inner} if isinstance(inner, str) else inner
        table[step] = dict(inner) if isinstance(inner, Mapping) else {}
        table = table[step]
    table[last] = _value(text.strip())


def _keys(part: Part, path: str = "") -> list[str]:
    """Every key below a part, as --set writes it."""
    found = []
    for name, value in part:
        found += _keys(value, f"{path}{name}.") if isinstance(value, Part) else [f"{path}{name}"]
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def to_toml(spec: Part) -> str:
    """The spec as TOML that reads back to the same spec; what is unset (None) is a comment."""
    lines: list[str] = []
    _table(spec.plain(), (), lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in inner and value is not None}
    if path and (plain or not inner):
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [f"{key} = {_literal(value)}" for key, value in plain.items()]
    lines += [f"# {key} is not set" for key, value in table.items() if value is None]
    for key, value in inner.items():
        _table(value, (*path, key), lines)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for the one control character that JSON leaves bare.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
