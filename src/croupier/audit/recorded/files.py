"""Updates that any engine wrote down, read back: a folder of files, and a small manifest that says what they are.

Nothing that these files hold is run, none outside the folder is read, and what does not fit the network is refused
with its name, what is wrong with it, and what to do. The user's own shadow function is called, as the manifest says.
`docs/recorded-updates.md` describes the files. `audit.recorded.audited` calls `read` for a whole folder, and
`read_beside` where the rounds come from kept views (`audit.recorded.viewed`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from croupier.audit.knowledge import Knowledge
from croupier.audit.recorded.shadows import ShadowRecords, Shadows, shadow_records
from croupier.core.coins import Coins
from croupier.core.envelope import NAME
from croupier.core.part import Part
from croupier.core.update import Layout
from croupier.errors import DataError, SpecError
from croupier.learn.fit import Fit, Sgd
from croupier.learn.loss import LossName
from croupier.learn.models.network import Network
from croupier.learn.own_names import reading
from croupier.learn.tensor_files import TensorFiles

MANIFEST = "updates.toml"
Seen = Literal["named", "shuffle-model", "shuffle-layer", "shuffle-parameter", "sum"]


class Manifest(Part):
    """What a folder holds, as its `updates.toml` says.

    `files` is the pattern of each client's update, with {round} and {client}; without {client} it is that of each
    round's joint model. An update is a whole model (`form` "weights"), or its difference from the model that its round
    began with ("delta"), whose pattern is `start`. `seen` is what the audited server saw of the updates. The adversary
    knows the recipe `fit` of local training, and the loss where it is not the usual one.
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
class RecordedRound:
    """One round: models by client, or the joint model where only that was written, and the model it began with."""

    number: int
    models: Mapping[str, Tensor] = field(repr=False)
    joint: Tensor | None = field(default=None, repr=False)
    start: Tensor | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Recording:
    """All that is known of a folder: its manifest, the shadow records, the rounds and the network."""

    manifest: Manifest
    given: ShadowRecords
    rounds: tuple[RecordedRound, ...]
    clients: tuple[str, ...]
    layout: Layout
    frozen: Mapping[str, Tensor] = field(repr=False)

    def present(self, one: RecordedRound) -> tuple[str, ...]:
        """Whose updates a round is made of: everybody's where only the joint model was written."""
        return tuple(one.models) or self.clients


@dataclass(frozen=True)
class KeptRounds:
    """Rounds read from kept views: what was seen of updates in them, and what could not be read."""

    seen: Seen
    rounds: tuple[RecordedRound, ...]
    layout: Layout
    failed: tuple[str, ...] = ()


def read(folder: Path, data: Path | None = None) -> Recording:
    """What a folder holds. `data` is handed to the shadow function. Raises: SpecError, DataError."""
    manifest = _manifest(folder)
    found = _found(folder, manifest.files, "files")
    clients = tuple(sorted({who for each in found.values() for who in each} - {""}))
    given, clients, files = _opened(folder, manifest, data, clients)
    starts = _found(folder, manifest.start, "start") if manifest.start else {}
    rounds = tuple(_round(files, manifest, number, found[number], starts) for number in sorted(found))
    return Recording(manifest, given, rounds, clients, files.layout, files.frozen)


def read_beside(folder: Path, kept: KeptRounds, task: Mapping[str, Any], data: Path | None = None) -> Recording:
    """As `read`, for rounds that are known already: of the folder only the manifest's shadow function is needed.

    `task` is the network and the recipe, which the manifest need not repeat. Raises: SpecError, DataError.
    """
    table = _table(folder)
    for key in ("files", "form", "start", "seen"):
        if key in table:
            raise SpecError(f"{folder / MANIFEST}: {key}: the views say it; leave it out")
    manifest = _parsed(folder, {**task, **table, "files": "{round}", "seen": kept.seen})
    clients = tuple(sorted({who for one in kept.rounds for who in one.models}))
    given, clients, files = _opened(folder, manifest, data, clients)
    if files.layout != kept.layout:
        raise DataError(f"{folder / MANIFEST}: model: it is another network than that of the views; leave it out")
    return Recording(manifest, given, kept.rounds, clients, files.layout, files.frozen)


def _opened(
    folder: Path, manifest: Manifest, data: Path | None, clients: tuple[str, ...]
) -> tuple[ShadowRecords, tuple[str, ...], TensorFiles]:
    """What is known beside the updates, of which clients, and how files of the network are read."""
    given = shadow_records(manifest.shadow, data, clients)
    clients = clients or tuple(sorted(given.shadows))
    if len(clients) < 2:
        raise DataError(f"{folder}: {len(clients)} client; whose record it is can be asked of two or more; record more")
    with Coins.from_seed(0).child("recorded").ambient():
        module = Knowledge(
            clients, manifest.model.plain(), manifest.fit.plain(), given.classes, given.asked[clients[0]], (),
            given.asked[clients[0]],
        ).module  # fmt: skip
    return given, clients, TensorFiles(folder, module)


def _table(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(f"{path}: cannot be read ({why}); write one as docs/recorded-updates.md says") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML: {error}") from None


def _parsed(folder: Path, table: Mapping[str, Any]) -> Manifest:
    for key in ("model", "files", "shadow"):
        if key not in table:
            raise SpecError(f"{folder / MANIFEST}: {key} is not set; write it as docs/recorded-updates.md says")
    with reading(folder.resolve()):
        return Manifest.parse(dict(table), MANIFEST)


def _manifest(folder: Path) -> Manifest:
    path, made = folder / MANIFEST, _parsed(folder, _table(folder))
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
    for path in sorted(folder.rglob("*")):
        match = matching(path.relative_to(folder).as_posix())
        if match is None or path.is_dir():
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
    files: TensorFiles, manifest: Manifest, number: int, found: Mapping[str, Path],
    starts: Mapping[int, Mapping[str, Path]],
) -> RecordedRound:  # fmt: skip
    if manifest.start and number not in starts:
        raise DataError(
            f"{files.folder}: start = {manifest.start!r} has no file of round {number}; add it, or remove start"
        )
    start = files.vector(starts[number][""]) if manifest.start else None
    vectors = {who: files.vector(path) for who, path in found.items()}
    if manifest.form == "delta" and start is not None:
        vectors = {who: start + vector for who, vector in vectors.items()}
    if "" in vectors:
        return RecordedRound(number, {}, vectors[""], start)
    if len(vectors) < 2:
        only = next(iter(found.values()))
        raise DataError(f"{only}: is all there is of round {number}; record two clients or more, or move it away")
    return RecordedRound(number, vectors, None, start)
