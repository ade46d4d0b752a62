"""Many cores for loops that release the interpreter: ranges of coordinates, each in its own thread.

How many threads there are, and which takes which range, changes no result: each range is written by one thread alone.
The pool is made once; small work stays in the calling thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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
    size = -(-count // (4 * cores * step)) * step
    starts = iter(range(0, count, size))

    def take() -> None:
        for start in starts:
            work(start, min(count, start + size))

    # This thread works too, and waits only for those that have begun: on a busy machine the others may come too late.
    waiting = [_pool().submit(take) for _ in range(cores - 1)]
    take()
    for done in waiting:
        if not done.cancel():
            done.result()


def each(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs that do not depend on each other, which may run at the same time. None may itself ask for threads."""
    if len(jobs) < 2 or _cores() == 1:
        for job in jobs:
            job()
        return
    for done in [_pool().submit(job) for job in jobs]:
        done.result()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_cores(), "kernel")
