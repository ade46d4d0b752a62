"""Parties that can die at any step, on disks that fill up, over connections that break: for campaigns in one process.

A killed party runs nothing more: whatever its code still tries with its store or its connections fails, mostly with
`Killed`, so that no cleanup can tidy up behind it, as none could after a real crash. What it had on disk is what its
next life finds. `deployment` makes its parties of these, for `croupier bench faults`.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from croupier.core.envelope import CHUNK, HEADER_BYTES, Header
from croupier.errors import StoreError
from croupier.service.member import Member
from croupier.service.store import Store
from croupier.service.transport import LATER, OK, Calls

T = TypeVar("T")
# A place for one letter: run, round, attempt, source, target and kind.
Slot = tuple[bytes, int, int, str, str, str]


class Killed(asyncio.CancelledError):
    """The party was killed here. No `except Exception` catches it, and the transport drops the call in silence."""


@dataclass
class Life:
    """One life of a party, from a start to an end: whether it was killed, and whether its disk is full now."""

    dead: bool = False
    full: bool = False
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        """Raises: Killed after the end."""
        if self.dead:
            raise Killed

    def kill(self) -> None:
        """End it at once. Raises: Killed."""
        self.dead = True
        raise Killed


class MortalStore(Store):
    """A store that a dead party cannot use, and that cannot be written while its disk is full."""

    def __init__(self, folder: Path, life: Life) -> None:
        self.life = life
        super().__init__(folder)

    def begin_write(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Write as the store does, unless the party is dead or its disk full."""
        self.life.check()

        def tried(db: sqlite3.Connection) -> T:
            # On the writer's thread: what was asked for and not yet done when the party died is not done.
            if self.life.full or self.life.dead:
                raise OSError(errno.ENOSPC, "no space left on device")
            return job(db)

        return super().begin_write(tried)

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        self.life.check()
        return super()._rows(sql, *values)

    def _sealed(self, key: bytes, body: bytes, held: bool = False) -> tuple[bytes, str]:
        if self.life.full:
            raise StoreError(f"{self.folder}: a letter cannot be kept (no space left on device); free some space")
        return super()._sealed(key, body, held)


@dataclass
class RecordedWire:
    """What travelled between parties, and what is to go wrong with it.

    `slots` has the digests of all that was sent from one party to another as one kind of letter in one attempt. There
    may be one each, because with two a one-time secret covered two messages. `taken` has the letters that a host said
    were durable.
    """

    slots: dict[Slot, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    taken: set[tuple[str, bytes, str, str, bytes]] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    # By party and number of its call, from 1: what happens to it.
    troubles: dict[tuple[str, int], str] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)

    def sent(self, header: Header, body: bytes) -> None:
        """Write down a letter that was put on the wire."""
        slot = (header.run, header.round, header.attempt, header.source, header.target, header.kind)
        self.slots[slot].add(hashlib.sha256(header.pack() + body).digest())

    def trouble(self, name: str) -> str:
        """What is to happen to a party's next call."""
        self.calls[name] += 1
        found = self.troubles.pop((name, self.calls[name]), "")
        if found:
            self.met.append(found)
        return found

    @property
    def reused(self) -> list[Slot]:
        """Places for one letter in which different bytes travelled."""
        return [slot for slot, digests in self.slots.items() if len(digests) > 1]


class MortalCalls(Calls):
    """Calls of a party that may be dead, over connections that may be cut or slow."""

    def __init__(self, member: Member, life: Life, network: RecordedWire) -> None:
        super().__init__(member)
        self.life, self.network = life, network

    async def put(self, host: str, head: bytes, body: bytes, timeout: float) -> bytes:
        """Send a letter, and write down that it was sent and whether the host has it."""
        header = Header.unpack(head[:HEADER_BYTES])

        async def send() -> bytes:
            self.network.sent(header, body)
            said = await Calls.put(self, host, head, body, timeout)
            if said == OK:
                digest = hashlib.sha256(head[:HEADER_BYTES] + body).digest()
                self.network.taken.add((host, head[HEADER_BYTES:], header.source, header.kind, digest))
            return said

        return await self._troubled(send, LATER)

    async def take(self, host: str, request: bytes, timeout: float, most: int = CHUNK) -> list[bytes]:
        """Fetch a letter, and write down that it came."""

        async def fetch() -> list[bytes]:
            pieces = await Calls.take(self, host, request, timeout, most)
            if len(pieces) > 1:
                self.network.sent(Header.unpack(pieces[0]), b"".join(pieces[1:]))
            return pieces

        return await self._troubled(fetch, [])

    async def open(self, host: str, request: bytes, timeout: float) -> bytes:
        """Push or fetch a notice."""
        return await self._troubled(lambda: Calls.open(self, host, request, timeout), LATER)

    async def end(self, host: str, request: bytes, timeout: float) -> bytes:
        """Say that an attempt is over."""
        return await self._troubled(lambda: Calls.end(self, host, request, timeout), LATER)

    async def known(self, host: str, timeout: float) -> bytes:
        """Ask which letters of one's own a host saw last."""
        return await self._troubled(lambda: Calls.known(self, host, timeout), LATER)

    async def _troubled(self, call: Callable[[], Awaitable[T]], nothing: T) -> T:
        self.life.check()
        trouble = self.network.trouble(self.member.name)
        if trouble == "request cut":
            return nothing
        if trouble == "delayed":
            await asyncio.sleep(0.4)
        self.life.check()
        answer = await call()
        self.life.check()
        if trouble == "repeated":
            answer = await call()
        return nothing if trouble == "answer cut" else answer
