"""What a party must not lose: attempts, letters, steps and facts in one SQLite file, large bodies as files beside it.

Accepted means durable: a write is answered when it is on disk (WAL, full synchronisation). Writes that wait together
are committed together. Bodies are sealed under keys of their attempt, so that erasing 32 bytes erases all of them,
whatever a disk keeps of a deleted file. One key seals what came and large steps, and is erased in the transaction that
ends the attempt. Another seals letters that lie ready for others: it is erased with them when the next attempt ends or
the run is over (`let_go`), and at the attempt's own end where nothing lies ready. `service.start` and `flower.station`
open a party's `Store`; `service.party`, `service.player` and `service.door` write to it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from croupier.core.coins import Coins
from croupier.core.envelope import Header
from croupier.errors import Replayed
from croupier.service.database import LARGE, STEP_FILES, Database, Step, add_facts, done_with, let_go

# What a letter is that was to be kept: new, the very same again, or another than the one before.
Kept = Literal["new", "again", "other"]


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


@dataclass(frozen=True)
class LeavingLetter:
    """A letter that is about to leave; with `hold`, its body is kept for whoever fetches it."""

    target: str
    kind: str
    header: bytes
    body: bytes = field(repr=False)
    hold: bool = False


@dataclass(frozen=True)
class HeldLetter:
    """A letter that lies ready for whoever fetches it: its header, and its body as it lies on disk."""

    header: bytes
    sealed: bytes = field(repr=False)
    file: str


# More kinds of letters than any protocol has a party send.
MOST_KINDS = 64


class Store(Database):
    """One party's store: its attempts, the letters that came and left, the steps of its flow, and facts."""

    # ---- attempts

    def open(self, opened: Opened, facts: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Write an attempt down, before anything is done in it, and facts that hold from now on."""
        row = (
            opened.key, opened.number, opened.what, opened.run, opened.round, opened.attempt, opened.notice,
            opened.coins, opened.memory, Coins.from_os().export(), opened.opened,
        )  # fmt: skip

        def write(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO attempts VALUES(?,?,?,?,?,?,?,?,?,?,?,'open')", row)
            db.execute("INSERT INTO own_keys VALUES(?,?)", (opened.key, Coins.from_os().export()))
            add_facts(db, facts)

        self.write(write)

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

    def end(
        self, key: bytes, state: Literal["done", "failed"], facts: Mapping[str, bytes],
        counted: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """End an attempt: what is remembered, and the erasure of its secrets, steps and letters, in one step.

        What it still has to hand out stays, under a key of its own, until the next attempt ends or the run is over.
        """

        def write(db: sqlite3.Connection) -> list[str]:
            files = [row[0] for row in db.execute("SELECT file FROM letters WHERE key=? AND file<>''", (key,))]
            files += [row[0] for row in db.execute(f"{STEP_FILES} AND key=?", (key,))]
            # Digests stay: who sends the same letter again is told that it was accepted.
            db.execute("UPDATE letters SET body=NULL, file='' WHERE key=?", (key,))
            for kind, sources in counted.items():
                for source in sources:
                    where = (key, source, kind)
                    db.execute("UPDATE letters SET counted=1 WHERE key=? AND source=? AND kind=?", where)
            db.execute("UPDATE attempts SET state=?, coins=NULL, memory=NULL WHERE key=?", (state, key))
            db.execute("DELETE FROM own_keys WHERE key=?", (key,))
            db.execute("DELETE FROM steps WHERE key=?", (key,))
            add_facts(db, facts)
            return files + let_go(db, but=key)

        self._forget(key, self.write(write))

    def let_go(self, facts: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Erase what still lies ready for others, with its key, once nobody fetches it; facts that hold from now on."""

        def write(db: sqlite3.Connection) -> list[str]:
            add_facts(db, facts)
            return let_go(db)

        self._forget(b"", self.write(write))

    # ---- letters that came

    def keep(self, key: bytes, letter: StoredLetter) -> Future[Kept]:
        """Write a letter down: a new one, the very same again, or another than the one that was accepted."""
        state = hashlib.sha256(letter.header)
        state.update(letter.body)
        digest = state.digest()
        if len(letter.body) > LARGE and (known := self._known(key, letter)) is not None:
            # Not sealed and written to a file of its own once more.
            return done_with("again" if known == digest else "other")
        body, file = self._sealed(key, letter.body)

        def write(db: sqlite3.Connection) -> Kept:
            row = (key, letter.source, letter.kind, digest, letter.header, body, file)
            if db.execute("INSERT OR IGNORE INTO letters VALUES(?,?,?,?,?,?,?,0)", row).rowcount:
                return "new"
            where = (key, letter.source, letter.kind)
            (kept,) = db.execute("SELECT digest FROM letters WHERE key=? AND source=? AND kind=?", where).fetchone()
            return "again" if kept == digest else "other"

        return self.begin_write(write)

    def counted(self, key: bytes, source: str, kind: str) -> tuple[bytes, bytes] | None:
        """Header and digest of a letter that its receiver's flow was handed, after the attempt has ended."""
        sql = "SELECT header, digest FROM letters WHERE key=? AND source=? AND kind=? AND counted=1"
        rows = self._rows(sql, key, source, kind)
        return rows[0] if rows else None

    def note(self, key: bytes, source: str, header: Header) -> None:
        """Remember that a letter came too late: of which kind, not what it said; and of a party not many."""

        def write(db: sqlite3.Connection) -> None:
            known = db.execute("SELECT count(*) FROM letters WHERE key=? AND source=?", (key, source)).fetchone()[0]
            if known < MOST_KINDS:
                row = (key, source, header.kind, b"", header.pack())
                db.execute("INSERT OR IGNORE INTO letters VALUES(?,?,?,?,?,NULL,'',0)", row)

        self.write(write)

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

    def leave(self, key: bytes, letters: Sequence[LeavingLetter], steps: Sequence[Step] = ()) -> Future[None]:
        """Write down letters that are about to leave, and the steps that led to them, together.

        The future raises Replayed when another letter left in the same place before: then none of these may leave.
        """
        # One body goes to many: it is hashed once and sealed once.
        bodies = {id(one.body): one.body for one in letters}
        digests = {known: hashlib.sha256(body).digest() for known, body in bodies.items()}
        held = {digests[id(one.body)]: one.body for one in letters if one.hold}
        sealed = {digest: self._sealed(key, body, held=True) for digest, body in held.items()}
        light = self._light(key, steps)

        def write(db: sqlite3.Connection) -> None:
            _add_steps(db, key, light)
            for one in letters:
                digest = digests[id(one.body)]
                row = (key, one.target, one.kind, digest, one.header)
                if db.execute("INSERT OR IGNORE INTO sent VALUES(?,?,?,?,?)", row).rowcount:
                    continue
                where = (key, one.target, one.kind)
                (left,) = db.execute("SELECT digest FROM sent WHERE key=? AND target=? AND kind=?", where).fetchone()
                if left != digest:
                    raise Replayed(
                        f"another {one.kind!r} left for {one.target} in this attempt before; nothing is sent"
                    )
            for digest, (body, file) in sealed.items():
                db.execute("INSERT OR IGNORE INTO held VALUES(?,?,?,?)", (key, digest, body, file))

        return self.begin_write(write)

    def left(self, key: bytes) -> bool:
        """Whether anything left in an attempt."""
        return bool(self._rows("SELECT 1 FROM sent WHERE key=? LIMIT 1", key))

    def has_left(self, key: bytes, target: str, kind: str) -> bool:
        """Whether a letter of this kind left for somebody in an attempt, or was about to."""
        return bool(self._rows("SELECT 1 FROM sent WHERE key=? AND target=? AND kind=?", key, target, kind))

    def waiting(self, key: bytes, target: str, kind: str) -> HeldLetter | None:
        """A letter that lies ready for somebody who fetches."""
        found = self._rows(
            "SELECT header, body, file FROM sent JOIN held USING(key, digest) WHERE key=? AND target=? AND kind=?",
            key, target, kind,
        )  # fmt: skip
        return HeldLetter(*found[0]) if found else None

    def opened_body(self, key: bytes, held: HeldLetter) -> bytes:
        """What such a letter says. Raises: StoreError."""
        return self._unsealed(key, held.sealed, held.file, held=True)

    # ---- steps and facts

    def add_steps(self, key: bytes, steps: Sequence[Step]) -> Future[None]:
        """Write down what a flow was handed."""
        light = self._light(key, steps)
        return self.begin_write(lambda db: _add_steps(db, key, light))

    def steps(self, key: bytes) -> list[tuple[str, bytes]]:
        """What a flow was handed so far, in order."""
        rows = self._rows("SELECT what, value FROM steps WHERE key=? ORDER BY step", key)
        return [self._whole(key, what, value) for what, value in rows]

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
        self.write(lambda db: add_facts(db, facts))


def _add_steps(db: sqlite3.Connection, key: bytes, steps: Sequence[Step]) -> None:
    db.executemany("INSERT INTO steps VALUES(?,?,?,?)", [(key, *step) for step in steps])
