"""Finished parts of long work in a folder, so that the same work, started again, goes on where it stopped.

NAME-DIGEST.kept/    the digest is that of all that decides the results: other work has another folder
    about.json       the same in words, compared in full when the folder is taken
    PART.json        one finished part: a digest of it, then its value; whole or absent
    lock             held by the process that works here

The folder is there from when the work begins until its result is delivered; without a single finished part nothing is
left of it. `croupier audit` keeps its parts so, one for each seed and arm: `cli.audit` names the folder,
`audit.described` says what decides the results, and `audit.harness` reads and fills the shelf as a plain map.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from torch import Tensor

from croupier.core import canon
from croupier.core.files import drop_folders, links_in, make_folder, open_lock, put_whole
from croupier.errors import StoreError

ABOUT, LOCK, SUFFIX, DIGITS = "about.json", "lock", ".kept", 12
# Done, of how many, and of what.
Counted = Callable[[int, int, str], None]


def _nobody(done: int, total: int, unit: str) -> None:
    """Nobody counts."""


class FolderShelf(MutableMapping[str, Any]):
    """Finished parts by name: plain values, as JSON has them. Without a home they are kept in memory alone.

    `note` hears what a person should know; `count` hears how far the work is.
    """

    def __init__(
        self, home: Path | None = None, note: Callable[[str], None] = lambda _: None, count: Counted = _nobody
    ) -> None:
        self.home, self.note, self.count = home, note, count
        self.folder: Path | None = None
        self.total, self.unit = 0, "parts"
        self._found: dict[str, Any] = {}
        self._made: list[Path] = []
        self._lock: IO[bytes] | None = None
        self._written, self._done = 0, False

    def begin(self, name: str, about: Mapping[str, Any], parts: Sequence[str], unit: str) -> None:
        """Take the folder of this work, and read which of its parts are finished; `about` is all that decides them.

        Raises: StoreError when another process works there, or it holds other work.
        """
        self.total, self.unit = len(parts), unit
        if self.home is not None:
            text = json.dumps(about, sort_keys=True)
            folder = self.home / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}{SUFFIX}"
            try:
                self._take(folder)
                self._check(folder, json.loads(text))
                self._found = {name: value for name, value in self._read(folder) if name in parts}
            except OSError as error:
                # A disk that is full ends nothing.
                self.close()
                self.note(f"{folder}: cannot be written ({error.strerror}); what is finished is not kept if you stop")
            except BaseException:
                self.close()
                raise
            self._written = len(self._found)
            self._tell(folder, name)
        self.count(len(self._found), self.total, unit)

    def _tell(self, folder: Path, name: str) -> None:
        """What is kept of this work, or of work by the same name that is not this."""
        if self._found:
            self.note(f"going on: {self.finished} are kept in {folder}")
            return
        for other in sorted(folder.parent.glob(f"{name}-{'?' * DIGITS}{SUFFIX}")):
            if other != folder:
                changed = _differs(_about(other), _about(folder))
                self.note(f"{other} is of another audit ({changed} differs): it is not used, and may be removed")

    def _take(self, folder: Path) -> None:
        """Raises: StoreError when another process has it or it holds a link; OSError when it cannot be made."""
        while self.folder is None:
            self._made = made = make_folder(folder)
            if folder.is_symlink() or links_in(folder):
                raise StoreError(
                    f"{folder} is or holds a symbolic link, and finished parts are kept in files alone; remove the "
                    "link, or work in another directory"
                )
            lock = open_lock(folder / LOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise StoreError(
                    f"{folder}: another process is at the same work; wait for it, or work in another directory"
                ) from None
            # Whoever ends takes its folder away: a lock on a file that is gone holds nothing.
            if _same(folder / LOCK, lock):
                self.folder, self._lock, self._made = folder, lock, made
            else:
                lock.close()

    def _check(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Raises: StoreError when the folder holds other work; OSError when it cannot be written."""
        path = folder / ABOUT
        if not path.exists():
            put_whole(path, _text(about))
        elif _about(folder) != about:
            raise StoreError(
                f"{path}: is not about this work ({_differs(_about(folder), about)} differs), and parts of two are not "
                f"mixed; remove {folder}, or restore the file"
            )

    def _read(self, folder: Path) -> Iterator[tuple[str, Any]]:
        for path in sorted(folder.glob("*.json")):
            if path.name == ABOUT:
                continue
            head, _, body = path.read_bytes().partition(b"\n")
            if head.decode("ascii", "replace") == hashlib.sha256(body).hexdigest():
                yield path.stem, json.loads(body)
            else:
                self.note(f"{path} is damaged, and is done again")

    @property
    def finished(self) -> str:
        """How much of the work is done, in words."""
        return f"{self._written} of {self.total} {self.unit}"

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Keep a finished part. A disk that is full ends nothing: it is said, and the work goes on."""
        self._found[name] = value
        if self.folder is not None:
            body = _text(value)
            head = hashlib.sha256(body).hexdigest().encode() + b"\n"
            path = self.folder / f"{name}.json"
            try:
                put_whole(path, head + body)
                self._written += 1
            except OSError as error:
                self.note(f"{path}: cannot be written ({error.strerror}); free space: it is not kept if you stop")
        self.count(len(self._found), self.total, self.unit)

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @property
    def worth(self) -> bool:
        """Whether anything is kept."""
        return self._written > 0

    def drop(self) -> None:
        """The result is delivered: nothing needs to be kept any more."""
        self._done = True

    def close(self) -> None:
        """Let go of the folder; where nothing is worth keeping, take it away."""
        if self.folder is not None and self._lock is not None:
            # What is of another form than ours, or damaged, is not ours to remove.
            if self._done or not any(path.name != ABOUT for path in self.folder.glob("*.json")):
                shutil.rmtree(self.folder, ignore_errors=True)
                drop_folders(self._made)
            self._lock.close()
        else:
            drop_folders(self._made)
        self.folder, self._lock = None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def deciding(described: Mapping[str, Any], data: str, first: Tensor, seed: int, **more: Any) -> dict[str, Any]:
    """All that decides results: a description, its data and first model, the seed, and the versions that compute."""
    versions = {name: version(name) for name in ("croupier", "numpy", "torch")}
    return {
        **described, **more, "data": data, "first_model": canon.digest(first).hex(), "seed": seed, "versions": versions,
    }  # fmt: skip


def _same(path: Path, file: IO[bytes]) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(file.fileno())
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)


def _text(value: Any) -> bytes:
    # In the order that it has: tables and pages follow it.
    return (json.dumps(value, indent=1) + "\n").encode()


def _about(folder: Path) -> dict[str, Any]:
    """What a folder says it is about; nothing where that cannot be read."""
    try:
        found = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _differs(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first key that differs, with those above it."""
    key = next((key for key in sorted({*was, *now}) if was.get(key) != now.get(key)), "nothing")
    one, two = was.get(key), now.get(key)
    return f"{key}.{_differs(one, two)}" if isinstance(one, dict) and isinstance(two, dict) else key
