"""The wire: the body of every message has one canonical encoding, of a length that protocol and attendance fix.

A schema lists the arrays of one kind of message and what they may hold; placements, agreements and the pipeline write
schemas, and the door (`engine.post`) checks what arrives by them. `core/envelope` puts a header before the body and
seals both.

Lengths depend on no value but who is present, so that they tell an onlooker nothing of updates, and the bytes of a
round can be counted before it is run (`croupier plan`). What arrives is checked against its `Schema`: fields, types,
shapes, ranges, finiteness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from croupier.core.canon import DTYPES, tensor_bytes, tensor_from
from croupier.core.update import check_finite
from croupier.errors import RangeError, WireError
from croupier.kernels import pack, residues

_BACK = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class Field:
    """One array of a body.

    A side of the shape may name an earlier field of zeros and ones: as many as it has ones. Integers with a `top` lie
    in [0, top], and not strictly inside a `gap`; floats are finite, always, and above 0 where `positive`. With
    `share_last` the last value is a share of 1. With `widths`, integers travel in that many bits each, without
    gaps; the widths repeat along the last side. Of bytes that hold bits, the last `spare` bits of each row are 0.
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

    @cached_property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape, where it depends on no other field."""
        return None if any(isinstance(side, str) for side in self.shape) else tuple(map(int, self.shape))

    @cached_property
    def plain(self) -> bool:
        """Whether nothing is asked of its values but that they are finite."""
        return not (self.spare or self.positive or self.share_last or self.top is not None or self.gap is not None)

    def dims(self, known: Mapping[str, Tensor]) -> tuple[int, ...]:
        """The shape once the fields before it are known."""
        if self.fixed is not None:
            return self.fixed
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

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def _check_form(self, values: Mapping[str, Tensor]) -> None:
        if values.keys() != self._names:
            raise RangeError(f"fields {sorted(values)}, not {sorted(field.name for field in self.fields)}")
        for field in self.fields:
            got = values[field.name]
            if DTYPES.get(got.dtype) != field.dtype:
                raise RangeError(f"{field.name} has dtype {got.dtype}, not {_BACK[field.dtype]}")
            if got.shape != field.dims(values):
                raise RangeError(f"{field.name} has shape {tuple(got.shape)}, not {field.dims(values)}")

    def pack(self, values: Mapping[str, Tensor]) -> bytes:
        """Canonical bytes of the values, in form only: what they hold is checked at the receiver's door."""
        return b"".join(self.pieces(values))

    def pieces(self, values: Mapping[str, Tensor]) -> list[bytes | memoryview]:
        """The same bytes field by field: the very memory of a value that already lies as it travels, and no copy."""
        self._check_form(values)
        return [_packed(field, values[field.name]) for field in self.fields]

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
    if field.dtype == "|u1" and not field.widths and len(data) and not data.readonly:
        # The message is the receiver's own: its bytes are taken where they lie.
        return torch.frombuffer(data, dtype=torch.uint8).reshape(shape)
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
    if field.plain:
        return
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


def bit_rows(name: str, sides: tuple[int | str, ...], slots: int, moduli: tuple[int, ...]) -> Field:
    """Bytes that hold so many numbers as residues in unary; the last bits, which hold none, are 0."""
    size = residues.size(slots, moduli)
    return Field(name, "|u1", (*sides, size), spare=8 * size - slots * sum(residues.widths(moduli)))


def packed(name: str, sides: tuple[int | str, ...], count: int, bits: int) -> Field:
    """Bytes that hold so many residues of 2^bits without gaps; the last bits, which hold none, are 0."""
    size = pack.size(count, (bits,))
    return Field(name, "|u1", (*sides, size), spare=8 * size - count * bits)


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


def place_of(members: tuple[str, ...], name: str) -> int:
    """A member's place among the invited. Raises: ValueError when it is not one of them."""
    # Clients of a simulation share one roster, and looking through it for each would take the square of their number.
    seen, places = _last_places[0]
    if seen is not members:
        places = {who: at for at, who in reversed(tuple(enumerate(members)))}
        _last_places[0] = (members, places)
    if name not in places:
        raise ValueError(f"{name!r} is not among the {len(members)} invited")
    return places[name]


_last_places: list[tuple[tuple[str, ...], dict[str, int]]] = [((), {})]
