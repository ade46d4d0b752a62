"""What one caller, or all of them, may take of a host: calls that it keeps waiting, bytes on their way, room on disk.

Without limits one party could fill a host's memory or disk. `service.transport` counts calls that wait, `service.door`
asks before it reads more than the first piece of a letter, `service.outgoing` counts what is handed out. Who is over a
limit is asked to come again, and nothing is lost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# So many bytes of letters may be on their way into a host at a time; more are asked to come again.
IN_FLIGHT = 512 << 20
# So many bytes of large letters may be open at a time to be handed out, one that many fetch counted once; and so many
# of them one party may fetch at a time.
OUT_FLIGHT, MOST_FETCHED = 512 << 20, 2
# So many calls of one party may wait at a host at a time: more than any flow makes.
MOST_HELD = 64
# So many bytes stay free on the disk that a store lies on: room for its log, and for its operator to act.
FLOOR = 64 << 20


class HeldCalls:
    """How many calls of each caller are being answered now."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self.most = most
        self._now: Counter[str] = Counter()

    @contextmanager
    def one_more(self, caller: str | None) -> Iterator[bool]:
        """Count a call while it lasts; False when the caller has too many. Strangers are turned away, never held."""
        if caller is None:
            yield True
            return
        if self._now[caller] >= self.most:
            yield False
            return
        self._now[caller] += 1
        try:
            yield True
        finally:
            self._now[caller] -= 1


def has_room(folder: Path, length: int, floor: int) -> bool:
    """Whether so many bytes more leave enough of the disk free."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize - length >= floor
