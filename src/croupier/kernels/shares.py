"""Numbers to residues of 2^bits and back, and `P`, the prime 2^61 - 1 of the field that tags lie in.

A sum server adds residues of 2^bits, where a negative number is a large residue. `encode.fixed` reads released sums by
`signed`; `wrapped` is the way there, for integers that are at hand (values of an update are rounded and wrapped in one
go, by `kernels.residues`). Both are compiled loops with a plain form for few numbers. What is done to residues as they
travel, as shares of a secret, is in `kernels.packed`. `mpc` and `place.servers` take `P` from here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.few import few
from croupier.kernels.threads import over

P = (1 << 61) - 1
Words = npt.NDArray[np.uint64]


def signed(residues: npt.NDArray[Any], bits: int) -> npt.NDArray[np.int64]:
    """Residues of 2^bits as the numbers nearest to 0 (half of 2^bits itself becomes a negative number)."""
    flat = residues.reshape(-1)
    if few(len(flat)):
        wide = flat.astype(np.int64)
        return (wide - ((wide >> (bits - 1)) << bits)).reshape(residues.shape)
    from croupier.kernels import _shares_jit as jit

    out = np.empty(len(flat), np.int64)
    over(len(flat), 1, lambda a, b: jit.signed(flat[a:b], bits, out[a:b]))
    return out.reshape(residues.shape)


def wrapped(numbers: npt.NDArray[np.int64], bits: int) -> npt.NDArray[Any]:
    """Numbers as residues of 2^bits, in the smaller of two types that holds them."""
    kind = np.int32 if bits <= 31 else np.int64
    if few(len(numbers)):
        return (numbers & ((1 << bits) - 1)).astype(kind)
    from croupier.kernels import _shares_jit as jit

    out = np.empty(len(numbers), kind)
    over(len(numbers), 1, lambda a, b: jit.wrapped(numbers[a:b], bits, out[a:b]))
    return out
