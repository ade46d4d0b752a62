"""Oblivious transfer: of two messages the receiver gets the one it chose, and the sender does not learn which.

The protocol is that of Chou and Orlandi 2015, on ristretto255. The sender says A = aG; the receiver says B = bG, or
bG + A when it chose the second; the keys are H(aB) and H(aB - aA), of which the receiver can compute one, as H(bA).
Many transfers share one A. For parties that follow the protocol. Needs the extra `transfer` (rbcl, which brings
libsodium).

Used by `correlate`, where a description says `shuffle = "transfer"`: then two servers need no dealer for their shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.core.coins import Coins
from croupier.errors import SpecError, WireError
from croupier.mpc.occasion import Occasion
from croupier.mpc.talk import Talk

POINT, SIZE = 32, 16
Messages = npt.NDArray[np.uint8]


def give(pairs: Messages, occasion: Occasion, purpose: str, coins: Coins) -> Talk[None]:
    """The sender: so many pairs of messages of 16 bytes, (count, 2, 16)."""
    group = _group()
    secret = _scalar(coins.child("secret"))
    mine = group.crypto_scalarmult_ristretto255_base(secret)
    if (yield mine):
        raise WireError("the receiver has nothing to say before it has the sender's point, and said something")
    theirs = _points((yield b""), len(pairs))
    away = group.crypto_scalarmult_ristretto255(secret, mine)
    keys = bytearray()
    for index, point in enumerate(theirs):
        label = occasion.label(purpose, index)
        first = _times(secret, point)
        keys += _key(label, mine, point, first)
        keys += _key(label, mine, point, group.crypto_core_ristretto255_sub(first, away))
    if (yield (np.frombuffer(keys, np.uint8).reshape(pairs.shape) ^ pairs).tobytes()):
        raise WireError("the receiver has nothing to say after its points, and said something")


def take(choices: Sequence[int], occasion: Occasion, purpose: str, coins: Coins) -> Talk[Messages]:
    """The receiver: the chosen message of each pair, (count, 16)."""
    group = _group()
    (theirs,) = _points((yield b""), 1)
    mine, keys = bytearray(), bytearray()
    for index, choice in enumerate(choices):
        secret = _scalar(coins.child("secret", index))
        base = group.crypto_scalarmult_ristretto255_base(secret)
        # Both are computed, so that the time taken does not tell which was wanted.
        point = (base, group.crypto_core_ristretto255_add(base, theirs))[choice]
        mine += point
        keys += _key(occasion.label(purpose, index), theirs, point, _times(secret, theirs))
    if (yield bytes(mine)):
        raise WireError("the sender has nothing to say before it has the receiver's points, and said something")
    data = yield b""
    if len(data) != len(choices) * 2 * SIZE:
        raise WireError(f"{len(data)} bytes, where {len(choices)} pairs of {SIZE} were to come")
    pairs = np.frombuffer(data, np.uint8).reshape(len(choices), 2, SIZE)
    chosen: Messages = pairs[np.arange(len(choices)), np.asarray(choices)]
    return chosen ^ np.frombuffer(keys, np.uint8).reshape(-1, SIZE)


@lru_cache(maxsize=1)
def _group() -> Any:
    try:
        import rbcl
    except ImportError:
        raise SpecError("oblivious transfer needs rbcl: pip install croupier[transfer], or let a dealer deal") from None
    return rbcl


def _scalar(coins: Coins) -> bytes:
    """A uniform exponent: 512 bits are reduced, so the bias is nil."""
    out: bytes = _group().crypto_core_ristretto255_scalar_reduce(bytes(coins.secure().bytes(64)))
    return out


def _times(secret: bytes, point: bytes) -> bytes:
    out: bytes = _group().crypto_scalarmult_ristretto255(secret, point)
    return out


def _points(data: bytes, count: int) -> list[bytes]:
    """Points of the group, none of them 0. Raises: WireError."""
    if len(data) != count * POINT:
        raise WireError(f"{len(data)} bytes, where {count} points of {POINT} were to come")
    points = [data[start : start + POINT] for start in range(0, len(data), POINT)]
    if any(point == bytes(POINT) or not _group().crypto_core_ristretto255_is_valid_point(point) for point in points):
        raise WireError("32 bytes that are no point of ristretto255, or the point 0")
    return points


def _key(label: bytes, one: bytes, two: bytes, secret: bytes) -> bytes:
    """The label binds occasion, purpose and index, and both points are what the parties said."""
    return sha256(label + one + two + secret).digest()[:SIZE]
