"""Canonical bytes of plain values, one encoding for each value, for state files and digests.

A value is None, bool, int, float, str, bytes, a torch tensor, a tuple, or a mapping with str keys. A list is written as
a tuple. Dataclasses can be written and digested, not loaded.

State files (`engine.store`, `service.player`), digests of models, cohorts and views, what parties sign, and everything
that is sent to an attack's process (`audit.blind`) are made of these bytes. A value has one encoding only, so that
equal digests mean equal values; pickle is never needed, and what a reader gets can hold no code. Messages between
parties use `core.wire` instead, whose lengths are fixed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, cast

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
_u64, _f64 = struct.Struct("<Q").pack, struct.Struct("<d").pack
_BACK = {name: dtype for dtype, name in DTYPES.items()}


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The raw little-endian bytes of a tensor, without a copy where it already lies that way."""
    # Most tensors lie as they should, and to ask first costs more than a small one's bytes.
    try:
        return memoryview(cast(Any, tensor.numpy())).cast("B")
    except (TypeError, RuntimeError):
        # On a device, with a gradient, not in one piece, or empty.
        array: Any = tensor.detach().cpu().contiguous().numpy()
        return memoryview(array).cast("B") if array.size else memoryview(b"")


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
    # By exact type first: most of what is written are words and numbers in mappings.
    if (scalar := _SCALARS.get(type(value))) is not None:
        put(scalar(value))
    elif isinstance(value, Mapping):
        _write_mapping(value, put)
    elif isinstance(value, tuple | list):
        put(b"T" + _u64(len(value)))
        for item in value:
            _write(item, put)
    elif isinstance(value, Tensor):
        if value.dtype not in DTYPES:
            raise WireError(f"a tensor of {value.dtype} has no canonical bytes")
        body = tensor_bytes(value)
        shape = struct.pack(f"<B{value.dim()}Q", value.dim(), *value.shape)
        put(b"A" + DTYPES[value.dtype].encode() + shape)
        put(body)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        put(b"D" + _sized(type(value).__name__.encode()))
        _write_mapping({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, put)
    else:
        put(_scalar(value))


def _write_mapping(value: Mapping[str, Value], put: Callable[[bytes | memoryview], Any]) -> None:
    put(b"M" + _u64(len(value)))
    if strange := [key for key in value if not isinstance(key, str)]:
        raise WireError(f"a mapping of plain values has text keys, not {type(strange[0]).__name__}")
    for key in sorted(value):
        put(_sized(_utf8(key)))
        _write(value[key], put)


def _sized(body: bytes) -> bytes:
    """Bytes after their number, so that what follows cannot be taken for a part of them."""
    return _u64(len(body)) + body


def _utf8(text: str) -> bytes:
    """Text as bytes. Raises: WireError for half of a surrogate pair, which has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"text has no UTF-8 form: {error.reason}") from None


def _whole(value: int) -> bytes:
    """Whole numbers are as short as can be: each has one form."""
    body = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"I" + _u64(len(body)) + body


# How a single value is written, after a letter for its kind.
_SCALARS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"+" if value else b"-",
    int: _whole,
    float: lambda value: b"F" + _f64(value),
    str: lambda value: b"S" + _sized(_utf8(value)),
    bytes: lambda value: b"B" + _sized(value),
}


def _scalar(value: Value) -> bytes:
    """A value of a type that is derived from that of a single value. Raises: WireError for anything else."""
    for kind in (int, float, str, bytes):
        if isinstance(value, kind):
            return _SCALARS[kind](value)
    raise WireError(f"{type(value).__name__} is not a plain value and has no canonical bytes")


def load(data: bytes) -> Value:
    """The value that these canonical bytes are. Raises: WireError on anything else, left-over bytes included."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise WireError(f"{len(data) - reader.at} bytes are left over after the value")
    return value


def _check_form(canonical: bool) -> None:
    """One value, one encoding: what would be written otherwise is refused, whatever it means."""
    if not canonical:
        raise WireError("the bytes are not the canonical form of the value they mean")


class _Reader:
    """Reads a value from bytes that may come from anywhere: no size is believed before its bytes are there.

    Three things could be written in several ways: a whole number, by its length, a mapping, by its order, and a
    tensor's truth values, by their bytes. Each is checked where it is read. All else has one form.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        """The next bytes. Raises: WireError where they end early."""
        return self.data[self.at : self._past(count)]

    def _past(self, count: int) -> int:
        """Go on by so many bytes, and say where they end; they begin so many before."""
        stop = self.at + count
        if stop > len(self.data):
            raise WireError(f"the bytes end early: {count} wanted at {self.at}, {len(self.data) - self.at} left")
        self.at = stop
        return stop

    def size(self) -> int:
        """A number of bytes, items or pairs to come."""
        stop = self._past(8)
        return int.from_bytes(self.data[stop - 8 : stop], "little")

    def piece(self) -> bytes:
        """Bytes after their number."""
        stop = self._past(size := self.size())
        return self.data[stop - size : stop]

    def text(self) -> str:
        """Text after its size. Raises: WireError."""
        try:
            return self.piece().decode()
        except UnicodeDecodeError as error:
            raise WireError(f"text is not UTF-8: {error.reason}") from None

    def whole(self) -> int:
        """A whole number, as short as can be."""
        body = self.piece()
        found = int.from_bytes(body, "little", signed=True)
        _check_form(len(body) == found.bit_length() // 8 + 1)
        return found

    def value(self, depth: int) -> Value:
        """The value that begins here; `depth` keeps hostile bytes from nesting for ever. Raises: WireError."""
        if depth > _DEPTH:
            raise WireError(f"values are nested deeper than {_DEPTH}")
        kind = self.data[self._past(1) - 1]
        if kind in _SINGLE:
            return _SINGLE[kind](self)
        if kind == _TUPLE:
            items = []
            for _ in range(self.size()):
                items.append(self.value(depth + 1))
            return tuple(items)
        if kind == _MAPPING:
            return self.mapping(depth)
        raise WireError(f"{bytes([kind])!r} starts no plain value")

    def mapping(self, depth: int) -> dict[str, Value]:
        """Values by name, in the order of their names."""
        found: dict[str, Value] = {}
        before = None
        for _ in range(self.size()):
            key = self.text()
            _check_form(before is None or before < key)
            found[key], before = self.value(depth + 1), key
        return found

    def tensor(self) -> Tensor:
        """A tensor: its type, its sides, its numbers. Raises: WireError on sides that the bytes could not fill."""
        dtype = self.take(3).decode("ascii", "replace")
        if dtype not in _BACK:
            raise WireError(f"{dtype!r} is not a dtype of ours")
        dims = self.take(1)[0]
        if dims > 32:
            raise WireError(f"a tensor of {dims} dimensions")
        shape = struct.unpack(f"<{dims}Q", self.take(8 * dims))
        count = math.prod(shape)
        if count == 0 and max(shape) > len(self.data):
            raise WireError("an empty tensor with an impossible side")
        stop = self._past(size := count * np.dtype(dtype).itemsize)
        body = memoryview(self.data)[stop - size : stop]
        if dtype == "|b1" and count and max(body) > 1:
            raise WireError("a truth value that is neither 0 nor 1")
        return tensor_from(body, dtype, shape)


_TUPLE, _MAPPING = ord("T"), ord("M")
# How a value is read that holds no others.
_SINGLE: dict[int, Callable[[_Reader], Value]] = {
    ord("N"): lambda reader: None,
    ord("+"): lambda reader: True,
    ord("-"): lambda reader: False,
    ord("I"): _Reader.whole,
    ord("F"): lambda reader: struct.unpack("<d", reader.take(8))[0],
    ord("S"): _Reader.text,
    ord("B"): _Reader.piece,
    ord("A"): _Reader.tensor,
}
