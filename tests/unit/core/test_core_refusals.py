"""What nobody honest would send, and what must not be reachable: each ends in an error of ours."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from tests.tape import Tape

from croupier.core import canon, envelope
from croupier.core.coins import Coins
from croupier.core.envelope import CHUNK, Envelope, Header, Link
from croupier.core.flow import Exchange, Flow, Given, Memory, Received, Seat, Wait
from croupier.core.normal import from_words
from croupier.core.update import Layout, Model, Slice, Update
from croupier.encode.encoder import Released
from croupier.encode.fixed import FixedPoint
from croupier.errors import IntegrityError, ProtocolError, RangeError, WireError, nearest

HEAD = Header(bytes(32), bytes(16), 1, 0, "up", "alice", "bob", 0, 3)
ONE = Layout((Slice("w", (1,)),))


def sizes(*numbers: int) -> bytes:
    """Little-endian 64-bit sizes."""
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def link() -> Link:
    """One end of a link."""
    return Link(Coins.from_seed(1), "alice", "bob")


def test_every_changed_bit_of_a_sealed_chunk_is_refused() -> None:
    packet = link().seal(Envelope(HEAD, b"abc"))[0]
    for at in range(len(packet)):
        for bit in range(8):
            changed = bytearray(packet)
            changed[at] ^= 1 << bit
            with pytest.raises((IntegrityError, WireError)):
                link().open(bytes(changed))


@pytest.mark.parametrize(("index", "count"), [(5, 1), (1, 1), (0, 0), (0, 1 << 17)])
def test_a_chunk_past_its_count_is_refused_though_it_is_sealed(index: int, count: int) -> None:
    end = link()
    clear = HEAD.pack() + struct.pack("<II", index, count)
    sealed = end._aead.encrypt(envelope._nonce(HEAD, index), b"abc", clear)
    with pytest.raises(WireError, match="no message has such a chunk"):
        end.open(clear + sealed)


@pytest.mark.parametrize(("index", "count"), [(0, 3), (1, 2), (0, 1)])
def test_chunks_that_do_not_make_up_the_stated_length_are_refused(index: int, count: int) -> None:
    end, head = link(), HEAD._replace(length=4)
    clear = head.pack() + struct.pack("<II", index, count)
    sealed = clear + end._aead.encrypt(envelope._nonce(head, index), b"abc", clear)
    with pytest.raises(WireError, match=f"chunk {index} of {count} has 3 bytes, which no body of 4 bytes has"):
        end.open(sealed)


def test_a_forged_chunk_spoils_none_that_came_before() -> None:
    body = bytes(range(256)) * (CHUNK // 128)
    head = HEAD._replace(length=len(body))
    end, packets = link(), link().seal(Envelope(head, body))
    assert end.open(packets[0]) is None
    for packet in packets:
        forged = bytearray(packet)
        forged[-20] ^= 1
        with pytest.raises(IntegrityError, match="altered"):
            end.open(forged)
    whole = end.open(packets[1])
    assert whole is not None
    assert whole.body == body


@pytest.mark.parametrize(
    "change",
    [
        {"spec": b"short"},
        {"run": bytes(17)},
        {"round": 1 << 32},
        {"attempt": 1 << 16},
        {"sequence": -1},
        {"source": "\ud800" * 40},
    ],
)
def test_a_header_refuses_what_it_cannot_carry(change: dict[str, Any]) -> None:
    with pytest.raises(RangeError):
        HEAD._replace(**change).pack()


GARBAGE = {
    "dimensions": b"A<f4\x41" + sizes(*[1] * 65) + bytes(4),
    "a side": b"A<f4\x02" + sizes(1 << 63, 0),
    "sides": b"A<f4\x03" + sizes(1 << 62, 1 << 62, 0),
    "depth": (b"T" + sizes(1)) * 5000 + b"N",
    "an integer of no bytes": b"I" + sizes(0),
    "a padded integer": b"I" + sizes(3) + b"\1\0\0",
    "keys out of order": b"M" + sizes(2) + sizes(1) + b"bN" + sizes(1) + b"aN",
    "a key twice": b"M" + sizes(2) + sizes(1) + b"aN" + sizes(1) + b"a+",
    "a bool that is two": b"A|b1\x01" + sizes(1) + b"\x02",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_one_value_has_one_encoding(name: str) -> None:
    with pytest.raises(WireError):
        canon.load(GARBAGE[name])


@pytest.mark.parametrize("value", [torch.zeros(1, dtype=torch.float16), {1: 1, "a": 1}, "\ud800"])
def test_what_has_no_canonical_bytes_is_refused(value: Any) -> None:
    with pytest.raises(WireError):
        canon.dump(value)


def test_normals_are_symmetric_to_the_last_word() -> None:
    words = np.array([0, 1 << 12, 5 << 40, (1 << 64) - 1, (1 << 64) - 1 - (1 << 12)], np.uint64)
    assert from_words(words).tolist() == (-from_words(~words)).tolist()
    assert np.isfinite(from_words(words)).all()


def test_a_full_weight_keeps_the_bound() -> None:
    encoder = FixedPoint(clients=2, weights="slot", cap=10)
    update = Update(torch.tensor([0.900051]), ONE, {"weight": torch.tensor([10.0]).double()})
    row = encoder.encode(update, {}, Tape()).vector.long()
    got = encoder.decode(Released(("a", "b"), sums=2 * row % encoder.modulus), {})
    assert got.sums is not None
    assert got.weights is not None
    true = float(update.vector[0])
    assert abs((got.sums / got.weights).item() - true) <= (0.5 + 0.5 * true) / (1e4 - 0.5)


def test_a_weight_that_exceeds_half_the_modulus_is_still_a_weight() -> None:
    encoder = FixedPoint(clients=7, digits=1, weights="slot", cap=1)
    update = Update(torch.tensor([0.5]), ONE, {"weight": torch.tensor([1.0]).double()})
    row = encoder.encode(update, {}, Tape()).vector.long()
    got = encoder.decode(Released(tuple("abcdefg"), sums=7 * row % encoder.modulus), {})
    assert got.weights is not None
    assert got.weights.item() == 7.0


def test_what_a_small_weight_shrinks_is_not_clamped() -> None:
    encoder = FixedPoint(clients=2, weights="slot", cap=10)
    update = Update(torch.tensor([1.0]), ONE, {"weight": torch.tensor([5.0]).double()})
    got = encoder.encode(update, {}, Tape())
    assert got.vector.tolist() == [5000, 5000]
    assert got.noted["clamped"] == 0


def test_a_repeat_after_the_inbox_was_taken_is_refused() -> None:
    def party(given: Given, memory: Memory, coins: Coins) -> Flow:
        yield Exchange(wait=Wait("up", ("a",)))
        yield Exchange(wait=Wait("up", ("a",)))
        return {}

    seat = Seat.take(party, Given("b", b"", 0, 0, ("a",), 1, Layout(())), {}, Coins.from_seed(0), "nothing")
    seat.deliver(Received("a", "up", {}))
    seat.go()
    with pytest.raises(ProtocolError, match="second 'up'"):
        seat.deliver(Received("a", "up", {}))


def test_a_model_has_one_dimension() -> None:
    with pytest.raises(RangeError):
        Model(torch.tensor(1.0))


def test_a_drawn_node_does_not_lead_to_its_siblings() -> None:
    child = Coins.from_seed(1).child("party", "eve")
    child.export()
    assert child._above is None


@pytest.mark.parametrize(("word", "meant"), [("c7", "c07"), ("c007", "c07"), ("c017", "c17"), ("c18", "c17")])
def test_zeros_before_a_number_do_not_matter_to_what_was_meant(word: str, meant: str) -> None:
    assert nearest(word, ["c07", "c17"]) == f"did you mean {meant!r}?"
