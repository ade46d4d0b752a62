"""Envelopes: a fixed-length header before a message's body, and links that seal both between two parties.

In a simulation through bytes (`engine.post`) an envelope is cut into chunks of 1 MiB, each sealed under the link's key
with header and chunk number as associated data, so that altered bytes are caught. Services send the same header and
body over gRPC (`service.transport`), which seals them itself. Drivers and journals (`engine.journal`) handle envelopes;
parties see bodies only.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, RangeError, WireError

VERSION = 2
# Bytes of a body that are sealed at a time; and the longest names of a party and of a kind of message.
CHUNK = 1 << 20
NAME = 32
KIND = 16
_HEADER = struct.Struct(f"<H32s16sIH{KIND}s{NAME}s{NAME}sIQ")
HEADER_BYTES = _HEADER.size
# Which chunk this is, and of how many; the most of them; and the bytes that sealing adds to one.
_PIECE = struct.Struct("<II")
_PIECES = 1 << 16
_TAG = 16


class Header(NamedTuple):
    """What an envelope says about itself; sealed with the body, so it cannot be changed apart from it.

    A tuple, because every message of a round has one and a dataclass that cannot change is slow to make.
    """

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
        names = [_padded(self.kind, KIND), _padded(self.source, NAME), _padded(self.target, NAME)]
        try:
            return _HEADER.pack(
                VERSION, self.spec, self.run, self.round, self.attempt, *names, self.sequence, self.length
            )
        except struct.error:
            raise self._too_large() from None

    def check_names(self) -> None:
        """Raises: RangeError for a name that no header can carry."""
        _padded(self.kind, KIND), _padded(self.source, NAME), _padded(self.target, NAME)

    def _too_large(self) -> RangeError:
        """Which number does not fit."""
        tops = {"round": 1 << 32, "attempt": 1 << 16, "sequence": 1 << 32, "length": 1 << 64}
        name = next(name for name, top in tops.items() if not 0 <= getattr(self, name) < top)
        return RangeError(f"{name} = {getattr(self, name)}: a header holds 0 to {tops[name] - 1}")

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Header:
        """Read a header. Raises: WireError."""
        if len(data) != _HEADER.size:
            raise WireError(f"a header has {_HEADER.size} bytes, not {len(data)}")
        version, spec, run, round_, attempt, kind, source, target, sequence, length = _HEADER.unpack(data)
        if version != VERSION:
            raise WireError(f"version {version} of the wire format; this program speaks {VERSION}")
        return cls(spec, run, round_, attempt, _text(kind), _text(source), _text(target), sequence, length)


@lru_cache(maxsize=1 << 16)
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
class Pieces:
    """A long body as the arrays that it consists of, where they lie: to join them would copy all of it."""

    parts: tuple[bytes | memoryview, ...] = dataclasses.field(repr=False)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def cut(self, start: int, stop: int) -> bytes | memoryview:
        """Some of the bytes; joined only where they lie in several parts."""
        found, at = list[memoryview](), 0
        for part in self.parts:
            if some := memoryview(part)[max(0, start - at) : max(0, stop - at)]:
                found.append(some)
            at += len(part)
        return found[0] if len(found) == 1 else b"".join(found)


@dataclass(frozen=True)
class Envelope:
    """A header with its body."""

    header: Header
    body: bytes | memoryview | Pieces = dataclasses.field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of the encoded message, header included. The channel's own cost (tags, TLS) is not the protocol's."""
        return _HEADER.size + len(self.body)

    @property
    def joined(self) -> bytes | memoryview:
        """The body in one piece."""
        return bytes(self.body) if isinstance(self.body, Pieces) else self.body

    def pack(self) -> bytes:
        """The whole message."""
        return self.header.pack() + self.joined

    @classmethod
    def unpack(cls, data: bytes) -> Envelope:
        """Read a whole message. Raises: WireError when its length is not the one it states."""
        header = Header.unpack(memoryview(data)[: _HEADER.size])
        if len(data) != _HEADER.size + header.length:
            raise WireError(f"body of {len(data) - _HEADER.size} bytes, {header.length} stated")
        return cls(header, data[_HEADER.size :])


class Link:
    """Sealing and opening between one sender and one receiver: one object in one process, one at each end in two."""

    def __init__(self, coins: Coins, source: str, target: str) -> None:
        self._aead = AESGCM(coins.child("link", source, target).export())
        self.source, self.target = source, target
        # Of every message that is not whole yet: its body as far as it came, and which chunks those are.
        self._bodies: dict[bytes, memoryview] = {}
        self._parts: dict[bytes, set[int]] = {}
        self._seen: set[bytes] = set()

    def seal(self, envelope: Envelope) -> list[memoryview]:
        """The sealed chunks of an envelope."""
        head = envelope.header.pack()
        count = max(1, -(-len(envelope.body) // CHUNK))
        if count > _PIECES:
            raise RangeError(f"a body of {len(envelope.body)} bytes: a message holds {_PIECES} chunks of 1 MiB at most")
        body = envelope.body if isinstance(envelope.body, Pieces) else Pieces((envelope.body,))
        packets = []
        for index in range(count):
            clear = head + _PIECE.pack(index, count)
            piece = body.cut(index * CHUNK, (index + 1) * CHUNK)
            # Not cleared before it is written, as a bytearray would be; and into its place at once: both would take as
            # long as the cipher.
            packet = np.empty(len(clear) + len(piece) + _TAG, np.uint8).data
            packet[: len(clear)] = clear
            self._aead.encrypt_into(_nonce(envelope.header, index), piece, clear, packet[len(clear) :])
            packets.append(packet)
        return packets

    def open(self, packet: bytes | bytearray | memoryview) -> Envelope | None:
        """Take one sealed chunk; the envelope when it is whole, None while chunks are missing.

        Raises: IntegrityError when the chunk was altered or repeated; WireError when it is no chunk at all.
        """
        start = _HEADER.size + _PIECE.size
        if len(packet) < start + _TAG:
            raise WireError(f"a sealed chunk of {len(packet)} bytes is too short")
        clear, sealed = bytes(packet[:start]), memoryview(packet)[start:]
        key = clear[: _HEADER.size]
        header = Header.unpack(key)
        index, count = _PIECE.unpack(clear[_HEADER.size :])
        if not index < count <= _PIECES:
            raise WireError(f"chunk {index} of {count}: no message has such a chunk")
        size, first = len(sealed) - _TAG, index * CHUNK
        known = key in self._seen or index in self._parts.get(key, ())
        fits = size == min(CHUNK, header.length - first) and count == max(1, -(-header.length // CHUNK))
        body = self._body(key, header.length) if fits and not known else None
        try:
            if body is None:
                self._aead.decrypt(_nonce(header, index), sealed, clear)
            else:
                self._aead.decrypt_into(_nonce(header, index), sealed, clear, body[first : first + size])
        except InvalidTag:
            raise IntegrityError("a message was altered on the way") from None
        if (header.source, header.target) != (self.source, self.target):
            raise IntegrityError("a message came over another party's link")
        if known:
            raise IntegrityError("a message was repeated on the way")
        if body is None:
            raise WireError(f"chunk {index} of {count} has {size} bytes, which no body of {header.length} bytes has")
        return self._join(header, key, body, index, count)

    def _body(self, key: bytes, length: int) -> memoryview:
        """Where a message's chunks go. What a forged chunk writes there, the true one writes over."""
        try:
            return self._bodies.get(key) or np.empty(length, np.uint8).data
        except MemoryError:
            raise WireError(f"a body of {length} bytes does not fit the memory") from None

    def _join(self, header: Header, key: bytes, body: memoryview, index: int, count: int) -> Envelope | None:
        """Keep a genuine chunk."""
        self._bodies[key] = body
        parts = self._parts.setdefault(key, set())
        parts.add(index)
        if len(parts) < count:
            return None
        self._seen.add(key)
        del self._parts[key], self._bodies[key]
        return Envelope(header, body)


def _nonce(header: Header, index: int) -> bytes:
    # Keys are fresh per run and link; round, attempt, sequence and chunk never repeat together under one of them.
    return struct.pack("<IHIH", header.round, header.attempt, header.sequence, index)
