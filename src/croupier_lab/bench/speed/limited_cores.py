"""Run work on so many cores: torch's threads and, where the system lets one choose, the cores that it may use.

Tazza's costs are of devices with few cores (`papers.tazza.cost`, Figures 14 to 16), and they are timed here on as few.
Threads and cores are as before once the measurement ends, whatever happens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def lent(threads: int) -> Iterator[int]:
    """While it is open, work runs on so many cores; it gives how many there really are.

    Where the machine has fewer cores, threads share them. Where cores cannot be chosen, only torch is told.
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
