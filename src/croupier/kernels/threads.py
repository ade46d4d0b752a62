"""Many cores for loops that release the interpreter: jobs and ranges of coordinates, each in its own thread.

How many threads there are, and which takes what, changes no result: each job and each range is written by one thread
alone. The pool is made once; small work stays in the calling thread, and so does work inside of a job, because the
other cores have jobs of their own. The kernels and `privacy.gaussian` divide ranges by `over`; `engine.local`,
`release.shuffle`, `release.bits`, `mpc.curve` and `kernels.rows` run jobs by `each`; `learn` and `audit.setting` ask
how many cores there are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

# Fewer items than this are not worth a second thread.
FEW = 1 << 17
# `taken` is set in a thread while it works on a job of `each`: what that job calls runs in the same thread.
_own = threading.local()


def over(count: int, step: int, work: Callable[[int, int], None], heavy: int = 1) -> None:
    """Run `work(start, stop)` over the whole range, cut at multiples of `step`; parts may run at the same time.

    An item is `heavy` numbers. However many cores there are, a part has at least half as many numbers as are worth a
    second thread: sixteen threads take longer to wake one another than to round a million numbers.
    """
    threads = cores()
    if count * heavy <= FEW or threads == 1 or getattr(_own, "taken", False):
        work(0, count)
        return
    parts = min(4 * threads, 2 * count * heavy // FEW)
    size = -(-count // (parts * step)) * step
    each([partial(work, start, min(count, start + size)) for start in range(0, count, size)])


def each(jobs: Sequence[Callable[[], None]]) -> None:
    """Run jobs that do not depend on each other; they may run at the same time."""
    threads = cores()
    if len(jobs) < 2 or threads == 1 or getattr(_own, "taken", False):
        for job in jobs:
            job()
        return
    left = iter(jobs)

    def take() -> None:
        _own.taken = True
        try:
            for job in left:
                job()
        finally:
            _own.taken = False

    # This thread works too, and waits only for those that have begun: on a busy machine the others may come too late.
    helpers = [_pool().submit(take) for _ in range(min(threads, len(jobs)) - 1)]
    try:
        take()
    finally:
        # After an error, too: nobody may still be at work on what its owner has given up.
        begun = [helper for helper in helpers if not helper.cancel()]
        errors = [error for helper in begun if (error := helper.exception())]
    for error in errors:
        raise error


def shareable(workers: int) -> int:
    """How many of torch's own threads one call of torch may use, when `workers` cores are free.

    Fewer where OMP_NUM_THREADS says so, and one in a forked process: torch's threads do not survive a fork, and who
    waits for them waits for ever. `learn.train` asks.
    """
    said = os.environ.get("OMP_NUM_THREADS", "")
    return 1 if _forked else min(workers, int(said)) if said.isdecimal() and int(said) else workers


def _in_fork() -> None:
    global _forked
    _forked = True


_forked = False
os.register_at_fork(after_in_child=_in_fork)


def cores() -> int:
    """How many cores this process may use: fewer than the machine has, in a container or under `taskset`."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "kernel")
