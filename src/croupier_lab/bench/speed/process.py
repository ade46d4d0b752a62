"""Run work in a process of its own, so that its peak memory is its own, and time a call.

Memory that an earlier measurement needed would hide that of the next. The benches of speed use it: `client_counts`,
`coordinate_shuffle`, `large_models`, `rain_servers`, `rns_chunks`, `rns_encoding` and `scale`.
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
    """Do work in a fresh process, and return what it gave."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def resident(key: Literal["VmRSS", "VmHWM"]) -> int:
    """This process's resident bytes, now (VmRSS) or at their highest (VmHWM).

    It reads /proc where there is one: the peak of `getrusage` would include that of the process that started this one.
    Elsewhere both are that peak.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    line = next(line for line in status.read_text("ascii").splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024
