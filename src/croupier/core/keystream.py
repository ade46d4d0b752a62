"""The bytes of AES-256 in counter mode, by whichever of two ways is quicker on this machine.

All choices of `core.coins`, the only caller, are made of these bytes, so that for large vectors the cipher is much of a
round's work. GCM enciphers in counter mode, too, from block 2 of its nonce on. In the library below (`cryptography`)
the loop for it is newer and, on processors with wide registers, more than twice as fast, though it also makes a tag,
which nobody asks for here. Both ways give the same bytes.

A nonce spans 2^32 blocks (64 GiB), and GCM takes over only where a long draw begins at the first of them. Short draws
take the plain way, and after one the rest of its nonce's blocks do, too.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

BLOCK = 16
# Input of zeros, in pieces that stay in a core's own cache: several times faster than one long call.
_ZEROS = memoryview(bytes(1 << 20))
# From so many bytes on a second cipher is worth its making.
_LONG = 1 << 16
# Blocks that share the upper 96 bits of their counter, which are GCM's nonce.
_SHARED = 1 << 32
# GCM enciphers from block 2 of a nonce on: it makes its tag with block 1, and leaves block 0 out.
_OWN = 2


class Keystream:
    """The stream under one key from one of its blocks on."""

    __slots__ = ("_cipher", "_far", "_key", "_left", "_wide")

    def __init__(self, key: bytes, block: int = 0) -> None:
        self._key = key
        self._open(block)

    def __repr__(self) -> str:
        return "Keystream(...)"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("streams are not pickled: a key must not leave its party by accident")

    def _open(self, block: int) -> None:
        """Begin at a block, the plain way (`_wide`: by GCM).

        `_far` is the upper 96 bits of its counter, which are GCM's nonce, and `_left` the bytes left under that nonce.
        """
        self._cipher: Any = Cipher(algorithms.AES(self._key), modes.CTR(block.to_bytes(BLOCK, "big"))).encryptor()
        self._wide = False
        self._far, low = divmod(block, _SHARED)
        self._left = (_SHARED - low) * BLOCK

    def fill(self, out: memoryview) -> None:
        """Write the next bytes of the stream over all of `out`."""
        while len(out) > self._left:
            part, out = out[: self._left], out[self._left :]
            self.fill(part)
            self._open((self._far + 1) * _SHARED)
        self._left -= len(out)
        if len(out) >= _LONG and not self._wide and self._left + len(out) == _SHARED * BLOCK and by_gcm():
            self._cipher.update_into(_ZEROS[: _OWN * BLOCK], out[: _OWN * BLOCK])
            self._cipher, self._wide = _gcm(self._key, self._far), True
            out = out[_OWN * BLOCK :]
        for at in range(0, len(out), len(_ZEROS)):
            piece = out[at : at + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(piece)], piece)


def _gcm(key: bytes, upper: int) -> Any:
    return Cipher(algorithms.AES(key), modes.GCM(upper.to_bytes(12, "big"))).encryptor()


@lru_cache(maxsize=1)
def by_gcm() -> bool:
    """Whether GCM is the quicker way here: tried once in a process, which takes a tenth of a millisecond."""
    key, out = bytes(32), memoryview(bytearray(_LONG))
    ways = (Cipher(algorithms.AES(key), modes.CTR(bytes(BLOCK))).encryptor(), _gcm(key, 0))
    plain, wide = (min(_seconds(way, out) for _ in range(4)) for way in ways)
    return wide < plain


def _seconds(cipher: Any, out: memoryview) -> float:
    start = time.perf_counter()
    cipher.update_into(_ZEROS[: len(out)], out)
    return time.perf_counter() - start
