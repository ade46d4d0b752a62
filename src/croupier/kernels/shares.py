"""Additive shares in few bits, and inner products in the field of 2^61 - 1: compiled loops with plain references.

Sum servers add shares by these, and clients make and check tags (`place.servers`, `mpc.tags`). Totals are kept in the
smallest type that wraps around where the modulus does, so that no step of a sum needs a reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from croupier.kernels.threads import over

P = (1 << 61) - 1
Words = npt.NDArray[np.uint64]
_FEW = 1 << 10
# Numbers of so few bits share a key two by two.
_NARROW, _LANE = 28, 30


def total(count: int, bits: int) -> npt.NDArray[Any]:
    """A sum of nothing yet, in the smallest type that wraps around at a power of two above the modulus."""
    return np.zeros(count, np.uint32 if bits <= 32 else np.uint64)


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


def add(residues: npt.NDArray[Any], into: npt.NDArray[Any]) -> None:
    """Add residues to a total that wraps around."""
    same = residues.dtype.itemsize == into.dtype.itemsize
    into += residues.view(into.dtype) if same else residues.astype(into.dtype)


def keys(count: int, bits: int) -> int:
    """How many keys so many numbers of so many bits need."""
    return -(-count // 2) if bits <= _NARROW else count


def centred(bits: int) -> bool:
    """Whether `dot` takes residues of so few bits as they travel."""
    return bits <= _NARROW


def dot(words: Words, numbers: npt.NDArray[Any], bits: int) -> int:
    """The inner product of keys (the low 61 bits of words) and signed numbers, modulo 2^61 - 1.

    Numbers of few bits go two to a key, one above the other, which is as injective and takes half the work; in 32 bits
    they may be residues, which stand for the numbers nearest to 0.
    """
    if len(numbers) < _FEW:
        return dot_plain(words, numbers, bits)
    from croupier.kernels import _shares_jit as jit

    parts = list[int]()
    if numbers.dtype == np.int32 and centred(bits):
        over(len(numbers), 2, lambda a, b: parts.append(_halves(jit.halves(words[a // 2 :], numbers[a:b], bits))))
        return sum(parts) % P
    lane = _LANE if bits <= _NARROW else 0
    step = 2 if lane else 1
    over(len(numbers), step, lambda a, b: parts.append(int(jit.dot(words[a // step :], numbers[a:b], lane))))
    return sum(parts) % P


def _halves(sums: npt.NDArray[np.int64]) -> int:
    """Four sums of products of half a key with one lane, each in two words, put together."""
    one, two, three, four = (int(low) + (int(high) << 32) for low, high in sums.reshape(4, 2))
    return (one + (two << 31) + ((three + (four << 31)) << _LANE)) % P


def dot_plain(words: Words, numbers: npt.NDArray[Any], bits: int) -> int:
    """The same in whole numbers."""
    if numbers.dtype == np.int32 and centred(bits):
        half = 1 << (bits - 1)
        numbers = (numbers.astype(np.int64) + half) % (1 << bits) - half
    signed = [int(number) for number in numbers]
    if bits <= _NARROW:
        signed += [0] * (len(signed) % 2)
        signed = [low + (high << _LANE) for low, high in zip(signed[::2], signed[1::2], strict=True)]
    return sum((int(word) & P) * number for word, number in zip(words, signed, strict=False)) % P
