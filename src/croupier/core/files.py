"""Files that are whole or absent: synced under another name, then put in place by one rename.

A program may be killed at any moment, and a folder may come from a stranger. So a file is written under another name,
synced and renamed. What is opened to be written is never a symbolic link, and `links_in` finds the links in a folder
for those who refuse them. Run directories (`engine.store`), kept parts of audits (`engine.shelf`), reports and results
of commands (`audit.report.result`, `cli.options`) and files of services (`service.home`, `service.results`) are written
by this; logs that only grow are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from croupier.errors import StoreError

# What a file's name ends in until the file is whole.
DRAFT = ".part"


def write_whole(path: Path, data: bytes, remedy: str) -> Path:
    """Put a file in place, and its folder; a failure leaves what was there. Raises: StoreError with the remedy."""
    made: list[Path] = []
    try:
        made = make_folder(path.parent)
        put_whole(path, data)
    except OSError as error:
        drop_folders(made)
        raise StoreError(f"{path}: cannot be written ({error.strerror}); {remedy}") from None
    return path


def put_whole(path: Path, data: bytes) -> None:
    """Put a file into a folder that is there. Raises: OSError; unless the last sync alone failed, the old one stays."""
    draft = path.with_name(path.name + DRAFT)
    try:
        with open_draft(draft) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def open_draft(draft: Path, mode: int = 0o666) -> IO[bytes]:
    """A new file to write; what lay there under its name, a link too, goes first. Raises: OSError."""
    draft.unlink(missing_ok=True)
    return open(draft, "xb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, mode))


def open_lock(path: Path) -> IO[bytes]:
    """A file to lock, made where there is none: never emptied, and never found through a link. Raises: OSError."""
    return open(path, "ab", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666))


def links_in(folder: Path, inner: Iterable[str] = ()) -> list[Path]:
    """Symbolic links in a folder and in those of its folders that `inner` names, no deeper."""
    found = sorted(one for one in folder.iterdir() if one.is_symlink()) if folder.is_dir() else []
    for one in (folder / name for name in inner):
        found += [] if one.is_symlink() else links_in(one)
    return found


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those around it. Returns those that were not there before, outer first. Raises: OSError."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def drop_folders(made: list[Path]) -> None:
    """Take folders away again, the inner ones first; what somebody put a file into stays."""
    for one in reversed(made):
        with suppress(OSError):
            one.rmdir()


def sync_folder(folder: Path) -> None:
    """Sync a folder itself, because the names in it, too, must outlive a power cut. Raises: OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
