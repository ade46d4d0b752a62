"""The wire format: bodies and headers come back, and whatever is too long, too short or out of range is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.envelope import CHUNK, Envelope, Header, Link, Pieces
from croupier.core.wire import Field, Schema, attendance, bitmap, chosen, place_of
from croupier.errors import CroupierError, IntegrityError, RangeError, WireError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "wire.json").read_text("utf-8"))
HEAD = Header(bytes(range(32)), bytes(range(16)), 7, 2, "up", "alice", "relay", 3, 0)
SIZE = 148
ROSTER = ("a", "b", "c")
SCHEMA = Schema(
    (
        attendance(ROSTER),
        Field("rows", "<i4", ("present", 2), 9),
        Field("weight", "<f8", ("present", 1)),
        Field("mean", "<f4", (2,)),
    )
)


def body(count: int = 2) -> dict[str, Tensor]:
    return {
        "present": bitmap(ROSTER, ROSTER[:count]),
        "rows": torch.arange(2 * count, dtype=torch.int32).reshape(count, 2),
        "weight": torch.ones(count, 1, dtype=torch.float64),
        "mean": torch.tensor([0.5, -0.5]),
    }


def link(seed: int = 1, source: str = "alice", target: str = "relay") -> Link:
    return Link(Coins.from_seed(seed), source, target)


def envelope(data: bytes, **changes: Any) -> Envelope:
    return Envelope(HEAD._replace(length=len(data), **changes), data)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_bodies_come_back(count: int) -> None:
    values = body(count)
    data = SCHEMA.pack(values)
    assert len(data) == 3 + count * (8 + 8) + 8
    back = SCHEMA.unpack(data)
    assert list(back) == ["present", "rows", "weight", "mean"]
    for name, tensor in values.items():
        assert torch.equal(back[name], tensor)
        assert back[name].dtype == tensor.dtype
    SCHEMA.check(values)
    assert SCHEMA.pack(back) == data


@examples()
@given(st.sets(st.sampled_from(ROSTER)), st.data())
def test_any_allowed_body_comes_back(there: set[str], data: st.DataObject) -> None:
    present = tuple(name for name in ROSTER if name in there)
    rows = data.draw(st.lists(st.integers(0, 9), min_size=2 * len(present), max_size=2 * len(present)))
    values = {
        **body(len(present)),
        "present": bitmap(ROSTER, present),
        "rows": torch.tensor(rows, dtype=torch.int32).reshape(-1, 2),
    }
    back = SCHEMA.unpack(SCHEMA.pack(values))
    assert back["rows"].tolist() == values["rows"].tolist()
    assert chosen(ROSTER, back["present"]) == present


def test_a_body_is_raw_little_endian() -> None:
    schema = Schema((Field("x", "<i4", (2,)), Field("y", "<f8", (1,))))
    packed = schema.pack({"y": torch.tensor([1.0], dtype=torch.float64), "x": torch.tensor([1, -2], dtype=torch.int32)})
    assert packed == struct.pack("<iid", 1, -2, 1.0)


def test_left_over_bytes_are_refused() -> None:
    with pytest.raises(WireError, match="1 bytes are left over after mean"):
        SCHEMA.unpack(SCHEMA.pack(body()) + b"\0")


@pytest.mark.parametrize("cut", range(1, 44))
def test_missing_bytes_are_refused(cut: int) -> None:
    data = SCHEMA.pack(body())
    with pytest.raises(WireError, match="bytes after the message"):
        SCHEMA.unpack(data[:-cut])


def test_a_body_for_more_clients_than_are_marked_is_refused() -> None:
    data = bytearray(SCHEMA.pack(body(2)))
    data[2] = 1
    with pytest.raises(CroupierError):
        SCHEMA.unpack(bytes(data))
    data[1] = data[2] = 0
    with pytest.raises(CroupierError):
        SCHEMA.unpack(bytes(data))


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("mean", torch.tensor([0.5, float("nan")]), "mean has 1 of 2 values that are NaN or infinite"),
        ("mean", torch.tensor([float("inf"), float("-inf")]), "mean has 2 of 2"),
        ("weight", torch.tensor([[1.0], [float("nan")]], dtype=torch.float64), "weight has 1 of 2"),
        ("rows", torch.tensor([[0, 1], [2, 10]], dtype=torch.int32), "rows holds values outside 0 to 9"),
        ("rows", torch.tensor([[0, 1], [2, -1]], dtype=torch.int32), "rows holds values outside 0 to 9"),
        ("present", torch.tensor([2, 0, 0], dtype=torch.uint8), "present holds values outside 0 to 1"),
    ],
)
def test_values_that_may_not_be_are_refused_both_ways(name: str, value: Tensor, match: str) -> None:
    values = {**body(), name: value}
    with pytest.raises(RangeError, match=match):
        SCHEMA.check(values)
    with pytest.raises(RangeError, match=match):
        SCHEMA.unpack(SCHEMA.pack(values))


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("mean", torch.zeros(2, dtype=torch.float64), "mean has dtype torch.float64, not torch.float32"),
        ("rows", torch.zeros(2, 2, dtype=torch.int64), "rows has dtype torch.int64"),
        ("mean", torch.zeros(2, dtype=torch.float16), "mean has dtype torch.float16"),
        ("mean", torch.zeros(3), r"mean has shape \(3,\), not \(2,\)"),
        ("mean", torch.zeros(2, 1), r"mean has shape \(2, 1\)"),
        ("rows", torch.zeros(3, 2, dtype=torch.int32), r"rows has shape \(3, 2\), not \(2, 2\)"),
        ("present", torch.ones(4, dtype=torch.uint8), r"present has shape \(4,\), not \(3,\)"),
    ],
)
def test_wrong_types_and_shapes_are_refused(name: str, value: Tensor, match: str) -> None:
    with pytest.raises(RangeError, match=match):
        SCHEMA.check({**body(), name: value})


def test_missing_and_unknown_fields_are_refused() -> None:
    values = body()
    del values["weight"]
    with pytest.raises(RangeError, match="weight"):
        SCHEMA.check(values)
    with pytest.raises(RangeError, match="weight"):
        SCHEMA.pack(values)
    with pytest.raises(RangeError, match="more"):
        SCHEMA.check({**body(), "more": torch.zeros(1)})


def test_the_largest_allowed_value_passes() -> None:
    for dtype, kind, top in (("<i4", torch.int32, 2**31 - 1), ("<i8", torch.int64, 2**62 - 1), ("|u1", torch.uint8, 1)):
        schema = Schema((Field("x", dtype, (1,), top),))
        value = {"x": torch.tensor([top], dtype=kind)}
        schema.check(value)
        assert schema.unpack(schema.pack(value))["x"].item() == top


def test_attendance_names_who_is_there() -> None:
    assert bitmap(ROSTER, ("c", "a")).tolist() == [1, 0, 1]
    assert bitmap(ROSTER, ()).tolist() == [0, 0, 0]
    assert chosen(ROSTER, torch.tensor([1, 0, 1], dtype=torch.uint8)) == ("a", "c")
    with pytest.raises(ValueError, match="zip"):
        chosen(ROSTER, torch.ones(2, dtype=torch.uint8))


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@examples()
@given(
    st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16), st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1), st.text("abc é", min_size=1, max_size=8), names, names, st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_headers_come_back(
    spec: bytes, run: bytes, number: int, attempt: int, kind: str, one: str, two: str, sequence: int, length: int
) -> None:
    header = Header(spec, run, number, attempt, kind, one, two, sequence, length)
    data = header.pack()
    assert len(data) == SIZE
    assert Header.unpack(data) == header


def test_names_of_full_width_fit_and_longer_ones_do_not() -> None:
    full = HEAD._replace(kind="k" * 16, source="s" * 32, target="é" * 16)
    assert Header.unpack(full.pack()) == full
    for name, value in (("kind", "k" * 17), ("source", "s" * 33), ("target", "é" * 17)):
        with pytest.raises(RangeError, match="a name on the wire"):
            HEAD._replace(**{name: value}).pack()  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["kind", "source", "target"])
@pytest.mark.parametrize("value", ["", "\0", "a\0b", "a\0", "\0a"])
def test_names_that_padding_would_change_are_refused(field: str, value: str) -> None:
    with pytest.raises(RangeError, match="no zero byte"):
        HEAD._replace(**{field: value}).pack()  # type: ignore[arg-type]


def test_the_frozen_header() -> None:
    case = VECTORS["header"]
    fields = {
        **case["fields"],
        "spec": bytes.fromhex(case["fields"]["spec"]),
        "run": bytes.fromhex(case["fields"]["run"]),
    }
    header = Header(**fields)
    assert header.pack().hex() == case["bytes"]
    assert Header.unpack(bytes.fromhex(case["bytes"])) == header
    # Written out by hand, field by field.
    want = struct.pack("<H", 2) + header.spec + header.run + struct.pack("<IH", header.round, header.attempt)
    for name, width in ((header.kind, 16), (header.source, 32), (header.target, 32)):
        want += name.encode() + bytes(width - len(name.encode()))
    assert header.pack() == want + struct.pack("<IQ", header.sequence, header.length)


@pytest.mark.parametrize("case", [name for name in VECTORS if "header_bad" in name])
def test_header_bad(case: str) -> None:
    with pytest.raises(WireError, match=VECTORS[case]["says"]):
        Header.unpack(bytes.fromhex(VECTORS[case]["bytes"]))


@pytest.mark.parametrize("case", [name for name in VECTORS if name.startswith("body")])
def test_frozen_bodies(case: str) -> None:
    data = bytes.fromhex(VECTORS[case]["bytes"])
    if "bad" in case:
        with pytest.raises((WireError, RangeError), match=VECTORS[case]["says"]):
            SCHEMA.unpack(data)
    else:
        assert {name: value.tolist() for name, value in SCHEMA.unpack(data).items()} == VECTORS[case]["values"]
        assert SCHEMA.pack(SCHEMA.unpack(data)) == data


def test_envelopes_come_back_and_state_their_length() -> None:
    whole = envelope(b"hello")
    assert whole.size == SIZE + 5 == len(whole.pack())
    assert Envelope.unpack(whole.pack()) == whole
    for data in (whole.pack() + b"\0", whole.pack()[:-1]):
        with pytest.raises(WireError, match="5 stated"):
            Envelope.unpack(data)
    with pytest.raises(WireError, match=f"a header has {SIZE} bytes, not 10"):
        Envelope.unpack(whole.pack()[:10])


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (CHUNK - 1, 1), (CHUNK, 1), (CHUNK + 1, 2), (2 * CHUNK, 2), (2 * CHUNK + 5, 3)]
)
def test_sealed_messages_open(size: int, count: int) -> None:
    sent = envelope(bytes(Coins.from_seed(size).secure().bytes(size)))
    packets = link().seal(sent)
    assert len(packets) == count
    assert sum(map(len, packets)) == size + count * (SIZE + 8 + 16)
    end = link()
    got = [end.open(packet) for packet in packets]
    assert got[:-1] == [None] * (count - 1)
    assert got[-1] == sent


def test_a_sealed_body_cannot_be_read() -> None:
    (packet,) = link().seal(envelope(b"a secret of some length"))
    assert b"secret" not in bytes(packet)


def test_chunks_may_come_in_any_order_and_mixed_with_others() -> None:
    one, two = envelope(bytes([1]) * (2 * CHUNK + 1)), envelope(bytes([2]) * (CHUNK + 1), sequence=4)
    first, second = link().seal(one), link().seal(two)
    end = link()
    order = [first[2], second[1], first[0], second[0], first[1]]
    assert [end.open(packet) for packet in order] == [None, None, None, two, one]


def test_a_missing_chunk_is_no_message() -> None:
    packets = link().seal(envelope(bytes(3 * CHUNK)))
    end = link()
    assert [end.open(packet) for packet in packets[1:]] == [None, None]


@pytest.mark.parametrize("size", [0, 3])
def test_every_flipped_bit_of_header_and_ciphertext_is_refused(size: int) -> None:
    (packet,) = link().seal(envelope(bytes(size)))
    for at in [*range(SIZE + 2), *range(SIZE + 4, len(packet))]:
        for bit in (0, 7):
            altered = bytearray(packet)
            altered[at] ^= 1 << bit
            with pytest.raises((IntegrityError, WireError)):
                link().open(bytes(altered))


def test_an_altered_chunk_does_not_spoil_the_message() -> None:
    packets = link().seal(envelope(bytes(CHUNK + 1)))
    end = link()
    altered = bytes(packets[0][:-1]) + bytes([packets[0][-1] ^ 1])
    with pytest.raises(IntegrityError, match="altered"):
        end.open(altered)
    assert end.open(packets[1]) is None
    assert end.open(packets[0]) == envelope(bytes(CHUNK + 1))


def test_chunks_do_not_pass_for_each_other() -> None:
    packets = link().seal(envelope(bytes(2 * CHUNK)))
    clear = SIZE + 8
    with pytest.raises(IntegrityError):
        link().open(bytes(packets[0][:clear]) + bytes(packets[1][clear:]))


def test_repeats_are_refused_before_and_after_the_message_is_whole() -> None:
    packets = link().seal(envelope(bytes(CHUNK + 1)))
    end = link()
    end.open(packets[0])
    with pytest.raises(IntegrityError, match="repeated"):
        end.open(packets[0])
    assert end.open(packets[1]) == envelope(bytes(CHUNK + 1))
    for packet in packets:
        with pytest.raises(IntegrityError, match="repeated"):
            end.open(packet)


def test_a_message_opens_on_its_own_link_only() -> None:
    (packet,) = link().seal(envelope(b"abc"))
    for other in (link(2), link(1, "bob"), link(1, "alice", "server"), link(1, "relay", "alice")):
        with pytest.raises(IntegrityError):
            other.open(packet)


def test_a_sender_cannot_speak_for_another() -> None:
    (packet,) = link().seal(envelope(b"abc", source="bob"))
    with pytest.raises(IntegrityError, match="another party's link"):
        link().open(packet)


def test_a_message_of_another_length_than_stated_is_refused() -> None:
    (packet,) = link().seal(Envelope(HEAD._replace(length=4), b"abc"))
    with pytest.raises(WireError, match="chunk 0 of 1 has 3 bytes, which no body of 4 bytes has"):
        link().open(packet)


@pytest.mark.parametrize("size", [0, 1, SIZE, SIZE + 23])
def test_what_is_too_short_is_no_chunk(size: int) -> None:
    with pytest.raises(WireError, match="too short"):
        link().open(bytes(size))


def test_nonces_differ_for_every_chunk_message_round_and_attempt() -> None:
    seen = set()
    changes: list[dict[str, int]] = [{}, {"sequence": 4}, {"round": 8}, {"attempt": 3}, {"sequence": 1 << 31}]
    for change in changes:
        for packet in link().seal(envelope(bytes(CHUNK + 16), **change)):
            # Counter mode: equal clear text under equal nonces would show as equal bytes.
            seen.add(bytes(packet[SIZE + 8 : SIZE + 24]))
    assert len(seen) == 10


@examples()
@given(st.integers(1, 62), st.integers(0, 40), st.data())
def test_narrow_integers_take_no_bit_more_than_they_need(width: int, count: int, data: st.DataObject) -> None:
    schema = Schema((Field("x", "<i8", (count,), (1 << width) - 1, widths=(width,)),))
    edge = st.one_of(st.integers(0, (1 << width) - 1), st.sampled_from([0, (1 << width) - 1]))
    values = torch.tensor(data.draw(st.lists(edge, min_size=count, max_size=count)), dtype=torch.int64)
    packed = schema.pack({"x": values})
    assert len(packed) == -(-count * width // 8)
    assert torch.equal(schema.unpack(packed)["x"], values)
    assert schema.pack(schema.unpack(packed)) == packed


@pytest.mark.parametrize("value", [8, -1, 1 << 40, -(1 << 62)])
def test_what_needs_more_bits_than_it_has_is_not_cut(value: int) -> None:
    schema = Schema((Field("x", "<i8", (3,), widths=(3,)),))
    with pytest.raises(RangeError, match=r"x holds values that need more bits than the \[3\] it has"):
        schema.pack({"x": torch.tensor([0, value, 7])})


def test_widths_repeat_along_the_last_side() -> None:
    schema = Schema((Field("x", "|u1", (2, 3), widths=(2, 3, 4)), Field("y", "<i4", (1,))))
    values = {"x": torch.tensor([[3, 7, 15], [1, 2, 9]], dtype=torch.uint8), "y": torch.tensor([5], dtype=torch.int32)}
    packed = schema.pack(values)
    assert len(packed) == 3 + 4
    assert torch.equal(schema.unpack(packed)["x"], values["x"])
    with pytest.raises(RangeError, match="more bits"):
        schema.pack({**values, "x": torch.tensor([[4, 0, 0], [0, 0, 0]], dtype=torch.uint8)})


@pytest.mark.parametrize("bit", range(2, 8))
def test_bits_after_the_end_of_narrow_integers_are_refused(bit: int) -> None:
    schema = Schema((Field("x", "<i4", (6,), widths=(3,)),))
    data = bytearray(schema.pack({"x": torch.arange(6, dtype=torch.int32)}))
    schema.unpack(bytes(data))
    data[-1] |= 1 << bit
    with pytest.raises(WireError, match="x has bits set after its end"):
        schema.unpack(bytes(data))


@pytest.mark.parametrize("spare", range(1, 8))
def test_spare_bits_of_every_row_are_0(spare: int) -> None:
    schema = Schema((Field("x", "|u1", (2, 3), spare=spare),))
    full = torch.full((2, 3), 255, dtype=torch.uint8)
    full[:, -1] = 255 >> spare
    schema.check({"x": full})
    assert torch.equal(schema.unpack(schema.pack({"x": full}))["x"], full)
    for row in range(2):
        bad = full.clone()
        bad[row, -1] |= 1 << (8 - spare)
        with pytest.raises(RangeError, match="x has bits set after its end"):
            schema.check({"x": bad})
        with pytest.raises(RangeError, match="x has bits set after its end"):
            schema.unpack(schema.pack({"x": bad}))


def test_a_members_place_is_that_in_the_roster_it_is_asked_of() -> None:
    one, two = ("a", "b", "c"), ("c", "a")
    for members in (one, two, one):
        assert [place_of(members, name) for name in members] == list(range(len(members)))
    with pytest.raises(ValueError, match="'b' is not among the 2 invited"):
        place_of(two, "b")


def test_a_body_in_pieces_travels_as_the_same_bytes() -> None:
    parts = (bytes(range(100)), memoryview(b""), memoryview(bytes(CHUNK - 50)), b"the end" * 9)
    body = Pieces(parts)
    whole = b"".join(parts)
    assert (bytes(body), len(body)) == (whole, len(whole))
    for start, stop in [(0, 100), (0, CHUNK), (50, 200), (CHUNK, 2 * CHUNK), (len(whole), len(whole) + 5)]:
        assert bytes(body.cut(start, stop)) == whole[start:stop]
    sent = Envelope(HEAD._replace(length=len(whole)), body)
    assert sent.pack() == Envelope(sent.header, whole).pack()
    assert sent.size == Envelope(sent.header, whole).size
    end = link()
    got = [end.open(packet) for packet in link().seal(sent)]
    assert got[-1] is not None
    assert bytes(got[-1].body) == whole


def test_pieces_are_not_shown() -> None:
    assert "secret" not in repr(Pieces((b"a secret",)))
