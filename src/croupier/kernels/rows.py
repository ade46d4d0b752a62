"""Rows of many clients stacked as one table; long rows are copied by all cores at once.

The table is new memory, for which NumPy asks the system for large pages; whoever first touches a page waits for it, so
that cores share this work, too. `release.rows` and `place.direct` stack clients' updates by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.threads import each

# Rows of fewer numbers are copied in less time than two threads take to hand the interpreter to each other.
_SHORT = 1 << 15


def table(rows: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The rows, one under another, in memory of their own. All have one shape and one type."""
    if rows[0].size <= _SHORT:
        return np.stack(rows)
    out = np.empty((len(rows), *rows[0].shape), rows[0].dtype)
    each([partial(np.copyto, target, row, "no") for target, row in zip(out, rows, strict=True)])
    return out
