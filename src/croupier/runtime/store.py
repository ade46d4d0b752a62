"""A run directory: what was asked, what ran, what came out, and enough to go on after any interruption.

spec.toml         the whole description
manifest.json     versions, seed, workers, digests of the data
metrics.jsonl     one line a round; the same bytes for the same seed
ledger.jsonl      one line a round: what each client has spent, where there is local privacy
timing.jsonl      seconds and memory of the same rounds; differs from run to run
checkpoints/      the last two states, each whole or absent
views/            what chosen parties saw, if asked for
model.safetensors, summary.json    written last: a run without a summary is not whole
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from croupier.core import canon
from croupier.errors import StoreError, WireError

_MAGIC = b"croupier state 1\n"


class RunDir:
    """One run's files. Writes are whole or absent: a new file is synced, then put in place by one rename."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def open(self, resume: bool) -> None:
        """Take the directory for this process. Raises: StoreError when it is in use, unwritable or holds a run."""
        self._check_empty()
        try:
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = "" if resume else ", or choose another --out"
            raise StoreError(f"{self.path}: another process is running here; wait for it{other}") from None
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror}); choose another --out") from None
        if not resume and (self.path / "spec.toml").exists():
            self.close()
            raise StoreError(f"{self.path} holds a run already; resume it with --resume, or choose another --out")

    def _check_empty(self) -> None:
        """Raises: StoreError when the folder holds anything that is not a run's: files must not be scattered there."""
        if not self.path.is_dir():
            return
        known = ("lock", "manifest.json", "checkpoints", "spec.toml")
        if not (self.path / "spec.toml").exists() and any(
            entry.name not in known and not entry.name.endswith(".part") for entry in self.path.iterdir()
        ):
            raise StoreError(f"{self.path} holds other files and no run; choose another --out")

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def whole(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "summary.json").exists()

    def write(self, name: str, data: bytes, *, private: bool = False) -> Path:
        """Put a file in place, whole; one that holds secrets only its owner may read."""
        target = self.path / name
        draft = target.with_name(target.name + ".part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(draft, "wb", opener=_owned if private else None) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except OSError as error:
            raise StoreError(
                f"{target}: cannot be written ({error.strerror}); free space or choose another --out"
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
            with (self.path / name).open("a", encoding="utf-8") as file:
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

    def _lines(self, name: str, last: int) -> list[tuple[bytes, dict[str, Any]]]:
        path = self.path / name
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found = [(line, _parsed(line)) for line in lines]
        return [(line, value) for line, value in found if value is not None and value["round"] <= last]

    def checkpoint(self, number: int, state: Mapping[str, Any]) -> None:
        """Keep the state after a round, and the one before it in case this one is damaged later."""
        body = canon.dump(state)
        self.write(f"checkpoints/{number:06d}.state", _MAGIC + hashlib.sha256(body).digest() + body, private=True)
        for old in self._checkpoints()[:-2]:
            old.unlink(missing_ok=True)

    def latest(self) -> dict[str, Any] | None:
        """The newest whole state, or None before the first."""
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


def _owned(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value: Any = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("round"), int) else None
