"""Memory that is freed is kept for the next array: a page that was handed back is cleared again before it is used.

Vectors of some megabytes come and go in every round; without this a third of a secure sum is the system's work. And
what was imported stays: Python would search it for garbage all the time. And a thread that has nothing to do leaves its
core to others soon: torch's would turn in circles for milliseconds. The command line asks for all of it, in a process
of its own; a library must not.
"""

from __future__ import annotations

import ctypes
import gc
import os

# The C library's numbers for: from which size on memory is mapped on its own, and how much may lie free before it is
# handed back.
_MAP, _TRIM = -3, -1
_MAPPED, _KEPT = 32 << 20, 256 << 20
# After how many new objects they are searched for garbage, and after how many searches older ones are.
_RARELY = (50_000, 20, 50)
# How often a thread of torch's looks for work before it sleeps; some tens of microseconds. Read when torch is imported.
_LOOKS = "10000"


def own_process() -> None:
    """What a process that is ours alone asks for."""
    gc.set_threshold(*_RARELY)
    os.environ.setdefault("GOMP_SPINCOUNT", _LOOKS)
    keep_freed()


def keep_freed() -> bool:
    """Ask the C library to keep some of what is freed; False where it cannot be asked."""
    ask = getattr(ctypes.CDLL(None), "mallopt", None)
    return ask is not None and bool(ask(_MAP, _MAPPED)) and bool(ask(_TRIM, _KEPT))
