"""The wire: every message has one canonical encoding of a length that the protocol fixes.

An envelope is a fixed-length header and a body of raw little-endian numbers. In process it is cut into chunks of 1
MiB, each sealed under the link's key with header and chunk number as associated data, so altered bytes are caught.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from torch import Tensor

from croupier.core.canon import DTYPES, tensor_bytes, tensor_from
from croupier.core.coins import Coins
from croupier.core.update import check_finite
from croupier.errors import IntegrityError, RangeError, WireError
from croupier.kernels import pack, residues

VERSION = 1
CHUNK = 1 << 20
NAME = 32
KIND = 16
_HEADER = struct.Struct(f"<H32s16sIH{KIND}s{NAME}s{NAME}sIQ")
HEADER_BYTES = _HEADER.size
_PIECE = struct.Struct("<II")
_PIECES = 1 << 16
_BACK = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class Field:
    """One array of a body.

    A side of the shape may name an earlier field of zeros and ones: as many as it has ones. Integers with a `top` lie
    in [0, top], and not strictly inside a `gap`; floats are finite, always, and above 0 where `positive`. With
    `share_last` the last value is a share of 1. With `widths`, integers travel in that many bits each, without
    gaps; the widths repeat along the last side. Of bytes that hold bits, the last `spare` ones of all are 0.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    top: int | None = None
    gap: tuple[int, int] | None = None
    positive: bool = False
    share_last: bool = False
    widths: tuple[int, ...] = ()
    spare: int = 0

    def dims(self, known: Mapping[str, Tensor]) -> tuple[int, ...]:
        """The shape once the fields before it are known."""
        return tuple(int(known[side].sum()) if isinstance(side, str) else side for side in self.shape)


@dataclass(frozen=True)
class Schema:
    """The fields of one kind of message, in order."""

    fields: tuple[Field, ...]

    def check(self, values: Mapping[str, Tensor]) -> None:
        """Raises: RangeError when the values are not what this message carries."""
        self._check_form(values)
        for field in self.fields:
            _check_content(field, values[field.name])

    def _check_form(self, values: Mapping[str, Tensor]) -> None:
        if set(values) != {field.name for field in self.fields}:
            raise RangeError(f"fields {sorted(values)}, not {sorted(field.name for field in self.fields)}")
        for field in self.fields:
            got = values[field.name]
            if DTYPES.get(got.dtype) != field.dtype:
                raise RangeError(f"{field.name} has dtype {got.dtype}, not {_BACK[field.dtype]}")
            if tuple(got.shape) != field.dims(values):
                raise RangeError(f"{field.name} has shape {tuple(got.shape)}, not {field.dims(values)}")

    def pack(self, values: Mapping[str, Tensor]) -> bytes:
        """Canonical bytes of the values, in form only: what they hold is checked at the receiver's door."""
        self._check_form(values)
        return b"".join(_packed(field, values[field.name]) for field in self.fields)

    def unpack(self, data: bytes | memoryview) -> dict[str, Tensor]:
        """The values. Raises: WireError when bytes are missing or left over; RangeError when a value may not be."""
        view, at, values = memoryview(data), 0, dict[str, Tensor]()
        for field in self.fields:
            shape = field.dims(values)
            stop = at + _length(field, math.prod(shape))
            if stop > len(view):
                raise WireError(f"{field.name} ends {stop - len(view)} bytes after the message")
            values[field.name] = _unpacked(field, view[at:stop], shape)
            _check_content(field, values[field.name])
            at = stop
        if at != len(view):
            last = self.fields[-1].name if self.fields else "nothing"
            raise WireError(f"{len(view) - at} bytes are left over after {last}")
        return values

    @cached_property
    def most_bytes(self) -> int:
        """The longest body that a message of this kind can have: known before a byte of it is read."""
        sides: dict[str, int] = {}
        total = 0
        for field in self.fields:
            # A side that names a field of zeros and ones is at most as long as that field.
            count = math.prod(sides[side] if isinstance(side, str) else side for side in field.shape)
            sides[field.name] = count
            total += _length(field, count)
        return total


def _length(field: Field, count: int) -> int:
    """Bytes that so many values take."""
    if field.widths:
        return pack.size(count // len(field.widths), field.widths)
    return count * np.dtype(field.dtype).itemsize


def _packed(field: Field, values: Tensor) -> bytes | memoryview:
    if not field.widths:
        return tensor_bytes(values)
    # Narrowing must not change a value in silence, also not for a sender that lies: it may only lie within the width.
    rows = values.reshape(-1, len(field.widths)).numpy()
    # The bits that occur anywhere in a column: in one pass, whether all of its values fit.
    seen = np.bitwise_or.reduce(rows, 0) if rows.size else np.zeros(0, np.int64)
    if any(int(bits) < 0 or int(bits) >> width for bits, width in zip(seen, field.widths, strict=bool(rows.size))):
        raise RangeError(f"{field.name} holds values that need more bits than the {list(field.widths)} it has")
    return pack.pack(rows, field.widths).data


def _unpacked(field: Field, data: memoryview, shape: tuple[int, ...]) -> Tensor:
    if not field.widths:
        return tensor_from(data, field.dtype, shape)
    rows = math.prod(shape) // len(field.widths)
    body = np.frombuffer(data, np.uint8)
    unused = 8 * len(body) - rows * sum(field.widths)
    if unused and body[-1] >> (8 - unused):
        raise WireError(f"{field.name} has bits set after its end")
    return torch.from_numpy(pack.unpack(body, rows, field.widths, np.dtype(field.dtype)).reshape(shape))


def _check_content(field: Field, values: Tensor) -> None:
    check_finite(values, field.name)
    if field.spare and values.numel() and bool((values[..., -1] >> (8 - field.spare)).any()):
        raise RangeError(f"{field.name} has bits set after its end")
    if field.top is not None and bool(((values < 0) | (values > field.top)).any()):
        raise RangeError(f"{field.name} holds values outside 0 to {field.top}")
    if field.gap is not None and bool(((values > field.gap[0]) & (values < field.gap[1])).any()):
        raise RangeError(
            f"{field.name} holds residues between {field.gap[0]} and {field.gap[1]}, which no client sends"
        )
    if field.positive and not bool((values > 0).all()):
        raise RangeError(f"{field.name} is not above 0")
    if field.share_last and not 0 <= float(values.reshape(-1)[-1]) <= 1:
        raise RangeError(f"{field.name} ends in a weight that is no share of 1")


@dataclass(frozen=True)
class Header:
    """What an envelope says about itself; sealed with the body, so it cannot be changed apart from it."""

    spec: bytes
    run: bytes
    round: int
    attempt: int
    kind: str
    source: str
    target: str
    sequence: int
    length: int

    def pack(self) -> bytes:
        """The fixed-length header. Raises: RangeError when a field does not fit."""
        if len(self.spec) != 32 or len(self.run) != 16:
            sizes = f"{len(self.spec)} and {len(self.run)}"
            raise RangeError(f"a header names the protocol by 32 bytes and the run by 16, not by {sizes}")
        tops = {"round": 1 << 32, "attempt": 1 << 16, "sequence": 1 << 32, "length": 1 << 64}
        for name, top in tops.items():
            if not 0 <= getattr(self, name) < top:
                raise RangeError(f"{name} = {getattr(self, name)}: a header holds 0 to {top - 1}")
        names = [_padded(self.kind, KIND), _padded(self.source, NAME), _padded(self.target, NAME)]
        return _HEADER.pack(VERSION, self.spec, self.run, self.round, self.attempt, *names, self.sequence, self.length)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header:
        """Read a header. Raises: WireError."""
        if len(data) != _HEADER.size:
            raise WireError(f"a header has {_HEADER.size} bytes, not {len(data)}")
        version, spec, run, round_, attempt, kind, source, target, sequence, length = _HEADER.unpack(data)
        if version != VERSION:
            raise WireError(f"version {version} of the wire format; this program speaks {VERSION}")
        return cls(spec, run, round_, attempt, _text(kind), _text(source), _text(target), sequence, length)


def _padded(name: str, size: int) -> bytes:
    try:
        body = name.encode()
    except UnicodeEncodeError:
        body = b""
    if not body or len(body) > size or b"\0" in body:
        raise RangeError(f"{name!r}: a name on the wire has 1 to {size} bytes and no zero byte")
    return body.ljust(size, b"\0")


def _text(body: bytes) -> str:
    name = body.rstrip(b"\0")
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise WireError("a name in the header is not UTF-8") from None
    if not text or b"\0" in name:
        raise WireError("a name in the header is empty or padded inside")
    return text


@dataclass(frozen=True)
class Envelope:
    """A header with its body."""

    header: Header
    body: bytes = dataclasses.field(repr=False)

    @cached_property
    def size(self) -> int:
        """Bytes of the encoded message, header included. The channel's own cost (tags, TLS) is not the protocol's."""
        return _HEADER.size + len(self.body)

    def pack(self) -> bytes:
        """The whole message."""
        return self.header.pack() + self.body

    @classmethod
    def unpack(cls, data: bytes) -> Envelope:
        """Read a whole message. Raises: WireError when its length is not the one it states."""
        header = Header.unpack(memoryview(data)[: _HEADER.size])
        if len(data) != _HEADER.size + header.length:
            raise WireError(f"body of {len(data) - _HEADER.size} bytes, {header.length} stated")
        return cls(header, data[_HEADER.size :])


class Link:
    """Sealing and opening between one sender and one receiver. Each end of the link builds its own."""

    def __init__(self, coins: Coins, source: str, target: str) -> None:
        self._aead = AESGCM(coins.child("link", source, target).export())
        self.source, self.target = source, target
        self._parts: dict[bytes, dict[int, bytes]] = {}
        self._counts: dict[bytes, int] = {}
        self._seen: set[bytes] = set()

    def seal(self, envelope: Envelope) -> list[bytes]:
        """The sealed chunks of an envelope."""
        head = envelope.header.pack()
        count = max(1, -(-len(envelope.body) // CHUNK))
        if count > _PIECES:
            raise RangeError(f"a body of {len(envelope.body)} bytes: a message holds {_PIECES} chunks of 1 MiB at most")
        body = memoryview(envelope.body)
        packets = []
        for index in range(count):
            clear = head + _PIECE.pack(index, count)
            piece = body[index * CHUNK : (index + 1) * CHUNK]
            packets.append(clear + self._aead.encrypt(_nonce(envelope.header, index), piece, clear))
        return packets

    def open(self, packet: bytes) -> Envelope | None:
        """Take one sealed chunk; the envelope when it is whole, None while chunks are missing.

        Raises: IntegrityError when the chunk was altered or repeated; WireError when it is no chunk at all.
        """
        start = _HEADER.size + _PIECE.size
        if len(packet) < start + 16:
            raise WireError(f"a sealed chunk of {len(packet)} bytes is too short")
        clear = packet[:start]
        header = Header.unpack(clear[: _HEADER.size])
        index, count = _PIECE.unpack(clear[_HEADER.size :])
        if not index < count <= _PIECES:
            raise WireError(f"chunk {index} of {count}: no message has such a chunk")
        try:
            piece = self._aead.decrypt(_nonce(header, index), memoryview(packet)[start:], clear)
        except InvalidTag:
            raise IntegrityError("a message was altered on the way") from None
        if (header.source, header.target) != (self.source, self.target):
            raise IntegrityError("a message came over another party's link")
        return self._join(header, clear[: _HEADER.size], index, count, piece)

    def _join(self, header: Header, key: bytes, index: int, count: int, piece: bytes) -> Envelope | None:
        parts = self._parts.setdefault(key, {})
        if key in self._seen or index in parts:
            raise IntegrityError("a message was repeated on the way")
        if self._counts.setdefault(key, count) != count:
            raise WireError("the chunks of a message disagree on how many there are")
        parts[index] = piece
        if len(parts) < count:
            return None
        self._seen.add(key)
        body = b"".join(parts[i] for i in range(count))
        del self._parts[key], self._counts[key]
        if len(body) != header.length:
            raise WireError(f"body of {len(body)} bytes, {header.length} stated")
        return Envelope(header, body)


def _nonce(header: Header, index: int) -> bytes:
    # Keys are fresh per run and link; round, attempt, sequence and chunk never repeat together under one of them.
    return struct.pack("<IHIH", header.round, header.attempt, header.sequence, index)


def bit_rows(name: str, sides: tuple[int | str, ...], slots: int, moduli: tuple[int, ...]) -> Field:
    """Bytes that hold so many numbers as residues in unary; the last bits, which hold none, are 0."""
    size = residues.size(slots, moduli)
    return Field(name, "|u1", (*sides, size), spare=8 * size - slots * sum(residues.widths(moduli)))


def attendance(members: tuple[str, ...]) -> Field:
    """The field that says which of the invited are present."""
    return Field("present", "|u1", (len(members),), top=1)


def bitmap(members: tuple[str, ...], present: tuple[str, ...]) -> Tensor:
    """Which of the invited are present, one byte each."""
    there = set(present)
    return torch.tensor([name in there for name in members], dtype=torch.uint8)


def chosen(members: tuple[str, ...], present: Tensor) -> tuple[str, ...]:
    """The invited that a bitmap marks."""
    return tuple(name for name, bit in zip(members, present.tolist(), strict=True) if bit)
