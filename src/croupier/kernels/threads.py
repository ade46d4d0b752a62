"""Many cores for loops that release the interpreter: ranges of coordinates, each in its own thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

# Fewer items than this are not worth a second thread.
FEW = 1 << 17


def over(count: int, step: int, work: Callable[[int, int], None]) -> None:
    """Run `work(start, stop)` over the whole range, cut at multiples of `step`, which may run at the same time."""
    cores = _cores()
    if count <= FEW or cores == 1:
        work(0, count)
        return
    pieces = 2 * cores
    size = -(-count // (pieces * step)) * step
    waiting = [_pool().submit(work, start, min(count, start + size)) for start in range(0, count, size)]
    for done in waiting:
        done.result()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_cores(), "kernel")
