"""Sorting shared numbers, as far as their median asks for it, with public places and secret order.

The network is Batcher's merge exchange. Each comparator is one comparison and one product; comparators of a layer run
together, and those that do not bear on the middle are left out.

`trust` needs two medians: of distances, and of how far each of them lies from that one. Which places are compared is
public and does not depend on the numbers, so that nobody learns an order from the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from croupier.core.flow import SubFlow
from croupier.mpc import compare
from croupier.mpc.dealt_shares import ShareReader
from croupier.mpc.ring import Residues, Ring

Layer = tuple[tuple[int, int], ...]


def network(count: int) -> Iterator[Layer]:
    """Layers of comparators that sort so many numbers; in a layer no place occurs twice."""
    top = 1 << max(count - 1, 0).bit_length() >> 1
    step = top
    while step:
        reach, stride, part = top, step, 0
        while True:
            yield tuple((low, low + stride) for low in range(count - stride) if low & step == part)
            if reach == step:
                break
            stride, reach, part = reach - step, reach >> 1, step
        step >>= 1


def middle(count: int) -> tuple[int, ...]:
    """The places whose mean is the median."""
    return (count // 2,) if count % 2 else (count // 2 - 1, count // 2)


@lru_cache(maxsize=64)
def layers(count: int) -> tuple[Layer, ...]:
    """The network without what the median does not depend on."""
    asked, kept = set(middle(count)), list[Layer]()
    for layer in reversed(tuple(network(count))):
        some = tuple(pair for pair in layer if asked & set(pair))
        asked |= {place for pair in some for place in pair}
        kept += [some] if some else []
    return tuple(reversed(kept))


def doubled_median(values: Residues) -> Residues:
    """Twice the median of values whose middle is in place: a whole number also for an even count."""
    places = middle(len(values))
    return values[[places[0]]] + values[[places[-1]]]


def median(me: int, peer: str, prefix: str, values: Residues, ring: Ring, reader: ShareReader) -> SubFlow:
    """Shares of twice the median. Values must differ by less than 2^(bits-1). Reveals: uniform numbers only."""
    values = values.copy()
    for number, layer in enumerate(layers(len(values))):
        low, high = np.array(layer).T
        less = yield from compare.negative(me, peer, f"{prefix}{number}", values[high] - values[low], ring, reader)
        values[low], values[high] = values[low] + less, values[high] - less
    return doubled_median(values)


def gates(prefix: str, count: int) -> Iterable[tuple[str, int]]:
    """The prefix and the size of every comparison of `median`."""
    return ((f"{prefix}{number}", len(layer)) for number, layer in enumerate(layers(count)))
