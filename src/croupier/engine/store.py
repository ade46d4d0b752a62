"""A run directory: what was asked, what ran, what came out, and enough to go on after any interruption.

spec.toml         the whole description
manifest.json     coins, seed, versions, workers, digests of description, data and first model
metrics.jsonl     one line a round; the same bytes for the same seed
noted.jsonl       one line a round: what clients count for themselves and tell nobody
sent.jsonl        digests of what left each party, written before it leaves; it only grows
releases.jsonl    every release with a privacy cost, written before it leaves; it only grows
ledger.jsonl      one line a round: what each client has spent, where there is local privacy; it only grows
timing.jsonl      seconds and memory of the same rounds; differs from run to run
digests.jsonl     digests of all parties' views, one line a round, if asked for
checkpoints/      the last two states, each whole or absent
views/            what chosen parties saw, if asked for
lost.json         only where a round failed whose updates must not be summed again: such a run is not resumed
model.safetensors, summary.json    written last: a run without a summary is not whole

What holds secrets (`SECRET`: coins, keys, memories, updates without noise, clients' own counts) only its owner may
read, from its first byte on. `engine.job.run` names the directory, `engine.job.job` writes it, `engine.job.resume` goes
on with it; sent.jsonl and releases.jsonl are written by `engine.journal`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from croupier.core import canon
from croupier.core.files import drop_folders, links_in, make_folder, open_draft, open_lock
from croupier.errors import StoreError, WireError, option

_MAGIC = b"croupier state 1\n"
# Files and folders that nobody but their owner may read.
NOTED = "noted.jsonl"
FOLDERS = ("checkpoints", "views")
SECRET = frozenset({"manifest.json", *FOLDERS, NOTED})


class RunDir:
    """One run's files. Each is whole or absent, synced and put in place by one rename; but logs grow line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._made: list[Path] = []
        self._before: set[Path] = set()

    def open(self, resume: bool) -> None:
        """Take the directory for this process. Raises: StoreError when it is in use, unwritable or holds a run."""
        self.check_links()
        self._check_empty()
        try:
            self._made = make_folder(self.path)
            self._before = set(self.path.iterdir())
            _own(self.path / "checkpoints")
            self._lock = open_lock(self.path / "lock")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = "" if resume else f", or choose another {option('out')}"
            raise StoreError(f"{self.path}: another process is running here; wait for it{other}") from None
        except OSError as error:
            other = f"choose another {option('out')}"
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}); {other}") from None
        if not resume and (self.path / "spec.toml").exists():
            self.close()
            way = f"resume it with {option('resume', 'croupier.resume()')}, or choose another {option('out')}"
            raise StoreError(f"{self.path} holds a run already; {way}")

    def check_links(self) -> None:
        """Raises: StoreError when the directory holds a link: a run makes none, and would write where it leads.

        The directory itself may be one: whoever names it has chosen it.
        """
        try:
            found = links_in(self.path, FOLDERS)
        except OSError as error:
            other = f"choose another {option('out')}"
            raise StoreError(f"{self.path}: cannot be read ({error.strerror}); {other}") from None
        if found:
            raise StoreError(
                f"{found[0]} is a symbolic link, and a run directory holds none: files elsewhere would be written "
                f"through it; put the file itself there, or choose another {option('out')}"
            )

    def _check_empty(self) -> None:
        """Raises: StoreError when the folder holds anything that is not a run's: files must not be scattered there."""
        if not self.path.is_dir():
            return
        known = ("lock", "manifest.json", "checkpoints", "spec.toml", "sent.jsonl", "releases.jsonl")
        if not (self.path / "spec.toml").exists() and any(
            entry.name not in known and not entry.name.endswith(".part") for entry in self.path.iterdir()
        ):
            raise StoreError(f"{self.path} holds other files and no run; choose another {option('out')}")

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def discard(self) -> None:
        """Take away a run that gave nothing, and the folders that were made for it; what was there before stays."""
        for entry in set(self.path.iterdir()) - self._before:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        drop_folders(self._made)

    def write(self, name: str, data: bytes, *, private: bool = False) -> Path:
        """Put a file in place, whole; one that holds secrets only its owner may read."""
        target = self.path / name
        draft = target.with_name(target.name + ".part")
        secret = private or _is_secret(name)
        try:
            (_own if secret and target.parent != self.path else _made)(target.parent)
            # A draft that a crash left may be open to others, or opened by them: a new one takes its place.
            with open_draft(draft, 0o600 if secret else 0o666) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            raise StoreError(
                f"{target}: cannot be written ({error.strerror}); free space or choose another {option('out')}"
            ) from None
        return target

    def write_json(self, name: str, value: Mapping[str, Any], *, private: bool = False) -> None:
        """Put a JSON file in place, whole."""
        self.write(
            name, (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode(), private=private
        )

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the run."""
        try:
            value: dict[str, Any] = json.loads((self.path / name).read_text("utf-8"))
        except (OSError, ValueError):
            raise StoreError(f"{self.path / name} is missing or damaged: this is no run that can be resumed") from None
        return value

    def append(self, name: str, value: Mapping[str, Any]) -> None:
        """Add one line to a log."""
        try:
            opener = _owned if _is_secret(name) else _unlinked
            with open(self.path / name, "a", encoding="utf-8", opener=opener) as file:
                file.write(json.dumps(value, sort_keys=True, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(
                f"{self.path / name}: cannot be written ({error.strerror}); free space and resume"
            ) from None

    def read(self, name: str, last: int) -> list[dict[str, Any]]:
        """The lines of a log up to a round; what is cut short or no line of ours is left out."""
        return [value for _, value in self._lines(name, last)]

    def cut(self, name: str, last: int) -> None:
        """Drop the lines of a log that `read` would leave out."""
        self.write(name, b"".join(line for line, _ in self._lines(name, last)))

    def mend(self, name: str) -> None:
        """Take off a last line that a crash cut short, and nothing else: for a log that only grows."""
        path = self.path / name
        data = path.read_bytes() if path.exists() else b""
        if (whole := data.rfind(b"\n") + 1) < len(data):
            os.truncate(path, whole)

    def _lines(self, name: str, last: int) -> list[tuple[bytes, dict[str, Any]]]:
        path = self.path / name
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found = [(line, _parsed(line)) for line in lines]
        return [(line, value) for line, value in found if value is not None and value["round"] <= last]

    def checkpoint(self, number: int, state: Mapping[str, Any]) -> None:
        """Keep the state after a round, and the one before it in case this one is damaged later."""
        body = canon.dump(state)
        self.write(f"checkpoints/{number:06d}.state", _MAGIC + hashlib.sha256(body).digest() + body, private=True)
        self._forget_old()

    def _forget_old(self) -> None:
        for old in self._checkpoints()[:-2]:
            old.unlink(missing_ok=True)

    def latest(self) -> dict[str, Any] | None:
        """The newest whole state, or None before the first."""
        # A kill may have come after one was written, and before the oldest went.
        self._forget_old()
        for path in reversed(self._checkpoints()):
            data = path.read_bytes()
            head, body = data[: len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
            if head == _MAGIC + hashlib.sha256(body).digest():
                try:
                    state: dict[str, Any] = canon.load(body)
                except WireError:
                    continue
                return state
        return None

    @property
    def damaged(self) -> bool:
        """Whether there are checkpoints though none is whole."""
        return bool(self._checkpoints()) and self.latest() is None

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("*.state"))


def _is_secret(name: str) -> bool:
    return name.partition("/")[0] in SECRET


def _made(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _own(folder: Path) -> None:
    """A folder for its owner alone; one that others could enter is closed to them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _owned(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value: Any = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("round"), int) else None
