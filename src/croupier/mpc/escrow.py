"""A secret split so that a threshold of holders can open it and fewer learn nothing: Shamir's sharing, byte by byte.

Over GF(2^8), so that every coefficient is a uniform byte and nothing is rounded: fewer shares than the threshold have
the same distribution whatever the secret is. `place.chain.escrowed` splits the keys of mix servers with it, and
`place.chain.escrow_flow` puts the key of a server that is gone together again, so that a round can end without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Choices
from croupier.errors import RangeError

Bytes = npt.NDArray[np.int64]
_MOST = 255


def split(secret: bytes, holders: int, threshold: int, choices: Choices) -> list[bytes]:
    """A share for each holder: values at 1, 2, ... of a random polynomial a byte, whose value at 0 is the secret's."""
    if not 1 <= threshold <= holders <= _MOST:
        raise RangeError(f"threshold = {threshold} of {holders} holders: 1 to all of at most {_MOST} can be asked for")
    size = len(secret)
    # Highest first; the constant is the secret.
    rest = choices.below(256, size * (threshold - 1)).reshape(threshold - 1, size)
    rows = [*rest, np.frombuffer(secret, np.uint8).astype(np.int64)]
    out = []
    for point in range(1, holders + 1):
        value = np.zeros(size, np.int64)
        for row in rows:
            value = _times(value, point) ^ row
        out.append(value.astype(np.uint8).tobytes())
    return out


def joined(shares: Mapping[int, bytes]) -> bytes:
    """The secret, from shares by their points (1, 2, ...). Fewer than the threshold give a value that says nothing."""
    total: Bytes = np.zeros(len(next(iter(shares.values()))), np.int64)
    for here, share in shares.items():
        weight = 1
        for other in shares:
            if other != here:
                weight = _product(weight, _product(other, _inverse(other ^ here)))
        total ^= _times(np.frombuffer(share, np.uint8).astype(np.int64), weight)
    return total.astype(np.uint8).tobytes()


@lru_cache(maxsize=1)
def _tables() -> tuple[Bytes, Bytes]:
    """Powers of 3, which are all elements but 0, twice over, and logarithms; modulo x^8 + x^4 + x^3 + x + 1."""
    power, log, value = np.zeros(510, np.int64), np.zeros(256, np.int64), 1
    for exponent in range(255):
        power[exponent] = power[exponent + 255] = value
        log[value] = exponent
        value ^= value << 1
        value ^= 0x11B if value & 0x100 else 0
    return power, log


def _times(values: Bytes, factor: int) -> Bytes:
    power, log = _tables()
    if factor == 0:
        return np.zeros_like(values)
    return np.where(values == 0, 0, power[log[values] + log[factor]])


def _product(one: int, other: int) -> int:
    return int(_times(np.array([one]), other)[0])


def _inverse(value: int) -> int:
    power, log = _tables()
    return int(power[255 - log[value]])
