"""Memory that is freed is kept for the next array: a page that was handed back is cleared again before it is used.

Vectors of some megabytes come and go in every round; without this a third of a secure sum is the system's work. The
command line asks for it, in a process of its own; a library must not.
"""

from __future__ import annotations

import ctypes

# The C library's numbers for: from which size on memory is mapped on its own, and how much may lie free before it is
# handed back.
_MAP, _TRIM = -3, -1
_MAPPED, _KEPT = 32 << 20, 256 << 20


def keep_freed() -> bool:
    """Ask the C library to keep some of what is freed; False where it cannot be asked."""
    ask = getattr(ctypes.CDLL(None), "mallopt", None)
    return ask is not None and bool(ask(_MAP, _MAPPED)) and bool(ask(_TRIM, _KEPT))
