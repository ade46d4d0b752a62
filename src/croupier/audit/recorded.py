"""Updates that any engine wrote down, read back: a folder of files, and a small manifest that says what they are.

Files come from anywhere. Nothing that they hold is run, nothing outside the folder is read, and what does not fit the
network is refused with its name, what is wrong with it, and what to do. `docs/recorded-updates.md` describes them.
"""

from __future__ import annotations

import os
import pickle
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from croupier.audit.knowledge import Knowledge, Sample
from croupier.core.coins import Coins
from croupier.core.part import Part
from croupier.core.update import Layout, check_vector
from croupier.core.wire import NAME
from croupier.errors import DataError, RangeError, SpecError
from croupier.learn.fit import Fit, Sgd
from croupier.learn.flat import frozen_of, layout_of
from croupier.learn.loss import LossName
from croupier.learn.models import Network
from croupier.learn.own import Importable, call, reading

MANIFEST = "updates.toml"
Seen = Literal["named", "shuffle-model", "shuffle-layer", "shuffle-parameter", "sum"]
# What a shadow function gives, by client.
GIVES = "{'shadows': {client: (inputs, labels)}, 'asked': {...}, and if you like 'members': {...}, 'others': {...}}"
# So many records of each client are asked about at most.
RECORDS = 100
# A file may hold so many bytes for each number of the network, and some more for names.
_ROOM, _MORE = 16, 1 << 20
_REMEDY = "save a state dict by safetensors.torch.save_file, numpy.savez or torch.save, and nothing else"


class Shadows(Part):
    """Where the adversary's knowledge comes from, and the truth that it is not given."""

    verb = "shadow"


class OwnShadows(Shadows, use="own"):
    """What `make` gives when called with the data folder and the names of the clients."""

    make: Importable


class Manifest(Part):
    """What a folder holds.

    `files` is where each client's update lies, with {round} and {client}; without {client}, where the joint model of a
    round does. An update is a whole model (`form` "weights"), or what it differs in from the model `start` of its round
    ("delta"). `seen` is what the audited server saw of the updates. `fit` is the recipe of local training, which the
    adversary knows.
    """

    model: Network
    files: str
    shadow: Shadows
    form: Literal["weights", "delta"] = "weights"
    start: str = ""
    seen: Seen = "named"
    fit: Fit = Sgd(lr=0.1, epochs=5, batch=32)
    loss: LossName = None


@dataclass(frozen=True)
class Told:
    """What the shadow function gave: samples by client, of its distribution, that it trained on, and suspects."""

    shadows: Mapping[str, Sample] = field(repr=False)
    asked: Mapping[str, Sample] = field(repr=False)
    members: Mapping[str, Sample] = field(repr=False)
    others: Mapping[str, Sample] = field(repr=False)

    @property
    def classes(self) -> int:
        """One more than the largest label; none where quantities are learnt."""
        labels = [y for part in (self.shadows, self.asked, self.members, self.others) for _, y in part.values()]
        return 0 if labels[0].is_floating_point() else 1 + max(int(y.max()) for y in labels)


@dataclass(frozen=True)
class Recorded:
    """A round: whole models by client, the joint model where only that was written, and the model it began with."""

    number: int
    models: Mapping[str, Tensor] = field(repr=False)
    joint: Tensor | None = field(default=None, repr=False)
    start: Tensor | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Recording:
    """All of a folder."""

    manifest: Manifest
    told: Told
    rounds: tuple[Recorded, ...]
    clients: tuple[str, ...]
    layout: Layout
    frozen: Mapping[str, Tensor] = field(repr=False)

    def present(self, one: Recorded) -> tuple[str, ...]:
        """Whose updates a round is made of: everybody's where only the joint model was written."""
        return tuple(one.models) or self.clients

    def knowledge(self, present: tuple[str, ...], coins: Coins) -> tuple[Knowledge, Tensor, Tensor, Tensor]:
        """What the adversary knows of some clients; and whose each record is, whose each suspect, and if a member.

        As many records of each client are asked about, and in a random order: neither must tell whose they are.
        """
        count = min(RECORDS, *(len(self.told.asked[who][1]) for who in present))
        records = [_some(self.told.asked[who], coins.child("records", who), count) for who in present]
        owners, shown = _dealt([count] * len(present), coins.child("order"))
        able = [place for place, who in enumerate(present) if who in self.told.members]
        held = [part[present[place]] for place in able for part in (self.told.members, self.told.others)]
        whose, mixed = _dealt([len(y) for _, y in held], coins.child("mixed"))
        none = (records[0][0][:0], records[0][1][:0])
        knowledge = Knowledge(
            present, self.manifest.model.plain(), self.manifest.fit.plain(), self.told.classes, _joined(records, shown),
            tuple(self.told.shadows[who] for who in present), _joined(held, mixed) if held else none, self.frozen,
            {"loss": self.manifest.loss or ("classify" if self.told.classes else "forecast")},
        )  # fmt: skip
        return knowledge, owners, torch.tensor(able, dtype=torch.int64)[whose // 2], whose % 2 == 0


def _some(sample: Sample, coins: Coins, count: int) -> Sample:
    order = torch.from_numpy(coins.sampler().permutation(len(sample[1])))[:count]
    return sample[0][order], sample[1][order]


def _dealt(counts: list[int], coins: Coins) -> tuple[Tensor, Tensor]:
    """Of which part each record is once all are mixed, and the order that mixes them."""
    order = torch.from_numpy(coins.sampler().permutation(sum(counts)))
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.int64))[order], order


def _joined(parts: list[Sample], order: Tensor) -> Sample:
    return torch.cat([x for x, _ in parts])[order], torch.cat([y for _, y in parts])[order]


def read(folder: Path, data: Path | None = None) -> Recording:
    """What a folder holds. `data` is handed to the shadow function. Raises: SpecError, DataError."""
    manifest = _manifest(folder)
    found = _found(folder, manifest.files, "files")
    clients = tuple(sorted({who for each in found.values() for who in each} - {""}))
    told = _told(manifest, data, clients)
    clients = clients or tuple(sorted(told.shadows))
    if len(clients) < 2:
        raise DataError(f"{folder}: {len(clients)} client; whose record it is can be asked of two or more; record more")
    with Coins.from_seed(0).child("recorded").ambient():
        module = Knowledge(
            clients, manifest.model.plain(), manifest.fit.plain(), told.classes, told.asked[clients[0]], (),
            told.asked[clients[0]],
        ).module  # fmt: skip
    files = Files(folder, module)
    starts = _found(folder, manifest.start, "start") if manifest.start else {}
    rounds = tuple(_round(files, manifest, number, found[number], starts) for number in sorted(found))
    return Recording(manifest, told, rounds, clients, files.layout, files.frozen)


def _manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(f"{path}: cannot be read ({why}); write one as docs/recorded-updates.md says") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML: {error}") from None
    for key in ("model", "files", "shadow"):
        if key not in table:
            raise SpecError(f"{path}: {key} is not set; write it as docs/recorded-updates.md says")
    with reading(folder.resolve()):
        made = Manifest.parse(table, MANIFEST)
    if made.form == "delta" and not made.start:
        raise SpecError(f"{path}: form = 'delta' says what models differ in, not from which; set start")
    if "{client}" not in made.files and made.seen != "sum":
        raise SpecError(
            f"{path}: files = {made.files!r} has no {{client}}: joint models are what is seen of a sum; set seen = "
            "'sum', or name each client's file"
        )
    return made


def _found(folder: Path, pattern: str, key: str) -> dict[int, dict[str, Path]]:
    """Files by round and client, the client "" where a pattern has none. Raises: SpecError, DataError."""
    matching, root = _matching(pattern, key), folder.resolve()
    found: dict[int, dict[str, Path]] = {}
    for path in _walk(folder):
        match = matching(path.relative_to(folder).as_posix())
        if match is None:
            continue
        if not path.resolve().is_relative_to(root) or not path.is_file():
            raise DataError(f"{path}: is no file, or a link out of {folder}; put the file itself there")
        number, who = int(match["round"]), match.groupdict().get("client", "")
        if who in found.setdefault(number, {}):
            raise DataError(f"{path}: {found[number][who].name} is of round {number}, too; keep one of them")
        if len(who.encode()) > NAME:
            raise DataError(f"{path}: a client's name has {NAME} bytes at most; rename the file")
        found[number][who] = path
    if not found:
        raise DataError(f"{folder}: {key} = {pattern!r} fits no file; put files there, or mend it in {MANIFEST}")
    return {number: dict(sorted(each.items())) for number, each in found.items()}


def _walk(folder: Path) -> Iterator[Path]:
    for at, inner, names in os.walk(folder):
        inner.sort()
        yield from (Path(at) / name for name in sorted(names))


def _matching(pattern: str, key: str) -> Callable[[str], re.Match[str] | None]:
    fields = re.findall(r"\{([^{}]*)\}", pattern)
    allowed = ["round", "client"] if key == "files" else ["round"]
    if wrong := [name for name in fields if name not in allowed or fields.count(name) > 1] or (
        ["round"] if "round" not in fields else []
    ):
        raise SpecError(
            f"{MANIFEST}: {key} = {pattern!r}: {{{wrong[0]}}} must stand there once, or not at all; use "
            f"{' and '.join(f'{{{name}}}' for name in allowed)}, as in round-{{round}}/{{client}}.safetensors"
        )
    if pattern.startswith(("/", "~")) or ".." in pattern.split("/") or "\\" in pattern:
        raise SpecError(f"{MANIFEST}: {key} = {pattern!r}: leads out of the folder; name files below it, with /")
    said = {"round": r"(?P<round>[0-9]{1,9})", "client": r"(?P<client>[^/]+)"}
    parts = re.split(r"\{(round|client)\}", pattern)
    whole = "".join(said[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile(whole).fullmatch


def _round(
    files: Files, manifest: Manifest, number: int, found: Mapping[str, Path], starts: Mapping[int, Mapping[str, Path]]
) -> Recorded:
    if manifest.start and number not in starts:
        raise DataError(
            f"{files.folder}: start = {manifest.start!r} has no file of round {number}; add it, or remove start"
        )
    start = files.vector(starts[number][""]) if manifest.start else None
    vectors = {who: files.vector(path) for who, path in found.items()}
    if manifest.form == "delta" and start is not None:
        vectors = {who: start + vector for who, vector in vectors.items()}
    if "" in vectors:
        return Recorded(number, {}, vectors[""], start)
    if len(vectors) < 2:
        only = next(iter(found.values()))
        raise DataError(f"{only}: is all there is of round {number}; record two clients or more, or move it away")
    return Recorded(number, vectors, None, start)


class Files:
    """Files of one network's numbers: each is read once, and checked."""

    def __init__(self, folder: Path, module: nn.Module) -> None:
        self.folder, self.layout, self.frozen = folder, layout_of(module), frozen_of(module)
        self._whole = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        self._learnt = [name for name, _ in module.named_parameters()]
        self._most = _ROOM * sum(value.numel() for value in module.state_dict().values()) + _MORE

    def vector(self, path: Path) -> Tensor:
        """One file as a vector. Raises: DataError that says what does not fit."""
        tensors = self._named(path, self._load(path))
        for part in self.layout.carried:
            if part.name not in tensors:
                raise DataError(f"{path}: {part.name} is missing; {self._wanted()}")
        for name, value in tensors.items():
            if name not in self._whole:
                raise DataError(f"{path}: {name} is nothing of the network's; {self._wanted()}")
            if tuple(value.shape) != self._whole[name]:
                raise DataError(f"{path}: {name} has shape {tuple(value.shape)}, not {self._whole[name]}; mend model")
            if value.is_complex() or value.dtype == torch.bool:
                raise DataError(f"{path}: {name} holds {str(value.dtype).removeprefix('torch.')}; save it as float32")
        self.frozen |= {name: tensors[name].float() for name in self.frozen if name in tensors}
        vector = self.layout.flatten(tensors)
        try:
            check_vector(vector, self.layout.size, str(path))
        except RangeError as error:
            raise DataError(f"{error}; leave such updates out of the folder, as an aggregator would") from None
        return vector

    def _wanted(self) -> str:
        first = ", ".join(part.name for part in self.layout.carried[:3])
        return f"name tensors as model's state dict does ({first}, ...), or mend model in {MANIFEST}"

    def _load(self, path: Path) -> dict[str, Tensor]:
        readers: dict[str, Callable[[Path], dict[str, Tensor]]]
        readers = {".safetensors": load_file, ".npz": _npz, ".pt": _torch, ".pth": _torch}
        if path.suffix not in readers:
            known = ", ".join(readers)
            raise DataError(f"{path}: files of {path.suffix or 'no suffix'} are not read, but {known}; {_REMEDY}")
        try:
            if (size := _unpacked(path)) > self._most:
                raise DataError(f"{path}: holds {size:,} bytes, far more than the network has numbers; {_REMEDY}")
            return readers[path.suffix](path)
        except (SafetensorError, zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError) as error:
            raise DataError(f"{path}: cannot be read as {path.suffix} ({_line(error)}); {_REMEDY}") from None

    def _named(self, path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors by name; a list of arrays (arr_0, arr_1, ...) has the order of the state dict, or of parameters."""
        if not tensors or any(not re.fullmatch(r"arr_\d+", name) for name in tensors):
            return tensors
        count = len(tensors)
        names = next((each for each in (list(self._whole), self._learnt) if len(each) == count), None)
        if names is None or set(tensors) != {f"arr_{at}" for at in range(count)}:
            raise DataError(
                f"{path}: {count} arrays without names, and the network's state dict has {len(self._whole)}; save all "
                "of them in its order, or by name"
            )
        return {name: tensors[f"arr_{at}"] for at, name in enumerate(names)}


def _unpacked(path: Path) -> int:
    """How many bytes reading it makes: what is packed may be small."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            return sum(one.file_size for one in packed.infolist())
    return path.stat().st_size


def _npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    if odd := [name for name, array in arrays.items() if array.dtype.kind not in "biufc"]:
        raise DataError(f"{path}: {odd[0]} holds {arrays[odd[0]].dtype}, which is no number; {_REMEDY}")
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _torch(path: Path) -> dict[str, Tensor]:
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, ModuleNotFoundError, AttributeError):
        raise DataError(f"{path}: holds Python objects, which run code when they are read; {_REMEDY}") from None
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{path}: holds {type(found).__name__}, and no table of tensors by name; {_REMEDY}")
    return {str(name): value.detach() for name, value in found.items()}


def _line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:120]


def _told(manifest: Manifest, data: Path | None, clients: tuple[str, ...]) -> Told:
    """What the shadow function gives, checked. Raises: SpecError, OwnError, DataError."""
    if not isinstance(manifest.shadow, OwnShadows):
        raise SpecError(f"{MANIFEST}: shadow = {manifest.shadow.use!r}: use 'own' with make = 'module:function'")
    make = manifest.shadow.make
    given = call("shadow.make", make, data, clients, takes="folder, clients")
    parts = Told.__dataclass_fields__
    if not isinstance(given, Mapping) or not {"shadows", "asked"} <= set(given) <= set(parts):
        raise DataError(f"shadow.make = {str(make)!r}: it gave {type(given).__name__}; return {GIVES}")
    held = {name: _samples(f"shadow.make = {str(make)!r}: {name}", given.get(name, {})) for name in parts}
    wanted = set(clients) or set(held["shadows"])
    for name in ("shadows", "asked"):
        if lacking := sorted(wanted - set(held[name])):
            raise DataError(
                f"shadow.make = {str(make)!r}: {name} has nothing of {lacking[0]!r}, whose updates were recorded; give "
                "it records, or move its files away"
            )
    if set(held["members"]) != set(held["others"]):
        odd = min(set(held["members"]) ^ set(held["others"]))
        raise DataError(f"shadow.make = {str(make)!r}: members and others both need records of {odd!r}; give both")
    _check_alike(str(make), held)
    return Told(**held)


def _samples(at: str, given: Any) -> dict[str, Sample]:
    if not isinstance(given, Mapping):
        raise DataError(f"{at} is {type(given).__name__}; return {GIVES}")
    return {str(who): _sample(f"{at} of {str(who)!r}", pair) for who, pair in given.items()}


def _sample(at: str, pair: Any) -> Sample:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{at} is no pair; give (inputs, labels)")
    try:
        x, y = (torch.as_tensor(np.asarray(part) if not isinstance(part, Tensor) else part) for part in pair)
    except (TypeError, ValueError) as error:
        raise DataError(f"{at} is no numbers ({_line(error)}); give arrays") from None
    if not x.ndim or not y.ndim or len(x) != len(y) or not len(y):
        raise DataError(f"{at} has inputs of shape {tuple(x.shape)} and labels {tuple(y.shape)}; give one for each")
    x = x.float() if x.is_floating_point() else x.long()
    y = y.float().reshape(len(y), -1) if y.is_floating_point() else y.long().reshape(-1)
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise DataError(f"{at} has values that are NaN or infinite; clean it first")
    if len(x) != len(y) or (not y.is_floating_point() and int(y.min()) < 0):
        raise DataError(f"{at} has labels that are no classes; count them from 0, one for each input")
    return x, y


def _check_alike(make: str, held: Mapping[str, Mapping[str, Sample]]) -> None:
    kinds = {
        (tuple(x.shape[1:]), x.dtype, tuple(y.shape[1:]), y.dtype): f"{name} of {who!r}"
        for name, part in held.items()
        for who, (x, y) in part.items()
    }
    if len(kinds) > 1:
        (first, one), (second, two) = list(kinds.items())[:2]
        raise DataError(
            f"shadow.make = {make!r}: {one} has inputs and labels of {first}, {two} of {second}; give all alike"
        )
