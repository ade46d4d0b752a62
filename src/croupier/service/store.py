"""What a party must not lose: attempts, letters, steps and facts in one SQLite file, large bodies as files beside it.

Accepted means durable: a write is answered when it is on disk (WAL, full synchronisation). Writes that wait together
are committed together. Bodies are sealed under a key that belongs to their attempt, so that erasing 32 bytes at its end
erases all of them, whatever a disk keeps of a deleted file.
"""

from __future__ import annotations

import hashlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.errors import CroupierError, Replayed, StoreError

T = TypeVar("T")
# Larger bodies lie in files of their own: a value of the database ends at 1 GB, and is copied whole.
LARGE = 1 << 16
_TABLES = """
CREATE TABLE IF NOT EXISTS attempts(
    key BLOB PRIMARY KEY, number INT, what TEXT, run BLOB, round INT, attempt INT, notice BLOB, coins BLOB, memory BLOB,
    vault BLOB, opened REAL, state TEXT);
CREATE TABLE IF NOT EXISTS letters(
    key BLOB, source TEXT, kind TEXT, digest BLOB, header BLOB, body BLOB, file TEXT, PRIMARY KEY(key, source, kind));
CREATE TABLE IF NOT EXISTS sent(
    key BLOB, target TEXT, kind TEXT, digest BLOB, header BLOB, PRIMARY KEY(key, target, kind));
CREATE TABLE IF NOT EXISTS held(key BLOB, digest BLOB, body BLOB, file TEXT, PRIMARY KEY(key, digest));
CREATE TABLE IF NOT EXISTS steps(key BLOB, step INT, what TEXT, value BLOB, PRIMARY KEY(key, step));
CREATE TABLE IF NOT EXISTS facts(name TEXT PRIMARY KEY, value BLOB);
"""


@dataclass(frozen=True)
class Opened:
    """An attempt that this party takes part in, as it was when it began."""

    key: bytes
    number: int
    what: str
    run: bytes
    round: int
    attempt: int
    notice: bytes = field(repr=False)
    coins: bytes = field(repr=False)
    memory: bytes = field(repr=False)
    opened: float


@dataclass(frozen=True)
class StoredLetter:
    """A letter that was accepted: whose, of what kind, and its bytes."""

    source: str
    kind: str
    header: bytes
    body: bytes = field(repr=False)


@dataclass
class _Job:
    run: Callable[[sqlite3.Connection], Any]
    done: Future[Any]


class Store:
    """One party's store. Reads may be made from any thread; writes go through one that commits them in groups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bodies").mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / "store.db"
        path.touch(mode=0o600)
        self._read = self._connect(path)
        self._write = self._connect(path)
        self._lock, self._gate = threading.Lock(), threading.Lock()
        self._closed = False
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._vaults: dict[bytes, AESGCM] = {}
        self._sweep()
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def _connect(self, path: Path) -> sqlite3.Connection:
        try:
            made = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            made.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {_TABLES}")
        except sqlite3.Error as error:
            raise StoreError(
                f"{path}: cannot be used as a store ({error}); restore it, or enrol this party anew"
            ) from None
        return made

    def _sweep(self) -> None:
        """Remove bodies that a crash left behind before the database could name them."""
        named = {row[0] for table in ("letters", "held") for row in self._rows(f"SELECT file FROM {table}")}
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

    # ---- attempts

    def open(self, opened: Opened) -> None:
        """Write an attempt down, before anything is done in it."""
        row = (
            opened.key, opened.number, opened.what, opened.run, opened.round, opened.attempt, opened.notice,
            opened.coins, opened.memory, os.urandom(32), opened.opened,
        )  # fmt: skip
        self.write(lambda db: db.execute("INSERT INTO attempts VALUES(?,?,?,?,?,?,?,?,?,?,?,'open')", row))

    def current(self) -> Opened | None:
        """The attempt that was open when the party stopped, if one was."""
        columns = "key, number, what, run, round, attempt, notice, coins, memory, opened"
        rows = self._rows(f"SELECT {columns} FROM attempts WHERE state='open' ORDER BY number DESC LIMIT 1")
        return Opened(*rows[0]) if rows else None

    def state(self, key: bytes) -> str | None:
        """How an attempt stands: open, done, failed; None when it is not known."""
        rows = self._rows("SELECT state FROM attempts WHERE key=?", key)
        return rows[0][0] if rows else None

    def last(self, what: str, run: bytes) -> tuple[int, int, str] | None:
        """The highest round and attempt of a run that this party took part in, and how it ended."""
        rows = self._rows(
            "SELECT round, attempt, state FROM attempts WHERE what=? AND run=? "
            "ORDER BY round DESC, attempt DESC LIMIT 1",
            what, run,
        )  # fmt: skip
        return rows[0] if rows else None

    def last_number(self) -> int:
        """The highest notice that was followed; -1 before the first."""
        rows = self._rows("SELECT max(number) FROM attempts")
        return -1 if rows[0][0] is None else int(rows[0][0])

    def end(self, key: bytes, state: Literal["done", "failed"], facts: Mapping[str, bytes]) -> None:
        """End an attempt: what is remembered, and the erasure of its secrets and letters, in one step.

        What it still has to hand out stays until the next attempt ends.
        """

        def write(db: sqlite3.Connection) -> list[str]:
            files = [row[0] for row in db.execute("SELECT file FROM letters WHERE key=? AND file<>''", (key,))]
            files += [row[0] for row in db.execute("SELECT file FROM held WHERE key<>? AND file<>''", (key,))]
            # Digests stay: who sends the same letter again is told that it was accepted.
            db.execute("UPDATE letters SET body=NULL, file='' WHERE key=?", (key,))
            db.execute("UPDATE attempts SET state=?, coins=NULL, memory=NULL WHERE key=?", (state, key))
            db.execute("UPDATE attempts SET vault=NULL WHERE key<>? AND state<>'open'", (key,))
            db.execute("DELETE FROM steps WHERE key=?", (key,))
            db.execute("DELETE FROM held WHERE key<>?", (key,))
            for name, value in facts.items():
                db.execute("INSERT OR REPLACE INTO facts VALUES(?,?)", (name, value))
            return files

        for name in self.write(write):
            (self.folder / "bodies" / name).unlink(missing_ok=True)
        self._vaults = {known: vault for known, vault in self._vaults.items() if known == key}

    # ---- letters that came

    def keep(self, key: bytes, letter: StoredLetter) -> Literal["new", "again", "other"]:
        """Write a letter down: a new one, the very same again, or another than the one that was accepted."""
        digest = hashlib.sha256(letter.header + letter.body).digest()
        if (known := self._known(key, letter)) is not None:
            return "again" if known == digest else "other"
        body, file = self._sealed(key, letter.body)

        def write(db: sqlite3.Connection) -> Literal["new", "again", "other"]:
            row = (key, letter.source, letter.kind, digest, letter.header, body, file)
            if db.execute("INSERT OR IGNORE INTO letters VALUES(?,?,?,?,?,?,?)", row).rowcount:
                return "new"
            where = (key, letter.source, letter.kind)
            (kept,) = db.execute("SELECT digest FROM letters WHERE key=? AND source=? AND kind=?", where).fetchone()
            return "again" if kept == digest else "other"

        return self.write(write)

    def accepted(self, key: bytes, letter: StoredLetter) -> bool:
        """Whether this very letter was accepted before."""
        return self._known(key, letter) == hashlib.sha256(letter.header + letter.body).digest()

    def note(self, key: bytes, letter: StoredLetter) -> None:
        """Remember that a letter came too late: what it was, not what it said."""
        digest = hashlib.sha256(letter.header + letter.body).digest()
        row = (key, letter.source, letter.kind, digest, letter.header, None, "")
        self.write(lambda db: db.execute("INSERT OR IGNORE INTO letters VALUES(?,?,?,?,?,?,?)", row))

    def newest_from(self, source: str) -> tuple[bytes, tuple[str, ...]]:
        """The newest attempt in which letters of a party's came, and their kinds; nothing when none ever did."""
        rows = self._rows(
            "SELECT key, kind FROM letters JOIN attempts USING(key) WHERE source=? AND number=(SELECT max(number) FROM "
            "letters JOIN attempts USING(key) WHERE source=?) ORDER BY kind",
            source, source,
        )  # fmt: skip
        return (rows[0][0], tuple(kind for _, kind in rows)) if rows else (b"", ())

    def letters(self, key: bytes) -> Iterator[StoredLetter]:
        """Every letter that was accepted in an attempt."""
        for source, kind, header, body, file in self._rows(
            "SELECT source, kind, header, body, file FROM letters WHERE key=?", key
        ):
            yield StoredLetter(source, kind, header, self._unsealed(key, body, file))

    def _known(self, key: bytes, letter: StoredLetter) -> bytes | None:
        where = (key, letter.source, letter.kind)
        rows = self._rows("SELECT digest FROM letters WHERE key=? AND source=? AND kind=?", *where)
        return rows[0][0] if rows else None

    # ---- letters that leave

    def leave(self, key: bytes, letters: list[tuple[str, str, bytes, bytes]], hold: bool) -> None:
        """Write down letters (target, kind, header, body) that are about to leave; with `hold`, keep their bodies.

        Raises: Replayed when another letter left in the same place before: then none of these may leave.
        """
        bodies = {hashlib.sha256(body).digest(): body for _, _, _, body in letters} if hold else {}
        sealed = {digest: self._sealed(key, body) for digest, body in bodies.items()}

        def write(db: sqlite3.Connection) -> None:
            for target, kind, header, body in letters:
                digest = hashlib.sha256(body).digest()
                row = (key, target, kind, digest, header)
                if db.execute("INSERT OR IGNORE INTO sent VALUES(?,?,?,?,?)", row).rowcount:
                    continue
                where = (key, target, kind)
                (left,) = db.execute("SELECT digest FROM sent WHERE key=? AND target=? AND kind=?", where).fetchone()
                if left != digest:
                    raise Replayed(f"another {kind!r} left for {target} in this attempt before; nothing is sent")
            for digest, (body, file) in sealed.items():
                db.execute("INSERT OR IGNORE INTO held VALUES(?,?,?,?)", (key, digest, body, file))

        self.write(write)

    def left(self, key: bytes) -> bool:
        """Whether anything left in an attempt."""
        return bool(self._rows("SELECT 1 FROM sent WHERE key=? LIMIT 1", key))

    def has_left(self, key: bytes, target: str, kind: str) -> bool:
        """Whether a letter of this kind left for somebody in an attempt, or was about to."""
        return bool(self._rows("SELECT 1 FROM sent WHERE key=? AND target=? AND kind=?", key, target, kind))

    def waiting(self, key: bytes, target: str, kind: str) -> tuple[bytes, bytes] | None:
        """A letter that lies ready for somebody who fetches: its header and body."""
        found = self._rows(
            "SELECT header, body, file FROM sent JOIN held USING(key, digest) WHERE key=? AND target=? AND kind=?",
            key, target, kind,
        )  # fmt: skip
        return (found[0][0], self._unsealed(key, found[0][1], found[0][2])) if found else None

    # ---- steps and facts

    def step(self, key: bytes, number: int, what: str, value: bytes, facts: Mapping[str, bytes] | None = None) -> None:
        """Write down what a flow is about to be handed, and facts that hold from now on."""

        def write(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO steps VALUES(?,?,?,?)", (key, number, what, value))
            for name, fact in (facts or {}).items():
                db.execute("INSERT OR REPLACE INTO facts VALUES(?,?)", (name, fact))

        self.write(write)

    def steps(self, key: bytes) -> list[tuple[str, bytes]]:
        """What a flow was handed so far, in order."""
        return self._rows("SELECT what, value FROM steps WHERE key=? ORDER BY step", key)

    def fact(self, name: str) -> bytes | None:
        """What is remembered under a name."""
        rows = self._rows("SELECT value FROM facts WHERE name=?", name)
        return rows[0][0] if rows else None

    def facts(self, prefix: str) -> list[bytes]:
        """What is remembered under names that begin so, in their order."""
        sql = "SELECT value FROM facts WHERE substr(name, 1, ?)=? ORDER BY name"
        return [row[0] for row in self._rows(sql, len(prefix), prefix)]

    def remember(self, facts: Mapping[str, bytes]) -> None:
        """Remember facts."""
        rows = list(facts.items())
        self.write(lambda db: db.executemany("INSERT OR REPLACE INTO facts VALUES(?,?)", rows))

    # ---- the two connections

    def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction that is on disk when this returns. Raises: StoreError, or what `job` raises."""
        done: Future[T] = Future()
        with self._gate:
            if self._closed:
                raise StoreError(f"{self.folder}: the store is closed")
            self._jobs.put(_Job(job, done))
        return done.result()

    def _work(self) -> None:
        while True:
            first = self._jobs.get()
            group = [first]
            while first is not None and not self._jobs.empty():
                group.append(self._jobs.get())
            jobs = [job for job in group if job is not None]
            if jobs:
                self._commit(jobs)
            if len(jobs) < len(group):
                return

    def _commit(self, jobs: list[_Job]) -> None:
        ended: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            self._write.execute("BEGIN IMMEDIATE")
            for job in jobs:
                self._write.execute("SAVEPOINT job")
                try:
                    ended.append((job.done, job.run(self._write), None))
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

    # ---- sealed bodies

    def _vault(self, key: bytes) -> AESGCM:
        if key not in self._vaults:
            rows = self._rows("SELECT vault FROM attempts WHERE key=?", key)
            if not rows or rows[0][0] is None:
                raise StoreError(f"{self.folder}: the secrets of an attempt are gone; it ended before")
            self._vaults[key] = AESGCM(rows[0][0])
        return self._vaults[key]

    def _sealed(self, key: bytes, body: bytes) -> tuple[bytes, str]:
        """A body as it lies on disk: in the database, or in a file that is whole before the database names it."""
        nonce = os.urandom(12)
        box = nonce + self._vault(key).encrypt(nonce, body, key)
        if len(box) <= LARGE:
            return box, ""
        name = nonce.hex()
        try:
            handle = os.open(self.folder / "bodies" / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(box)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            (self.folder / "bodies" / name).unlink(missing_ok=True)
            raise StoreError(f"{self.folder}: a letter cannot be kept ({error.strerror}); free some space") from None
        return b"", name

    def _unsealed(self, key: bytes, body: bytes, file: str) -> bytes:
        try:
            box = (self.folder / "bodies" / file).read_bytes() if file else body
            return self._vault(key).decrypt(box[:12], box[12:], key)
        except (OSError, InvalidTag, ValueError):
            raise StoreError(f"{self.folder}: a letter that was accepted cannot be read any more") from None
