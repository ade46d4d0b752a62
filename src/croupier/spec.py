"""The description of a run: TOML on the outside, frozen parts inside.

A description has four tables: `task`, `federation`, `protocol` and `run`. `load` reads a preset, a file or a table,
applies changes by key, and fills in what follows from the rest (for how many clients a sum must have room). Keys that
nobody knows are errors that name the nearest one. Commands, runs, audits and plans all begin here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from croupier.core.part import Part
from croupier.encode.encoder import Encoder
from croupier.engine.federation import Federation
from croupier.errors import SpecError, nearest
from croupier.learn.assemble import TaskOptions
from croupier.learn.augment import Augment, NoAugment
from croupier.learn.data import Data, folder_of
from croupier.learn.datasets.digits import Digits
from croupier.learn.fit import Fit, Sgd
from croupier.learn.loss import LossName
from croupier.learn.metrics import MetricName
from croupier.learn.models.mlp import Mlp
from croupier.learn.models.network import Network
from croupier.learn.own_names import reading
from croupier.learn.root import NONE, Root
from croupier.learn.split import Dirichlet, Split
from croupier.pipeline import Pipeline
from croupier.toml_read import Sets, pairs, preset_text, presets, read_table


class Learning(Part):
    """What is learned, from what, by which model. `together` small clients train stacked; 1 trains each alone.

    `opaque` names modules of the network whose insides nobody looks at: what enters and leaves them keeps its order.
    `loss` is what training makes small, cross-entropy or the squared error unless set; `metrics` are measured besides.
    """

    data: Data = Field(Digits(), description="what is learned from")
    split: Split = Field(Dirichlet(), description="how records become clients")
    model: Network = Field(Mlp(), description="the network")
    fit: Fit = Field(Sgd(lr=0.1, epochs=5, batch=32), description="how a client trains")
    loss: LossName = Field(
        None,
        description="what training makes small: `cross-entropy` of classes; `mse`, `mae` or `huber` of quantities; or "
        "your `module:function`",
    )
    metrics: tuple[MetricName, ...] = Field(
        (),
        description="measured besides accuracy or RMSE: `auc`, `f1`, `balanced_accuracy`, `precision`, `recall`, "
        "`mae`, `r2` or your function",
    )
    augment: Augment = Field(NoAugment(), description="what is done to pictures")
    root: Root = Field(NONE, description="records that the server keeps for itself")
    together: int = Field(
        64,
        ge=1,
        description="how many clients of a small model train stacked as one; tiny perceptrons may be more, up to half "
        "a million weights; 1 trains each alone",
    )
    warm: str | None = Field(None, description="a `model.safetensors` file to start from")
    opaque: tuple[str, ...] = Field(
        (), description="modules that `hidden-units` does not look into: what enters and leaves them keeps its order"
    )

    @model_validator(mode="after")
    def _records_apart(self) -> Self:
        if self.fit.private is not None and self.fit.private.claimed and self.augment.mixes(self.data):
            raise SpecError(
                f"task.fit = {self.fit.use!r}: task.augment = {self.augment.use!r} blends pictures of the same data "
                f"({self.data.use!r}) into each record, so that one record is in many gradients and the noise does not "
                "cover it; use other public pictures (task.augment.public)"
            )
        return self

    @property
    def options(self) -> TaskOptions:
        """All but data, split, model and fit, as `learn.assemble` takes them."""
        return TaskOptions(
            self.augment, self.root, self.together, self.warm, self.opaque, self.loss, self.metrics
        )  # fmt: skip


class Machine(Part):
    """How this machine runs it: private, and no part of the protocol's digest."""

    device: str = Field("cpu", description="`cpu`, `cuda` or one of several, `cuda:1`")
    workers: int | None = Field(
        None, ge=1, le=256, description="threads that train, or actors; every core unless set; never changes a result"
    )
    engine: Literal["local", "ray"] = Field(
        "local",
        description="where clients train: `local`: in threads here; `ray`: on as many actors as `workers`, here or "
        "where RAY_ADDRESS says; never changes a result",
    )
    through_bytes: bool = Field(False, description="seal, send, open and parse every message; never changes a result")
    checkpoint_every: int = Field(1, ge=1, description="rounds between checkpoints")
    views: tuple[str, ...] = Field(
        (),
        description="parties whose views are written to `views/`, for your eyes only: they hold keys, and updates "
        "without noise",
    )
    record: Literal["nothing", "digest"] = Field(
        "nothing", description="`digest` writes what binds every party's view to `digests.jsonl`"
    )

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
            raise ValueError("a device is cpu, cuda, or cuda with a number such as cuda:1")
        return device


class Spec(Part):
    """A whole run."""

    name: str = Field("run", description="names the run directory")
    task: Learning = Field(Learning(), description="what is learned")
    federation: Federation = Field(Federation(), description="the plan of rounds")
    protocol: Pipeline = Field(Pipeline(), description="how updates travel: a preset's name, or five parts")
    run: Machine = Field(
        Machine(), description="how this machine runs it: private, and no part of the protocol's digest"
    )

    @field_validator("name")
    @classmethod
    def _is_a_file_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
            raise ValueError("folders are named after it; use letters, digits, dots, dashes and _, 64 at most")
        return name


# What describes a run, and what counts clients where only the data know.
Source = str | Path | Mapping[str, Any] | Spec
Count = Callable[[Learning], int]
# Room for so many clients in a sum, where only the data know how many there are and nobody may look.
SUPPOSED = 100


def load(
    source: Source, sets: Sets = (), own: Sequence[Callable[..., Any]] = (), *, count: Count | None = None
) -> Spec:  # fmt: skip
    """Read the description of a run.

    source: a preset's name, the path of a TOML file, a table (a dict) or a `Spec`.
    sets: keys to change, as `{"federation.rounds": 3}` or as texts `["federation.rounds=3"]`.
    own: functions for the names that a description has, where a Python program gives them.
    count: counts the owners of natural data where a description leaves that open and its protocol must know; without
        it such a description is an error, because counting may mean to load the data.

    `protocol = "rns-servers"`, or any preset's name, stands for that preset's protocol; in a table, `use` does, and
    other keys change parts of it. How many clients an encoder must be able to sum (`protocol.encode.clients`) follows
    from `federation.cohort` and `task.split` where it is not said.

    Functions that it names are looked for beside the file and in the current directory when they are called, and not
    before.

    Raises: SpecError that names the key, the value and the nearest known name.
    """
    table = _table_of(source)
    for key, value in pairs(sets):
        _apply(table, key, value)
    file = isinstance(source, str | Path) and source not in presets()
    for key in table.keys() - Spec.model_fields.keys():
        if known := [path for path in _keys(Spec()) if path.endswith(f".{key}")]:
            raise SpecError(f"{key}: unknown key; did you mean {known[0]!r}?")
    with reading(Path(source).resolve().parent if file else None, own):  # type: ignore[arg-type]
        if "protocol" in table:
            table["protocol"] = _sized(_from_preset(table["protocol"]), table, count)
        return Spec.parse(table)


def clients_of(task: Learning, data: str | Path | None = None) -> int:
    """How many clients a task has: as its split says, or as many as its data have owners.

    data: the data folder; the data are loaded only where nothing less tells. Raises: SpecError, DataError.
    """
    said: int | None = getattr(task.split, "clients", None)
    if said is not None:
        return said
    if task.data.many is not None:
        return task.data.many
    found = task.data.load(folder_of(data))
    if found.owner is None:
        remedy = 'use task.split = "iid" or "dirichlet"'
        raise SpecError(f"task.split = {task.split.use!r}: {found.name!r} does not say who owns a record; {remedy}")
    return len(found.owners)


def counted(data: str | Path | None = None) -> Count:
    """What counts the owners of data in this folder, for `load`."""
    return lambda task: clients_of(task, data)


def unread(source: Source, sets: Sets = ()) -> tuple[Spec, bool]:
    """A description whose data nobody loads, and whether the clients that its protocol sums were only supposed."""
    asked: list[Learning] = []

    def suppose(task: Learning) -> int:
        asked.append(task)
        return SUPPOSED

    return load(source, sets, count=suppose), bool(asked)


def is_empty(source: Source) -> bool:
    """Whether a description says nothing at all, so that all of it is defaults."""
    if isinstance(source, Spec):
        return False
    table = source if isinstance(source, Mapping) else read_table(source)
    return not set(table) - {"name"}


def _table_of(source: Source) -> dict[str, Any]:
    if isinstance(source, Spec):
        return source.plain()
    return dict(source) if isinstance(source, Mapping) else read_table(source)


def _from_preset(protocol: Any) -> Any:
    """The parts of the preset that a protocol names, changed by what else it says."""
    table = {"use": protocol} if isinstance(protocol, str) else protocol
    if not isinstance(table, Mapping) or "use" not in table:
        return protocol
    name, rest = table["use"], {key: value for key, value in table.items() if key != "use"}
    if name not in presets():
        raise SpecError(f"protocol = {name!r}: no preset has that name; {nearest(str(name), presets())}")
    parts: dict[str, Any] = dict(tomllib.loads(preset_text(name)).get("protocol", {}))
    return {**parts, **{key: _changed(parts.get(key), value) for key, value in rest.items()}}


def _changed(part: Any, change: Any) -> Any:
    """A part of a preset with some fields changed; another name is another part."""
    if not isinstance(change, Mapping) or "use" in change or part is None:
        return change
    return {**(part if isinstance(part, Mapping) else {"use": part}), **change}


def _sized(protocol: Any, table: Mapping[str, Any], count: Count | None) -> Any:
    """With room for the sum of as many clients as are invited, unless the description says for how many."""
    encode = protocol.get("encode") if isinstance(protocol, Mapping) else None
    given = {"use": encode} if isinstance(encode, str) else encode
    if not isinstance(given, Mapping) or "clients" in given:
        return protocol
    kind = Encoder.known_as(str(given.get("use")))
    if kind is None or "clients" not in kind.model_fields:
        return protocol
    return {**protocol, "encode": {**given, "clients": _invited(table, count)}}


def _invited(table: Mapping[str, Any], count: Count | None) -> int:
    """The most clients of a round, as far as the description tells."""
    cohort = Federation.parse(table.get("federation", {}), "federation").cohort
    if cohort is not None:
        return cohort
    task = Learning.parse(table.get("task", {}), "task")
    known: int | None = getattr(task.split, "clients", None) or task.data.many
    if known is None and count is None:
        raise SpecError(
            f"protocol.encode.clients: as many as task.split = {task.split.use!r} finds in the data, which are not "
            "loaded here; set task.split.clients to their number"
        )
    return known or (count(task) if count else 0)


def _apply(table: dict[str, Any], key: str, value: Any) -> None:
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
    table[last] = value


def _keys(part: Part, path: str = "") -> list[str]:
    """Every key below a part, as --set writes it."""
    found = []
    for name, value in part:
        found += _keys(value, f"{path}{name}.") if isinstance(value, Part) else [f"{path}{name}"]
    return found
