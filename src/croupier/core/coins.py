"""The source of randomness of protocols and experiments: a tree of 32-byte seeds.

A protocol asks a node for *choices* (bounded integers, permutations, masks, normals), so that a scripted `Tape`
(`tests/tape.py`) can stand in for the node and walk every outcome. Keys and seeds to send are bare seeds (`export`).

A node is named by its path of labels: the same path gives the same choices in every run of that seed, in any order and
on any machine, and no two paths share any. That is why a run repeats to the byte, why a second attempt sends the very
same update, and why two protocols can be compared on the same draws. Only a store's nonces (`service.database`) and
some benches draw elsewhere.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from croupier.core.keystream import BLOCK as CIPHER_BLOCK
from croupier.core.keystream import Keystream
from croupier.core.normal import from_words, on_device
from croupier.errors import RangeError
from croupier.kernels import lanes, permute, residues, unary
from croupier.kernels.packed import Draw, Source

Label = str | int | bytes
Ints = npt.NDArray[np.int64]
Packed = npt.NDArray[np.uint8]

# Randomness is bound to blocks of coordinates of this size, so that the order of the work never changes an outcome.
BLOCK = 1 << 16
# Longer permutations are made by sorting; and bytes that stay in the nearest cache while they are drawn and added.
_LONG = 1 << 15
_SCRATCH = 1 << 16


class Choices(Protocol):
    """What a protocol may draw."""

    def below(self, limit: int, count: int = 1) -> Ints:
        """`count` independent uniform integers in [0, limit)."""

    def permutation(self, size: int) -> Ints:
        """A uniform permutation of range(size)."""

    def permute_columns(self, rows: npt.NDArray[Any]) -> None:
        """Permute each column of a (rows, columns) array in place, uniformly and independently."""

    def permute_blocks(self, rows: Packed, count: int, moduli: tuple[int, ...], *, back: bool = False) -> Packed:
        """Rows of `count` residues in unary, each block's bits permuted uniformly (`kernels.unary`), or put back."""

    def mask(self, modulus: int, count: int) -> Ints:
        """`count` uniform residues: a one-time pad modulo `modulus`."""

    def blind(self, total: npt.NDArray[Any], bits: int, *, minus: bool = False) -> None:
        """Add uniform residues of 2^bits to a total that wraps around at a multiple of it, or take them away."""

    def packed(self, bits: int) -> Source:
        """Uniform residues of 2^bits, one after another without gaps (see `kernels.packed`)."""

    def scatter(self, ones: Ints, people: int, moduli: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """Rows of bits in which each block's ones lie in a uniform arrangement (see `kernels.residues`)."""

    def normal(self, count: int) -> npt.NDArray[np.float64]:
        """`count` independent standard normals."""

    def gaussian(self, count: int, device: torch.device) -> torch.Tensor:
        """The same normals as a tensor on a device; on another than the CPU they may differ in last bits."""


class Node(Protocol):
    """A place in a tree of coins."""

    def child(self, *labels: Label) -> Node:
        """The node below this one that the labels name."""

    def secure(self) -> Choices:
        """The choices of this node."""


class Coins:
    """A node of the seed tree; `from_seed` and `from_os` make roots, and so does a seed that another party sent."""

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise RangeError(f"a seed has 32 bytes, not {len(seed)}; use Coins.from_seed(number) for a short one")
        self._known: bytes | None = seed
        self._above: tuple[Coins, tuple[Label, ...]] | None = None

    @classmethod
    def from_seed(cls, number: int) -> Coins:
        """The root that a short, memorable number stands for: reproducible, and no secret."""
        if number < 0:
            raise RangeError(f"seed = {number}: a seed is a whole number of at least 0")
        body = number.to_bytes((number.bit_length() + 7) // 8 or 1, "big")
        return cls(HKDF(hashes.SHA256(), 32, b"croupier/1", b"seed number").derive(body))

    @classmethod
    def from_os(cls) -> Coins:
        """A fresh secret root."""
        return cls(os.urandom(32))

    def child(self, *labels: Label) -> Coins:
        """The node below this one that the labels name; every label is typed and length-prefixed."""
        node = object.__new__(type(self))
        # Derived when first drawn from: a protocol names many nodes that a simple part never uses.
        node._known, node._above = None, (self, labels)
        return node

    def secure(self) -> Stream:
        """This node's choices, from a stream cipher. Calling it twice gives the same choices: use a node once."""
        return Stream(self._expand(b"stream"))

    def fast(self, device: str | torch.device = "cpu") -> torch.Generator:
        """A torch generator for draws that hide nothing: batch order, starts of attacks and the like."""
        generator = torch.Generator(device=device)
        return generator.manual_seed(self._number())

    def sampler(self) -> np.random.Generator:
        """A NumPy generator for draws that hide nothing: splits, cohorts, and clients that a rule takes."""
        return np.random.Generator(np.random.Philox(key=int.from_bytes(self._expand(b"sampler")[:16], "little")))

    @contextmanager
    def ambient(self) -> Iterator[None]:
        """Seed torch's global generator for libraries that take no other (initial weights), and put it back after."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._number())
            yield

    def export(self) -> bytes:
        """The bare seed, for a manifest of a simulation, a key, or a message that shares it on purpose."""
        if self._known is None:
            # Read once: clients may ask in threads of their own, and whoever finds no node above finds the seed.
            if (link := self._above) is not None:
                self._known = link[0]._expand(b"child", *link[1])
                # Forget the node above: from now on whoever holds this one cannot reach its siblings.
                self._above = None
            if self._known is None:
                raise RangeError("these coins have no seed")
        return self._known

    def _number(self) -> int:
        return int.from_bytes(self._expand(b"fast")[:8], "little") >> 1

    def _expand(self, purpose: bytes, *labels: Label) -> bytes:
        # HKDF-Expand for one block is this one HMAC; the direct call is several times faster.
        return hmac.digest(self.export(), _info(b"croupier/1", purpose, *labels), "sha256")

    def __repr__(self) -> str:
        return "Coins(...)"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("coins are not pickled: a seed must not leave its party by accident")


# HKDF's info (what a derivation is for) and the number of its only block. Clients of a round ask by the same few paths.
@lru_cache(maxsize=1 << 12, typed=True)
def _info(*labels: Label) -> bytes:
    return b"".join([_frame(label) for label in labels]) + b"\x01"


@lru_cache(maxsize=1 << 16, typed=True)  # as many as there may be clients in a simulation
def _frame(label: Label) -> bytes:
    """Typed and length-prefixed, so that no two lists of labels share an encoding."""
    if isinstance(label, str):
        kind, body = b"s", label.encode()
    elif isinstance(label, bytes):
        kind, body = b"b", label
    else:
        kind, body = b"i", label.to_bytes(label.bit_length() // 8 + 1, "big", signed=True)
    return kind + len(body).to_bytes(8, "big") + body


class Stream:
    """Choices from AES-256 in counter mode under one node's key: what `Coins.secure` gives."""

    __slots__ = ("_key", "_made")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._made: Keystream | None = None

    @property
    def _stream(self) -> Keystream:
        """Made when first drawn from: `packed` opens streams of its own."""
        if self._made is None:
            self._made = Keystream(self._key)
        return self._made

    def __repr__(self) -> str:
        return "Stream(...)"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("streams are not pickled: a key must not leave its party by accident")

    def bytes(self, count: int) -> bytearray:
        """The next bytes of the stream."""
        out = bytearray(count)
        self._stream.fill(memoryview(out))
        return out

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The next 64-bit words of the stream."""
        return np.frombuffer(self.bytes(8 * count), "<u8")

    def below(self, limit: int, count: int = 1) -> Ints:
        """Uniform integers in [0, limit): words past the last whole multiple of the limit are drawn again."""
        if not 1 <= limit <= 1 << 63:
            raise RangeError(f"limit = {limit}: choices are drawn below 1 to 2^63")
        ceiling = (1 << 64) // limit * limit - 1
        if count == 1:
            # The same without arrays, which cost several times more than one number.
            while (word := int(self.words(1)[0])) > ceiling:
                pass
            return np.array([word % limit], np.int64)
        out = np.empty(count, np.int64)
        filled = 0
        while filled < count:
            words = self.words(count - filled)
            good = words[words <= np.uint64(ceiling)]
            out[filled : filled + len(good)] = (good % np.uint64(limit)).astype(np.int64)
            filled += len(good)
        return out

    def permutation(self, size: int) -> Ints:
        """A uniform permutation of range(size), by Fisher and Yates; of a long one by sorting tags of 128 bits.

        Sorting is quicker for so many, and two tags are equal with a chance that is too small to matter.
        """
        if size > _LONG:
            tags = self.words(2 * size).reshape(size, 2)
            return np.lexsort((tags[:, 1], tags[:, 0]))
        column = np.arange(size, dtype=np.int64).reshape(size, 1)
        self.permute_columns(column)
        return column[:, 0]

    def permute_columns(self, rows: npt.NDArray[Any]) -> None:
        """Permute each column in place, uniformly and independently."""
        permute.columns(rows, self.words)

    def permute_blocks(self, rows: Packed, count: int, moduli: tuple[int, ...], *, back: bool = False) -> Packed:
        """Permute many blocks side by side while they are small, or else as columns of a table."""
        if lanes.fit(len(rows), moduli):
            return lanes.moved(rows, count, moduli, self.words, back=back)
        return unary.moved(rows, count, moduli, self.permute_columns, back=back)

    def mask(self, modulus: int, count: int) -> Ints:
        """Uniform residues."""
        return self.below(modulus, count)

    def blind(self, total: npt.NDArray[Any], bits: int, *, minus: bool = False) -> None:
        """Add a whole word of the stream to each number, which is uniform modulo every power of two up to its size."""
        step = _SCRATCH // total.dtype.itemsize
        buffer = bytearray(_SCRATCH)
        words = np.frombuffer(buffer, total.dtype.newbyteorder("<"))
        for start in range(0, len(total), step):
            part = total[start : start + step]
            self._stream.fill(memoryview(buffer)[: part.nbytes])
            (np.subtract if minus else np.add)(part, words[: len(part)], out=part)

    def packed(self, bits: int) -> Source:
        """The stream's bits from any block of the cipher on, whatever was drawn of it before."""

        def opened(first: int) -> Draw:
            start, rest = divmod(first * bits, 8 * CIPHER_BLOCK)
            if rest:
                raise RangeError(f"residue {first} of {bits} bits does not begin where a block of the cipher does")
            stream = Keystream(self._key, start)

            def draw(out: npt.NDArray[np.uint64], count: int) -> None:
                stream.fill(out.view(np.uint8).data)

            return draw

        return opened

    def scatter(self, ones: Ints, people: int, moduli: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """Rows of bits in which each block's ones lie in a uniform arrangement."""
        return residues.scatter(ones, people, moduli, self._narrow)

    def _narrow(self, count: int, bits: int) -> npt.NDArray[Any]:
        return np.frombuffer(self.bytes(count * bits // 8), f"<u{bits // 8}")

    def normal(self, count: int) -> npt.NDArray[np.float64]:
        """Standard normals, the same bits on every machine."""
        return from_words(self.words(count))

    def gaussian(self, count: int, device: torch.device) -> torch.Tensor:
        """Standard normals; elsewhere than on the CPU only the words are drawn here, because the rest takes long."""
        if device.type == "cpu":
            return torch.from_numpy(self.normal(count))
        return on_device(torch.from_numpy(self.words(count).view(np.int64)).to(device))
