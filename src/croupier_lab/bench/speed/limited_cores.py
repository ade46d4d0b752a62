"""Work on so many cores and no more: torch's threads, and the cores that this thread and its children may use.

The paper's costs are of devices with few cores. Threads and cores are lent for the time of a measurement and given back
whatever happens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def lent(threads: int) -> Iterator[int]:
    """How many cores were lent; both are as before afterwards, however it ends.

    Where the machine has fewer cores, threads share them; where cores cannot be chosen, only torch is told.
    """
    before, own = torch.get_num_threads(), _own()
    torch.set_num_threads(threads)
    try:
        if own is None:
            yield min(threads, os.cpu_count() or 1)
        else:
            chosen = set(sorted(own)[:threads])
            os.sched_setaffinity(0, chosen)
            yield len(chosen)
    finally:
        if own is not None:
            os.sched_setaffinity(0, own)
        torch.set_num_threads(before)


def _own() -> set[int] | None:
    return os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
