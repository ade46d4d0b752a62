"""Weighted sums of rows in float64, so exact that the rows' order does not show: a compiled loop and its plain form.

A plain sum of floats differs in its last bits with the order of its rows, and would tell a server something of an order
that a shuffle hides. Here rows are added pair by pair, and what each addition rounds away is carried along. Every
coordinate is a sum of its own, so that which thread has which changes nothing. `aggregate.mean` adds by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.few import few
from croupier.kernels.threads import over

Floats = npt.NDArray[np.float64]
# A number takes so much less time here than in most plain loops: the compiler is worth loading that much later.
_LIGHT = 1 << 8
# Numbers (rows by coordinates) that are summed at once, about what a processor's caches hold; and the fewest
# coordinates of one such piece.
_BLOCK, _LEAST = 1 << 16, 64


def weighted(rows: npt.NDArray[Any], weights: Floats) -> Floats:
    """The sum of the rows, each times its weight."""
    count, width = rows.shape
    out, plainly = np.empty(width), few(rows.size, _LIGHT)
    step = max(_LEAST, _BLOCK // max(1, count))

    def part(first: int, last: int) -> None:
        if plainly:
            for start in range(first, last, step):
                end = min(last, start + step)
                out[start:end] = weighted_plain(rows[:, start:end], weights)
            return
        from croupier.kernels import _weighted_jit as jit

        if rows.flags.c_contiguous:
            jit.weighted(rows, weights, first, last, out)
            return
        # Rows that are parts of longer ones: a copy of some at a time, or the loop would be compiled for these too.
        for start in range(first, last, step):
            end = min(last, start + step)
            jit.weighted(np.ascontiguousarray(rows[:, start:end]), weights, 0, end - start, out[start:end])

    over(width, step, part, heavy=count)
    return out


def weighted_plain(rows: npt.NDArray[Any], weights: Floats) -> Floats:
    """The same by NumPy.

    What an addition rounds away is found by Knuth's two-sum. The result is off by some 2^-100 of the largest row, so
    that the order of the rows does not show in the float that it is rounded to, unless far larger values cancel; a
    library's own sum may regroup and would show it. All is done in buffers that are used again: fresh memory for every
    step costs more than the sums.
    """
    count, width = rows.shape
    if count == 0:
        return np.zeros(width)
    terms, total, lost, missed = np.empty((4, count, width))
    # Two steps on purpose: a fused multiply-add rounds differently where a processor has one.
    np.multiply(rows, weights[:, None], out=terms)
    lost.fill(0.0)
    while count > 1:
        half, odd = count // 2, count % 2
        one, two, sums, off = terms[:half], terms[half : 2 * half], total[:half], missed[:half]
        np.add(one, two, out=sums)
        part = np.subtract(sums, one, out=missed[half : 2 * half])
        np.subtract(sums, part, out=off)
        np.subtract(one, off, out=off)
        off += np.subtract(two, part, out=part)
        lost[:half] += lost[half : 2 * half]
        lost[:half] += off
        if odd:
            total[half], lost[half] = terms[2 * half], lost[2 * half]
        terms, total, count = total, terms, half + odd
    found: Floats = terms[0] + lost[0]
    return found
