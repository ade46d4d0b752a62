"""Settings of a process that is ours alone: freed memory is kept, garbage is rarely searched for, idle threads sleep.

Vectors of some megabytes come and go in every round, and a page that was handed back is cleared again before it is
used: without this a third of a secure sum is the system's work. What was imported stays, so that Python would search
it for garbage all the time. And torch's threads that have nothing to do would turn in circles for milliseconds: they
leave their core to others sooner. The command line (`cli`) and the processes of `croupier bench clients` ask for all of
it; a library must not. `croupier bench large` asks for kept memory alone.
"""

from __future__ import annotations

import ctypes
import gc
import os

# The numbers of two settings in the C library's malloc.h: from which size on memory is mapped on its own, and how much
# may lie free before it is handed back. Their values, in bytes, are in the next line.
_MAP, _TRIM = -3, -1
_MAPPED, _KEPT = 32 << 20, 256 << 20
# After how many new objects they are searched for garbage, and after how many searches older ones are.
_RARELY = (50_000, 20, 50)
# How often a thread of torch's looks for work before it sleeps; some tens of microseconds. Read when torch is imported.
_LOOKS = "10000"


def own_process() -> None:
    """Ask for all three; the one for torch's threads has an effect only before torch is imported."""
    gc.set_threshold(*_RARELY)
    os.environ.setdefault("GOMP_SPINCOUNT", _LOOKS)
    keep_freed()


def keep_freed() -> bool:
    """Ask the C library to keep some of what is freed; False where it cannot be asked."""
    ask = getattr(ctypes.CDLL(None), "mallopt", None)
    return ask is not None and bool(ask(_MAP, _MAPPED)) and bool(ask(_TRIM, _KEPT))
