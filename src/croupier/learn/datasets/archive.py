"""Archives of plain arrays, read without ever running what is in them.

NumPy's own archives may hold pickles, which run code when they are read. These are opened with pickles forbidden, and
only arrays of the expected names are taken. `activity` and `ecg` read their files by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.errors import DataError

Arrays = dict[str, npt.NDArray[Any]]


def arrays_of(path: Path, keys: Sequence[str]) -> Arrays:
    """The arrays of these names. Raises: DataError when one is missing or no plain array, or the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in keys}
    except Exception as error:  # a damaged archive of arrays can fail in any way at all
        raise DataError(f"{path} is no archive of plain arrays with {', '.join(keys)}; fetch it again") from error
