"""One SQLite file with one writer, and large bodies as sealed files beside it: what a party's store rests on.

A write is answered when it is on disk (WAL, full synchronisation); writes that wait together are committed together.
Bodies are sealed under keys of their attempt, so that erasing 32 bytes makes all of them unreadable. There are two: the
attempt's own for what came and for steps (`own_keys`), and one for what is held for others (`attempts.vault`).
`service.store` says when each is erased. The database overwrites what it deletes, and its log is emptied when an
attempt ends and when the store is opened. Where another process reads the database just then, or this one is killed
between both, the log keeps the keys until the next of these moments. Copies that a disk or a file system makes of the
database are beyond it.

`service.store` derives from `Database` and says what is kept. `service.player` and `service.seated` wait for their
writes with `on_disk`.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.core.files import sync_folder
from croupier.errors import CroupierError, StoreError

T = TypeVar("T")
# A step of a flow: its number, what it was, and what must be known to repeat it.
Step = tuple[int, str, bytes]
# Larger bodies lie in files of their own: a value of the database ends at 1 GB, and is copied whole.
LARGE = 1 << 16
# How a step is marked whose value is the name of such a file, and what lists these names.
_IN_FILE = "file:"
STEP_FILES = f"SELECT CAST(value AS TEXT) FROM steps WHERE substr(what, 1, {len(_IN_FILE)})='{_IN_FILE}'"
# So many writes are committed together at most.
_TOGETHER = 256
_TABLES = """
CREATE TABLE IF NOT EXISTS attempts(
    key BLOB PRIMARY KEY, number INT, what TEXT, run BLOB, round INT, attempt INT, notice BLOB, coins BLOB, memory BLOB,
    vault BLOB, opened REAL, state TEXT);
CREATE TABLE IF NOT EXISTS letters(
    key BLOB, source TEXT, kind TEXT, digest BLOB, header BLOB, body BLOB, file TEXT, counted INT,
    PRIMARY KEY(key, source, kind));
CREATE TABLE IF NOT EXISTS sent(
    key BLOB, target TEXT, kind TEXT, digest BLOB, header BLOB, PRIMARY KEY(key, target, kind));
CREATE TABLE IF NOT EXISTS held(key BLOB, digest BLOB, body BLOB, file TEXT, PRIMARY KEY(key, digest));
CREATE TABLE IF NOT EXISTS steps(key BLOB, step INT, what TEXT, value BLOB, PRIMARY KEY(key, step));
CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS own_keys(key BLOB PRIMARY KEY, vault BLOB);
"""
# Keys under which nothing is held any more; an open attempt may still have something to hold.
_ERASE_IDLE = (
    "UPDATE attempts SET vault=NULL WHERE vault IS NOT NULL AND state<>'open' AND key NOT IN (SELECT key FROM held)"
)
# Stores of versions that had one key for everything: an attempt that lies open goes on under it, and those of attempts
# that ended are erased.
_ADOPT = f"""
INSERT OR IGNORE INTO own_keys SELECT key, vault FROM attempts WHERE state='open' AND vault IS NOT NULL;
DELETE FROM own_keys WHERE key NOT IN (SELECT key FROM attempts WHERE state='open');
{_ERASE_IDLE};
PRAGMA wal_checkpoint(TRUNCATE);
"""


@dataclass
class _Job:
    run: Callable[[sqlite3.Connection], Any]
    done: Future[Any]
    # Not in a transaction, nor together with others.
    alone: bool = False


class Database:
    """The file and the folder. Reads may be made from any thread; writes go through one that commits them in groups.

    Without `flush` what is written outlives the process and not the machine: for a folder that is thrown away.
    """

    def __init__(self, folder: Path, flush: bool = True) -> None:
        self.folder, self.flush = folder, flush
        (folder / "bodies").mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "store.db"
        path.touch(mode=0o600)
        self._read = self._connect(path)
        self._write = self._connect(path, _ADOPT)
        self._lock, self._gate = threading.Lock(), threading.Lock()
        self._closed = False
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        # By attempt, and whether it is the one for what is held.
        self._vaults: dict[tuple[bytes, bool], AESGCM] = {}
        self._sweep()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def _connect(self, path: Path, first: str = "") -> sqlite3.Connection:
        try:
            made = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            made.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous={'FULL' if self.flush else 'OFF'}; "
                f"PRAGMA secure_delete=ON; {_TABLES} {first}"
            )
        except sqlite3.Error as error:
            raise StoreError(
                f"{path}: cannot be used as a store ({error}); restore it, or enrol this party anew"
            ) from None
        return made

    def _sweep(self) -> None:
        """Remove bodies that a crash left behind before the database could name them."""
        lists = ("SELECT file FROM letters", "SELECT file FROM held", STEP_FILES)
        named = {row[0] for each in lists for row in self._rows(each)}
        for path in (self.folder / "bodies").iterdir():
            if path.name not in named:
                path.unlink()

    def close(self) -> None:
        """Finish what was asked for, and let go of the file; whoever asks for more is refused."""
        with self._gate:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()
        # A thread may still be reading for a call that was cut off.
        with self._lock:
            self._read.close()
        self._write.close()

    def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction that is on disk when this returns. Raises: StoreError, or what `job` raises."""
        return self.begin_write(job).result()

    def begin_write(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Ask for a write, which is on disk when the future is done; writes are done in the order they are asked for.

        Raises: StoreError when the store is closed.
        """
        return self._ask(_Job(job, Future()))

    def _ask(self, job: _Job) -> Future[Any]:
        # Nobody who stops waiting for it takes it back.
        job.done.set_running_or_notify_cancel()
        with self._gate:
            if self._closed:
                raise StoreError(f"{self.folder}: the store is closed")
            self._jobs.put(job)
        return job.done

    def checkpoint(self) -> None:
        """Move what is written into the file and empty the log, so that nothing that was erased stays in it."""
        with suppress(sqlite3.Error, StoreError):
            empty = "PRAGMA wal_checkpoint(TRUNCATE)"
            self._ask(_Job(lambda db: db.execute(empty).fetchall(), Future(), alone=True)).result()

    def _work(self) -> None:
        """Commit together what waits together."""
        group: list[_Job] = []
        while True:
            job = self._jobs.get()
            if job is not None and not job.alone:
                group.append(job)
                if len(group) < _TOGETHER and not self._jobs.empty():
                    continue
            if group:
                self._commit(group)
                group = []
            if job is None:
                return
            if job.alone:
                self._do_alone(job)

    def _do_alone(self, job: _Job) -> None:
        try:
            job.done.set_result(job.run(self._write))
        except sqlite3.Error as error:
            job.done.set_exception(error)

    def _commit(self, jobs: list[_Job]) -> None:
        ended: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            self._write.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._write.execute("SAVEPOINT job")
                try:
                    found = job.run(self._write)
                    # A cursor dies here, in the thread of its connection: elsewhere it would disturb what is written.
                    ended.append((job.done, None if isinstance(found, sqlite3.Cursor) else found, None))
                    del found
                except CroupierError as error:
                    self._write.execute("ROLLBACK TO job")
                    ended.append((job.done, None, error))
                self._write.execute("RELEASE job")
            self._write.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            if self._write.in_transaction:
                self._write.execute("ROLLBACK")
            said = StoreError(f"{self.folder}: the store cannot be written ({error}); free some space and start again")
            ended = [(job.done, None, said) for job in jobs]
        for done, result, failed in ended:
            done.set_exception(failed) if failed else done.set_result(result)

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.folder}: the store is closed")
            return self._read.execute(sql, values).fetchall()

    def _vault(self, key: bytes, held: bool = False) -> AESGCM:
        if (key, held) not in self._vaults:
            rows = self._rows(f"SELECT vault FROM {'attempts' if held else 'own_keys'} WHERE key=?", key)
            if not rows or rows[0][0] is None:
                raise StoreError(f"{self.folder}: the secrets of an attempt are gone; it ended before")
            self._vaults[key, held] = AESGCM(rows[0][0])
        return self._vaults[key, held]

    def _forget(self, still_held: bytes, files: Sequence[str]) -> None:
        """Delete files that the database no longer names, drop keys but the one named, and empty the log."""
        for name in files:
            (self.folder / "bodies" / name).unlink(missing_ok=True)
        self._vaults = {known: vault for known, vault in self._vaults.items() if known == (still_held, True)}
        self.checkpoint()

    def _sealed(self, key: bytes, body: bytes, held: bool = False) -> tuple[bytes, str]:
        """A body as it lies on disk: in the database, or in a file that is whole before the database names it."""
        nonce = os.urandom(12)
        box = nonce + self._vault(key, held).encrypt(nonce, body, key)
        if len(body) <= LARGE:
            return box, ""
        name = nonce.hex()
        try:
            handle = os.open(self.folder / "bodies" / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(box)
                file.flush()
                if self.flush:
                    os.fsync(file.fileno())
            if self.flush:
                sync_folder(self.folder / "bodies")
        except OSError as error:
            (self.folder / "bodies" / name).unlink(missing_ok=True)
            raise StoreError(f"{self.folder}: a letter cannot be kept ({error.strerror}); free some space") from None
        return b"", name

    def _light(self, key: bytes, steps: Sequence[Step]) -> list[Step]:
        """Steps with what is large, such as an update, in sealed files: the log and the database would copy it."""
        return [
            one if len(one[2]) <= LARGE else (one[0], _IN_FILE + one[1], self._sealed(key, one[2])[1].encode())
            for one in steps
        ]

    def _whole(self, key: bytes, what: str, value: bytes) -> tuple[str, bytes]:
        """What a step was and what must be known to repeat it, wherever it lies."""
        if not what.startswith(_IN_FILE):
            return what, value
        return what.removeprefix(_IN_FILE), self._unsealed(key, b"", value.decode())

    def _unsealed(self, key: bytes, body: bytes, file: str, held: bool = False) -> bytes:
        try:
            box = (self.folder / "bodies" / file).read_bytes() if file else body
            return self._vault(key, held).decrypt(box[:12], box[12:], key)
        except (OSError, InvalidTag, ValueError):
            raise StoreError(f"{self.folder}: a letter that was accepted cannot be read any more") from None


def let_go(db: sqlite3.Connection, but: bytes = b"") -> list[str]:
    """Erase what is held for others of all attempts but one, and its keys; the files that are to be deleted."""
    files = [row[0] for row in db.execute("SELECT file FROM held WHERE key<>? AND file<>''", (but,))]
    db.execute("DELETE FROM held WHERE key<>?", (but,))
    db.execute(_ERASE_IDLE)
    return files


def add_facts(db: sqlite3.Connection, facts: Mapping[str, bytes]) -> None:
    """Write facts down; what was known under their names before is overwritten."""
    db.executemany("INSERT OR REPLACE INTO facts VALUES(?,?)", list(facts.items()))


def done_with(result: T) -> Future[T]:
    """A write that there was no need for."""
    done: Future[T] = Future()
    done.set_result(result)
    return done


async def on_disk(begun: Callable[[], Future[T]], size: int = 0) -> T:
    """What a write gives, once it is on disk; what takes long to hash and seal is begun beside the event loop."""
    future = begun() if size <= LARGE else await asyncio.to_thread(begun)
    return await asyncio.wrap_future(future)
