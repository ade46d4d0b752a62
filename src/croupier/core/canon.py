"""Canonical bytes of plain values: one value, one encoding. For state files and digests; never needs pickle.

A value is None, bool, int, float, str, bytes, a torch tensor, a tuple, or a mapping with str keys. Frozen dataclasses
can be digested, not loaded.

State files, digests of protocols and of data, and everything that is sent to an attack's process are made of these
bytes. A value has one encoding only, so that equal digests mean equal values; what a reader gets can hold no code.
Messages between parties use `core.wire` instead, whose lengths are fixed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.errors import WireError

Value = Any
DTYPES = {
    torch.float32: "<f4", torch.float64: "<f8", torch.uint8: "|u1", torch.int32: "<i4", torch.int64: "<i8",
    torch.bool: "|b1",
}  # fmt: skip
_DEPTH = 64
_BACK = {name: dtype for dtype, name in DTYPES.items()}


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The raw little-endian bytes of a tensor, without a copy where it already lies that way."""
    if not tensor.numel():
        return memoryview(b"")
    # Most tensors lie as they should, and four calls cost more than a small one's bytes.
    plain = tensor.device.type == "cpu" and not tensor.requires_grad and tensor.is_contiguous()
    array: Any = (tensor if plain else tensor.detach().cpu().contiguous()).numpy()
    return memoryview(array).cast("B")


def tensor_from(data: memoryview | bytes | bytearray, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor that these bytes are; it owns its memory."""
    array = np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()
    return torch.from_numpy(array)


def dump(value: Value) -> bytes:
    """Canonical bytes."""
    out: list[bytes | memoryview] = []
    _write(value, out.append)
    return b"".join(out)


def digest(value: Value) -> bytes:
    """SHA-256 of the canonical bytes, without holding them."""
    state = hashlib.sha256()
    _write(value, state.update)
    return state.digest()


def _write(value: Value, put: Callable[[bytes | memoryview], Any]) -> None:
    """Hand a value's canonical bytes to `put`, piece by piece: a digest needs no copy of a large tensor."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = sorted(field.name for field in dataclasses.fields(value))
        put(b"D" + _sized(type(value).__name__.encode()))
        return _write({name: getattr(value, name) for name in names}, put)
    if isinstance(value, Mapping):
        put(b"M" + struct.pack("<Q", len(value)))
        if strange := [key for key in value if not isinstance(key, str)]:
            raise WireError(f"a mapping of plain values has text keys, not {type(strange[0]).__name__}")
        for key in sorted(value):
            put(_sized(_utf8(key)))
            _write(value[key], put)
        return None
    if isinstance(value, tuple | list):
        put(b"T" + struct.pack("<Q", len(value)))
        for item in value:
            _write(item, put)
        return None
    if isinstance(value, Tensor):
        if value.dtype not in DTYPES:
            raise WireError(f"a tensor of {value.dtype} has no canonical bytes")
        body = tensor_bytes(value)
        shape = struct.pack(f"<B{value.dim()}Q", value.dim(), *value.shape)
        put(b"A" + DTYPES[value.dtype].encode() + shape)
        put(body)
        return None
    put(_scalar(value))
    return None


def _sized(body: bytes) -> bytes:
    """Bytes after their number, so that what follows cannot be taken for a part of them."""
    return struct.pack("<Q", len(body)) + body


def _utf8(text: str) -> bytes:
    """Text as bytes. Raises: WireError for half of a surrogate pair, which has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"text has no UTF-8 form: {error.reason}") from None


def _scalar(value: Value) -> bytes:
    """A single value after a letter for its kind; whole numbers are as short as can be: each has one form."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"+" if value else b"-"
        case int():
            return b"I" + _sized(value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        case float():
            return b"F" + struct.pack("<d", value)
        case str():
            return b"S" + _sized(_utf8(value))
        case bytes():
            return b"B" + _sized(value)
    raise WireError(f"{type(value).__name__} is not a plain value and has no canonical bytes")


def load(data: bytes) -> Value:
    """The value that these canonical bytes are. Raises: WireError on anything else, left-over bytes included."""
    reader = _Reader(memoryview(data))
    value = reader.value(0)
    if reader.at != len(data):
        raise WireError(f"{len(data) - reader.at} bytes are left over after the value")
    # One value, one encoding: what would be written otherwise is refused, whatever it means.
    if digest(value) != hashlib.sha256(data).digest():
        raise WireError("the bytes are not the canonical form of the value they mean")
    return value


class _Reader:
    """Reads a value from bytes that may come from anywhere: no size is believed before its bytes are there."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> memoryview:
        """The next bytes. Raises: WireError where they end early."""
        if count > len(self.data) - self.at:
            raise WireError(f"the bytes end early: {count} wanted at {self.at}, {len(self.data) - self.at} left")
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def size(self) -> int:
        """A number of bytes, items or pairs to come."""
        return int(struct.unpack("<Q", self.take(8))[0])

    def text(self) -> str:
        """Text after its size. Raises: WireError."""
        try:
            return bytes(self.take(self.size())).decode()
        except UnicodeDecodeError as error:
            raise WireError(f"text is not UTF-8: {error.reason}") from None

    def value(self, depth: int) -> Value:
        """The value that begins here; `depth` keeps hostile bytes from nesting for ever. Raises: WireError."""
        if depth > _DEPTH:
            raise WireError(f"values are nested deeper than {_DEPTH}")
        kind = bytes(self.take(1))
        plain = {b"N": None, b"+": True, b"-": False}
        if kind in plain:
            return plain[kind]
        readers: dict[bytes, Callable[[], Value]] = {
            b"I": lambda: int.from_bytes(self.take(self.size()), "little", signed=True),
            b"F": lambda: struct.unpack("<d", self.take(8))[0],
            b"S": self.text,
            b"B": lambda: bytes(self.take(self.size())),
            b"T": lambda: tuple(self.value(depth + 1) for _ in range(self.size())),
            b"M": lambda: {self.text(): self.value(depth + 1) for _ in range(self.size())},
            b"A": self.tensor,
        }
        if kind not in readers:
            raise WireError(f"{kind!r} starts no plain value")
        return readers[kind]()

    def tensor(self) -> Tensor:
        """A tensor: its type, its sides, its numbers. Raises: WireError on sides that the bytes could not fill."""
        dtype = bytes(self.take(3)).decode("ascii", "replace")
        if dtype not in _BACK:
            raise WireError(f"{dtype!r} is not a dtype of ours")
        dims = self.take(1)[0]
        if dims > 32:
            raise WireError(f"a tensor of {dims} dimensions")
        shape = struct.unpack(f"<{dims}Q", self.take(8 * dims))
        count = 1
        for side in shape:
            count *= side
        if count == 0 and max(shape) > len(self.data):
            raise WireError("an empty tensor with an impossible side")
        body = self.take(count * np.dtype(dtype).itemsize)
        if dtype == "|b1" and count and max(body) > 1:
            raise WireError("a truth value that is neither 0 nor 1")
        return tensor_from(body, dtype, shape)
