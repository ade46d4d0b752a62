"""Which clients are here, and what they let the server know of their standings: public facts, kept across restarts.

Clients say both when they ask for notices (`service.announcer`). The server goes by them when it calls for agreements
(`service.chair`): a client that is not here is not waited for, and one that was never heard of holds nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from croupier.agree.standing import PublicStanding
from croupier.core import canon
from croupier.errors import WireError
from croupier.service.store import Store

# A client asks again as soon as it was answered: who has not for so long is gone.
GRACE = 2.0


@dataclass(frozen=True)
class ClientFacts:
    """A client's public standing, the attempt that it ended last, and whom it complains about in it, signed."""

    standing: PublicStanding = field(default_factory=PublicStanding)
    ended: bytes = b""
    complaints: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, plain: Any) -> ClientFacts:
        """From plain values that somebody sent. Raises: WireError when they are none."""
        try:
            standing, ended, complaints = PublicStanding.read(plain["standing"]), plain["ended"], plain["complaints"]
        except (KeyError, TypeError):
            raise WireError("values that are no facts of a client") from None
        sound = isinstance(ended, bytes) and isinstance(complaints, Mapping) and len(plain) == 3
        if not sound or not all(isinstance(signature, bytes) for signature in complaints.values()):
            raise WireError("values that are no facts of a client")
        return cls(standing, ended, dict(complaints))


class Attendance:
    """What the server knows of its clients: who is here, and the facts that each said last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, ClientFacts] = {}
        self._bytes: dict[str, bytes] = {}
        self._asking: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._changed = asyncio.Event()

    def facts(self, who: str) -> ClientFacts:
        """What a client said last; nothing where it was never heard of."""
        if who not in self._known:
            kept = self._store.fact(f"known {who}")
            self._known[who] = ClientFacts() if kept is None else ClientFacts.read(canon.load(kept))
        return self._known[who]

    async def hear(self, who: str, plain: Any) -> ClientFacts:
        """Take down what a client says, on disk before it counts. Raises: WireError."""
        found, data = ClientFacts.read(plain), canon.dump(plain)
        if self._bytes.get(who) != data:
            await asyncio.to_thread(self._store.remember, {f"known {who}": data})
            self._bytes[who], self._known[who] = data, found
        self._changed.set()
        return found

    @contextmanager
    def asking(self, who: str) -> Iterator[None]:
        """While a client waits for an answer, it is here."""
        self._asking[who] += 1
        self._changed.set()
        try:
            yield
        finally:
            self._asking[who] -= 1
            self._last[who] = time.monotonic()

    def here(self, who: str) -> bool:
        """Whether a client waits for a notice, or did just now."""
        return self._asking[who] > 0 or time.monotonic() - self._last.get(who, float("-inf")) < GRACE

    async def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to be true of the clients; whether it is."""
        end = time.monotonic() + seconds
        while not (done := until()) and (left := end - time.monotonic()) > 0:
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left, GRACE)):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return done
