"""Canonical bytes: one value has one form, two values have two, and nothing else is loaded."""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
import tracemalloc
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor

from croupier.core import canon
from croupier.errors import WireError

KINDS = tuple(canon.DTYPES)


def sized(count: int) -> bytes:
    return struct.pack("<Q", count)


@st.composite
def tensors(draw: st.DrawFn, least: int = 0) -> Tensor:
    shape = draw(st.lists(st.integers(least, 3), max_size=3))
    dtype = draw(st.sampled_from(KINDS))
    count = math.prod(shape)
    if dtype.is_floating_point:
        width = 32 if dtype == torch.float32 else 64
        values: list[Any] = draw(
            st.lists(st.floats(allow_nan=False, width=width), min_size=count, max_size=count)  # type: ignore[arg-type]
        )
    else:
        low, high = {torch.uint8: (0, 255), torch.bool: (0, 1), torch.int32: (-(2**31), 2**31 - 1)}.get(
            dtype, (-(2**63), 2**63 - 1)
        )
        values = draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
    return torch.tensor(values, dtype=dtype).reshape(shape)


plain_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=8)
)
leaves = st.one_of(plain_leaves, tensors())
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple), st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


def same(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, Tensor):
        # Bits, not values: -0.0 and 0.0 are different values here.
        alike = one.dtype == two.dtype and one.shape == two.shape
        return alike and bool(one.numpy().tobytes() == two.numpy().tobytes())
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", two)
    return bool(one == two)


@examples()
@given(values)
def test_what_is_dumped_is_loaded(value: Any) -> None:
    data = canon.dump(value)
    assert same(canon.load(data), value)
    assert canon.digest(value) == hashlib.sha256(data).digest()
    assert canon.dump(canon.load(data)) == data


@examples()
@given(values, values)
@example(1, True)
@example(1, 1.0)
@example(0, False)
@example("a", b"a")
@example((), {})
@example(0.0, -0.0)
@example(torch.zeros(2, 3), torch.zeros(3, 2))
@example(torch.zeros(0, 3), torch.zeros(0))
@example(torch.zeros(1), torch.zeros(()))
@example(torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.float32))
@example(("a", "b"), ("ab", ""))
@example((("a",), "b"), ("a", ("b",)))
def test_different_values_have_different_bytes(one: Any, two: Any) -> None:
    assume(not same(one, two))
    assert canon.dump(one) != canon.dump(two)


@examples()
@given(st.dictionaries(st.text(max_size=4), leaves, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_a_mapping_does_not_matter(table: dict[str, Any], order: Any) -> None:
    items = list(table.items())
    order.shuffle(items)
    assert canon.dump(dict(items)) == canon.dump(table)


def test_how_a_tensor_lies_in_memory_does_not_matter() -> None:
    table = torch.arange(6.0).reshape(2, 3)
    assert canon.dump(table.T) == canon.dump(table.T.contiguous())
    assert canon.dump(table[:, 1]) == canon.dump(torch.tensor([1.0, 4.0]))
    assert canon.dump(torch.ones(2, requires_grad=True)) == canon.dump(torch.ones(2))
    assert canon.dump([1, 2]) == canon.dump((1, 2))


def test_a_tensor_of_no_numbers_or_with_a_gradient_has_its_bytes() -> None:
    for empty in (torch.empty(0), torch.empty(2, 0), torch.empty(0, 2).t()):
        assert bytes(canon.tensor_bytes(empty)) == b""
    learned = torch.tensor([1.5, -2.0], requires_grad=True)
    for one in (learned, learned * 1.0, learned[:1], learned.detach()[0]):
        assert bytes(canon.tensor_bytes(one)) == struct.pack(f"<{one.numel()}f", *one.reshape(-1).tolist())
    turned = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert bytes(canon.tensor_bytes(turned)) == struct.pack("<2f", -2, 4)


def test_a_loaded_tensor_owns_its_memory() -> None:
    data = bytearray(canon.dump(torch.arange(3)))
    loaded = canon.load(bytes(data))
    loaded += 1
    assert canon.load(bytes(data)).tolist() == [0, 1, 2]


def test_frozen_bytes() -> None:
    value = {"b": (None, True, False, -1, 256, 1.5), "a": torch.tensor([[1, -2]], dtype=torch.int32), "c": {"": b"\0"}}
    assert canon.dump(value).hex() == (
        "4d0300000000000000010000000000000061413c6934020100000000000000020000000000000001000000feffffff010000000000000062"
        "5406000000000000004e2b2d490100000000000000ff490200000000000000000146000000000000f83f010000000000000063"
        "4d01000000000000000000000000000000420100000000000000" + "00"
    )


@dataclass(frozen=True)
class Point:
    x: int
    y: tuple[float, ...] = ()


def test_a_dataclass_is_digested_by_name_and_fields() -> None:
    assert canon.digest(Point(1)) == canon.digest(Point(1, ()))
    assert canon.digest(Point(1)) != canon.digest(Point(2))
    assert canon.digest(Point(1)) != canon.digest({"x": 1, "y": ()})
    other = make_dataclass("Spot", [("x", int), ("y", tuple, ())], frozen=True)
    assert canon.digest(Point(1)) != canon.digest(other(1))
    turned = make_dataclass("Point", [("y", tuple), ("x", int)], frozen=True)
    assert canon.digest(Point(1, (2.0,))) == canon.digest(turned((2.0,), 1))
    assert canon.digest((Point(1), Point(2))) != canon.digest((Point(2), Point(1)))


def test_a_dataclass_is_not_loaded() -> None:
    with pytest.raises(WireError, match="starts no plain value"):
        canon.load(canon.dump(Point(1)))


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, Point, canon, range(3)])
def test_other_things_have_no_bytes(value: Any) -> None:
    with pytest.raises(WireError, match="no canonical bytes"):
        canon.dump((1, value))


def test_keys_are_text() -> None:
    with pytest.raises(WireError, match="text keys, not int"):
        canon.dump({1: 2})


@examples()
@given(values, st.binary(min_size=1, max_size=4))
def test_left_over_bytes_are_refused(value: Any, more: bytes) -> None:
    with pytest.raises(WireError, match=f"{len(more)} bytes are left over"):
        canon.load(canon.dump(value) + more)


@examples()
@given(values, st.integers(0, 1 << 30))
def test_short_bytes_are_refused(value: Any, at: int) -> None:
    data = canon.dump(value)
    with pytest.raises(WireError, match="end early"):
        canon.load(data[: at % len(data)])


def test_unknown_kinds_are_refused() -> None:
    for kind in set(range(256)) - set(b"N+-IFSBTMA"):
        with pytest.raises(WireError, match="starts no plain value"):
            canon.load(bytes([kind]) + bytes(40))


@pytest.mark.parametrize("dtype", [b"<f2", b">f4", b"|S1", b"|O1", b"\xff\xff\xff", b"<c8"])
def test_dtypes_of_others_are_refused(dtype: bytes) -> None:
    with pytest.raises(WireError, match="not a dtype of ours"):
        canon.load(b"A" + dtype + b"\x01" + sized(1) + bytes(16))


def test_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(WireError, match="UTF-8"):
        canon.load(b"S" + sized(2) + b"\xc3\x28")
    with pytest.raises(WireError, match="UTF-8"):
        canon.load(b"M" + sized(1) + sized(1) + b"\xff" + b"N")


@pytest.mark.parametrize(
    "data",
    [
        b"T" + sized(2**60),
        b"T" + sized(2**64 - 1) + b"N" * 9,
        b"M" + sized(2**60),
        b"B" + sized(2**60),
        b"S" + sized(2**63),
        b"I" + sized(2**63),
        b"A<f8\x01" + sized(2**60),
        b"A<f8\x02" + sized(2**40) + sized(2**40),
        b"A|u1\x03" + sized(2**62) * 3,
    ],
)
def test_a_huge_size_costs_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="end early"):
            canon.load(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@examples(300)
@given(st.one_of(st.binary(max_size=120), st.text("NTMABSIF+-\0\1\2<f48|ui", max_size=120).map(str.encode)))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert canon.dump(canon.load(data)) == data


@examples(200)
@given(st.lists(st.one_of(plain_leaves, tensors(least=1)), max_size=4), st.integers(0), st.integers(1, 255))
def test_changed_bytes_raise_nothing_else(items: list[Any], at: int, flip: int) -> None:
    data = bytearray(canon.dump({"all": tuple(items)}))
    data[at % len(data)] ^= flip
    with contextlib.suppress(WireError):
        assert canon.dump(canon.load(bytes(data))) == bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"I" + sized(0),
        b"I" + sized(2) + b"\1\0",
        b"I" + sized(2) + b"\xff\xff",
        b"M" + sized(2) + (sized(1) + b"b" + b"N") + (sized(1) + b"a" + b"N"),
        b"M" + sized(2) + (sized(1) + b"a" + b"N") * 2,
        b"T" + sized(1) + b"M" + sized(2) + (sized(2) + "\u00e9".encode() + b"N") + (sized(1) + b"z" + b"N"),
    ],
)
def test_another_form_of_a_value_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="not the canonical form"):
        canon.load(data)
