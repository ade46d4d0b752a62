"""Numbers and the residues of 2^bits that stand for them, and the field of 2^61 - 1 that tags lie in.

Compiled loops with plain references. What is done to residues as they travel is in `packed`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.threads import over

P = (1 << 61) - 1
Words = npt.NDArray[np.uint64]
_FEW = 1 << 10


def signed(residues: npt.NDArray[Any], bits: int) -> npt.NDArray[np.int64]:
    """Residues of 2^bits as the numbers nearest to 0 (half of 2^bits counts as negative)."""
    flat = residues.reshape(-1)
    if len(flat) < _FEW:
        wide = flat.astype(np.int64)
        return (wide - ((wide >> (bits - 1)) << bits)).reshape(residues.shape)
    from croupier.kernels import _shares_jit as jit

    out = np.empty(len(flat), np.int64)
    over(len(flat), 1, lambda a, b: jit.signed(flat[a:b], bits, out[a:b]))
    return out.reshape(residues.shape)


def wrapped(numbers: npt.NDArray[np.int64], bits: int) -> npt.NDArray[Any]:
    """Numbers as residues of 2^bits, in the smaller of two types that holds them."""
    kind = np.int32 if bits <= 31 else np.int64
    if len(numbers) < _FEW:
        return (numbers & ((1 << bits) - 1)).astype(kind)
    from croupier.kernels import _shares_jit as jit

    out = np.empty(len(numbers), kind)
    over(len(numbers), 1, lambda a, b: jit.wrapped(numbers[a:b], bits, out[a:b]))
    return out
