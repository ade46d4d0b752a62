"""Connections that never came to a call: strangers and ended certificates fail before anybody can ask who they are.

gRPC turns them away during the handshake and tells nobody but its own log, yet an operator should hear of them. What
can be had is that a handshake began, and that a connection made its first call; a handshake that no call follows was
turned away, or was none. `service.transport` reports both, and `service.door` counts what is left over and tells its
operator.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

# Seconds after which a handshake counts as one that no call follows: a party dials only when it has something to say,
# and calls at once.
PATIENCE = 5.0
# So many connections are remembered at a time, which is more than a host has open.
MOST = 1 << 16


class Handshakes:
    """Pairs handshakes with first calls; `missed` hears how many were left over."""

    def __init__(self, missed: Callable[[int], None], patience: float = PATIENCE) -> None:
        self._missed, self._patience = missed, patience
        self._begun: deque[float] = deque()
        self._peers: dict[str, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self) -> None:
        """From now on handshakes are watched, by the event loop that runs."""
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """A handshake begins; called from any thread."""
        if self._loop is None:
            return
        self._begun.append(time.monotonic())
        # The loop may end while somebody knocks.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.call_later, self._patience + 0.01, self._look)

    def called(self, peer: str) -> None:
        """A connection makes a call: if it is its first, one handshake has come to its end."""
        if peer in self._peers:
            return
        self._peers[peer] = None
        if len(self._peers) > MOST:
            del self._peers[next(iter(self._peers))]
        if self._begun:
            self._begun.popleft()

    def _look(self) -> None:
        count, old = 0, time.monotonic() - self._patience
        while self._begun and self._begun[0] <= old:
            self._begun.popleft()
            count += 1
        if count:
            self._missed(count)
