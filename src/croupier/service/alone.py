"""Takes a party's folder for one process at a time: two processes that are the same party would send twice.

`croupier serve` and `croupier join` take it for as long as they run, `flower.session` for a whole run, and `flower.mod`
for one message.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from croupier.core.files import open_lock
from croupier.errors import StoreError
from croupier.service.home import make_private


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Take a party's folder for this process. Raises: StoreError when another one has it: two would send twice."""
    make_private(folder)
    with open_lock(folder / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{folder}: another process is this party already; wait for it, or stop it first"
            ) from None
        # Closing the file unlocks it. The caller's own errors pass through as they are.
        yield
