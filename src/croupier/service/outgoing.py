"""Bodies of large letters on their way out: each is read into memory once for all receivers, and few at a time.

Otherwise a receiver that begins to fetch and does not read on would make its host keep a copy for each of its calls.
So a receiver may have only a few fetches under way, and one that pauses for too long loses its fetch. `service.door`
hands large letters out through it; the limits are in `service.quota`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from croupier.core.envelope import CHUNK
from croupier.service.quota import MOST_FETCHED, OUT_FLIGHT


@dataclass
class _OpenBody:
    """A body in memory, or about to be, and how many fetches of it are under way."""

    length: int
    opening: asyncio.Future[bytes] = field(repr=False)
    receivers: int = 0


class OutgoingBodies:
    """Which bodies are open now, and how many fetches each receiver has under way."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenBody] = {}
        self._fetched: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """Bytes that are open now; a body that many fetch counts once."""
        return sum(one.length for one in self._open.values())

    def begin(self, caller: str, file: str, length: int, read: Callable[[], bytes]) -> Fetched | None:
        """Begin to hand out a body; None where the caller fetches too many already, or too much is open.

        One that is larger than all that may be open can still be had: alone.
        """
        if self._fetched[caller] >= MOST_FETCHED:
            return None
        if (body := self._open.get(file)) is None:
            if self._open and self.size + length > OUT_FLIGHT:
                return None
            body = self._open[file] = _OpenBody(length, asyncio.ensure_future(asyncio.to_thread(read)))
        body.receivers += 1
        self._fetched[caller] += 1
        return Fetched(self, caller, file)

    async def opened(self, file: str) -> bytes:
        """A body that was begun. Raises: StoreError where it cannot be read."""
        # Others wait for it, too: one that hangs up must not end their waiting.
        return await asyncio.shield(self._open[file].opening)

    def end(self, caller: str, file: str) -> None:
        """A caller is done with a body; with the last one it is closed."""
        self._fetched[caller] -= 1
        self._open[file].receivers -= 1
        if not self._open[file].receivers:
            del self._open[file]


class Fetched:
    """One fetch of an open body: it lasts until all is read, the receiver hangs up, or it pauses for too long."""

    def __init__(self, bodies: OutgoingBodies, caller: str, file: str) -> None:
        self._bodies, self._caller, self._file = bodies, caller, file
        self._body: bytes | None = None
        self._over = False

    async def pieces(self, header: bytes, patience: float) -> AsyncIterator[bytes]:
        """Header and body in chunks. Raises: TimeoutError when the receiver comes for the next too late; StoreError."""
        try:
            self._body = await self._bodies.opened(self._file)
            piece, at = header, 0
            while piece:
                # While a piece is on its way nothing runs here: a clock must let go of the body.
                clock = asyncio.get_running_loop().call_later(patience, self._end)
                try:
                    yield piece
                finally:
                    clock.cancel()
                if self._body is None:
                    # Never just the end: who is slow must not take a part for the whole, and may ask again.
                    raise TimeoutError(f"{self._caller} did not read on for {patience:g} seconds")
                piece, at = bytes(memoryview(self._body)[at : at + CHUNK]), at + CHUNK
        finally:
            self._end()

    def _end(self) -> None:
        self._body = None
        if not self._over:
            self._over = True
            self._bodies.end(self._caller, self._file)
