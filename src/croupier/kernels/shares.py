"""Residues of 2^bits to the numbers they stand for, and `P`, the prime 2^61 - 1 of the field that tags lie in.

A sum server adds residues of 2^bits, where a negative number is a large residue. `encode.fixed` reads released sums by
`signed`, a compiled loop with a plain form for few numbers; the way there is `kernels.residues.wrapped`, which rounds
values and wraps them in one go. What is done to residues as they travel, as shares of a secret, is in `kernels.packed`.
`mpc` and `place.servers` take `P` from here.
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
