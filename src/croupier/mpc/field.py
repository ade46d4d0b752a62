"""Two fields as values: whole numbers modulo 2^61 - 1, and GF(2^128).

Elements lie in arrays of 64-bit words, one or two to an element, always as the last dimension.

The prime field carries shares of numbers with their tags, because numbers add up in it as they are while sums stay
below 2^61 - 1. GF(2^128) carries hashes of rows of bits with theirs, because there a difference is an XOR. RAIN checks
its shuffle (`place.two_servers.shuffle_check`) in the one with `check = "product"`, in the other with `check = "hash"`;
so the tagged shares of `authentic` take a `ShareField` and do not ask which. Products are made in `kernels.field`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from croupier.core.coins import Stream
from croupier.kernels import field as kernel
from croupier.kernels.field import Words
from croupier.kernels.shares import P


class ShareField(ABC):
    """The field in which shares are added and multiplied."""

    words: ClassVar[int]

    @abstractmethod
    def draw(self, stream: Stream, count: int) -> Words:
        """Uniform elements."""

    @abstractmethod
    def add(self, one: Words, two: Words) -> Words:
        """Sums."""

    @abstractmethod
    def sub(self, one: Words, two: Words) -> Words:
        """Differences."""

    @abstractmethod
    def mul(self, one: Words, two: Words) -> Words:
        """Products."""

    @abstractmethod
    def total(self, elements: Words) -> Words:
        """The sum of all, as one element."""

    def valid(self, elements: Words) -> bool:
        """Whether these words are elements."""
        return True


class Prime(ShareField):
    """Whole numbers modulo 2^61 - 1."""

    words = 1

    def draw(self, stream: Stream, count: int) -> Words:
        """61 bits each; the one word that is no element is drawn again."""
        drawn = stream.words(count) >> np.uint64(3)
        while len(bad := np.flatnonzero(drawn == P)):
            drawn[bad] = stream.words(len(bad)) >> np.uint64(3)
        return drawn.reshape(count, 1)

    def add(self, one: Words, two: Words) -> Words:
        """Sums."""
        return _lessened(one + two)

    def sub(self, one: Words, two: Words) -> Words:
        """Differences."""
        return _lessened(one + (np.uint64(P) - two))

    def mul(self, one: Words, two: Words) -> Words:
        """Products."""
        one, two = np.broadcast_arrays(one, two)
        return kernel.products(one.reshape(-1), two.reshape(-1)).reshape(one.shape)

    def total(self, elements: Words) -> Words:
        """The sum of all."""
        low = int((elements & np.uint64(0xFFFFFFFF)).sum(dtype=object)) if elements.size else 0
        high = int((elements >> np.uint64(32)).sum(dtype=object)) if elements.size else 0
        return np.array([[(low + (high << 32)) % P]], np.uint64)

    def valid(self, elements: Words) -> bool:
        """Whether all are below 2^61 - 1."""
        return bool((elements < np.uint64(P)).all())


class Binary(ShareField):
    """GF(2^128)."""

    words = 2

    def draw(self, stream: Stream, count: int) -> Words:
        """Uniform elements: any two words are one."""
        return stream.words(2 * count).reshape(count, 2)

    def add(self, one: Words, two: Words) -> Words:
        """Sums, which are the bits that differ."""
        return one ^ two

    def sub(self, one: Words, two: Words) -> Words:
        """Differences, which are the same as sums."""
        return one ^ two

    def mul(self, one: Words, two: Words) -> Words:
        """Products of polynomials, modulo the one of the field."""
        one, two = np.broadcast_arrays(one, two)
        return kernel.carryless(one.reshape(-1, 2), two.reshape(-1, 2)).reshape(one.shape)

    def total(self, elements: Words) -> Words:
        """The sum of all."""
        return np.bitwise_xor.reduce(elements.reshape(-1, 2), axis=0, keepdims=True)


PRIME, BINARY = Prime(), Binary()


def _lessened(sums: Words) -> Words:
    return np.where(sums >= P, sums - np.uint64(P), sums)
