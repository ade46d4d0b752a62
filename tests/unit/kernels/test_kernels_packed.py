"""Compiled loops on packed residues equal their references, around the limits of words, blocks, passes and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.errors import RangeError
from croupier.kernels import pack, packed, threads
from croupier.kernels.packed import Key
from croupier.kernels.shares import P

# One lane to fifteen and more, with straddling residues and without.
WIDTHS = [1, 4, 13, 18, 20, 21, 28, 29, 31, 32, 33, 47, 60]


def edges(bits: int) -> list[int]:
    """Around a block, with the last word full or not."""
    return [1024, packed.block(bits) - 1, packed.block(bits), packed.block(bits) + 1, 3 * packed.block(bits) + 7]


def drawn(bits: int, count: int, seed: int = 1) -> Any:
    """Residues with the smallest and the largest among them."""
    values = Coins.from_seed(seed).secure().below(1 << bits, count)
    values[-1], values[0], values[count // 2] = 0, (1 << bits) - 1, 1 << (bits - 1)
    return values.astype(packed.dtype(bits))


def keyed(bits: int, count: int) -> Key:
    """A key with the smallest and the largest elements."""
    inner, outer = Key.sizes(count, bits)
    elements = Coins.from_seed(8).secure().below(P, inner + outer).view(np.uint64)
    elements[0], elements[inner] = P - 1, P - 1
    return Key.of(elements[:inner], elements[inner:], bits)


def sources(bits: int, *seeds: int) -> list[Any]:
    """What is drawn from some seeds."""
    return [Coins.from_seed(seed).secure().packed(bits) for seed in seeds]


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def several(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with work that is cut into pieces and passes, however many cores there are."""
    monkeypatch.setattr(threads, "cores", lambda: request.param)
    monkeypatch.setattr(threads, "FEW", 1024)
    monkeypatch.setattr(packed, "_PASS", 1024)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", WIDTHS)
def test_masking_adding_and_tagging(bits: int) -> None:
    for count in edges(bits):
        numbers, key = drawn(bits, count), keyed(bits, count)
        share, form = packed.cover(numbers, bits, sources(bits, 1, 2), sources(bits, 3), key)
        want, plain = packed.cover_plain(numbers, bits, sources(bits, 1, 2), sources(bits, 3), key)
        assert np.array_equal(share, want)
        assert form == plain == packed.form_plain(key, numbers, bits)
        assert len(share) == packed.size(count, bits)
        total = packed.fold([share, share], sources(bits, 1, 4), count, bits)
        assert np.array_equal(total, packed.fold_plain([share, share], sources(bits, 1, 4), count, bits))
        assert packed.form(key, total, count, bits) == packed.form_plain(key, packed.numbers(total, count, bits), bits)
        # What was taken away and added comes back.
        again = packed.fold([packed.cover(numbers, bits, sources(bits, 1, 2))[0]], sources(bits, 2, 1), count, bits)
        assert np.array_equal(packed.numbers(again, count, bits), numbers)
        assert packed.last(again, count, bits) == int(numbers[-1]) == 0


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", WIDTHS)
def test_packing_is_that_of_the_wire(bits: int) -> None:
    for count in [1, 5, *edges(bits)]:
        numbers = drawn(bits, count)
        data = packed.packed(numbers, bits)
        assert np.array_equal(data, pack.pack_plain(numbers, (bits,)))
        assert np.array_equal(packed.numbers(data, count, bits), numbers)
        assert packed.last(data, count, bits) == int(numbers[-1])


@pytest.mark.parametrize("bits", [21, 60])
def test_rows_need_not_lie_on_whole_words(bits: int) -> None:
    count = 5000
    data = packed.packed(drawn(bits, count), bits)
    apart = np.zeros(len(data) + 3, np.uint8)
    apart[3:] = data
    both = packed.fold([data, apart[3:]], (), count, bits)
    assert np.array_equal(both, packed.fold_plain([data, data], (), count, bits))
    assert np.array_equal(packed.numbers(apart[3:], count, bits), packed.numbers(data, count, bits))


@pytest.mark.parametrize("bits", [2, 21, 28, 29, 31, 60])
@pytest.mark.parametrize("edge", ["least", "most"])
def test_forms_of_extremes_do_not_overflow(bits: int, edge: str) -> None:
    count = 2 * packed.block(bits) + 5
    numbers = np.full(count, 1 << (bits - 1) if edge == "least" else (1 << (bits - 1)) - 1, packed.dtype(bits))
    inner, outer = Key.sizes(count, bits)
    key = Key.of(np.full(inner, P - 1, np.uint64), np.full(outer, P - 1, np.uint64), bits)
    assert packed.cover(numbers, bits, (), key=key)[1] == packed.form_plain(key, numbers, bits)


@pytest.mark.parametrize("bits", [1, 21, 60])
def test_a_stream_can_be_opened_at_any_block(bits: int) -> None:
    node, block = Coins.from_seed(5), packed.block(bits)
    whole, part = np.zeros(2 * block * bits // 64, np.uint64), np.zeros(block * bits // 64, np.uint64)
    node.secure().packed(bits)(0)(whole, 2 * block)
    node.secure().packed(bits)(block)(part, block)
    assert np.array_equal(whole[len(part) :], part)
    assert whole.view(np.uint8).tobytes() == bytes(node.secure().bytes(whole.nbytes))
    with pytest.raises(RangeError, match="does not begin where a block of the cipher does"):
        node.secure().packed(bits)(1)
