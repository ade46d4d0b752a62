"""numba's `njit`, with the compiled code kept on disk where a folder can be written; all `_..._jit` files use it.

numba keeps it beside the source, where that can be written, or else in the user's cache folder; NUMBA_CACHE_DIR names
another. Where none of these can be written (a container without a home), numba refuses to compile at all. Here the
loops are then compiled anew in each process, and a warning says so once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numba

from croupier.errors import CroupierWarning

Loop = TypeVar("Loop", bound=Callable[..., Any])
CLOSED = (
    "compiled loops cannot be kept: neither the package's folder nor the user's cache can be written, so that each "
    "process compiles them anew, which takes seconds; name a folder with NUMBA_CACHE_DIR"
)


def njit(*, cache: bool, **options: Any) -> Callable[[Loop], Loop]:
    """numba's decorator of the same name; `cache` is obeyed only where a folder can be written."""

    def compiled(loop: Loop) -> Loop:
        made: Loop
        try:
            made = numba.njit(cache=cache, **options)(loop)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            # One place in the source, so that Python shows it once.
            warnings.warn(CLOSED, CroupierWarning, stacklevel=1)
            made = numba.njit(**options)(loop)
        return made

    return compiled
