"""Work in a process of its own, so that its resident high-water mark is its own; and what a call takes.

Benches of speed use it.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal


def apart(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Do work in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def resident(key: Literal["VmRSS", "VmHWM"]) -> int:
    """This process's resident bytes, now or at their highest. `getrusage` would count the process that started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    line = next(line for line in status.read_text("ascii").splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024
