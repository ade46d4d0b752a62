"""Compiled loops of packing and sharing equal their references, around the limits of words, blocks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.kernels import pack, shares, threads
from croupier.kernels.shares import P

EDGES = [1, 63, 64, 65, 1023, 1024, 1025, 2047, 4097]
WIDTHS = [1, 7, 8, 21, 31, 32, 33, 60, 63]


def drawn(bits: int, count: int, seed: int = 1) -> Any:
    """Residues with the smallest and the largest among them."""
    values = Coins.from_seed(seed).secure().below(1 << bits, count)
    values[-1], values[0] = 0, (1 << bits) - 1
    return values


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def several(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with work that is cut into pieces, however many cores there are."""
    monkeypatch.setattr(threads, "_cores", lambda: request.param)
    monkeypatch.setattr(threads, "FEW", 1024)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("count", EDGES)
def test_packing(bits: int, count: int) -> None:
    values = drawn(bits, count)
    data = pack.pack(values, (bits,))
    assert np.array_equal(data, pack.pack_plain(values, (bits,)))
    assert len(data) == pack.size(count, (bits,)) == -(-count * bits // 8)
    assert np.array_equal(pack.unpack(data, count, (bits,))[:, 0], values)
    assert np.array_equal(pack.unpack_plain(data, count, (bits,))[:, 0], values)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("count", EDGES)
@pytest.mark.parametrize("minus", [False, True])
def test_folding(bits: int, count: int, minus: bool) -> None:
    data = pack.pack_plain(drawn(bits, count), (bits,))
    start = shares.total(count, bits)
    start += drawn(min(bits, 32), count, 2).astype(start.dtype)
    fast, plain = start.copy(), start.copy()
    shares.fold(data, bits, fast, minus=minus)
    shares.fold_plain(data, bits, plain, minus=minus)
    assert np.array_equal(fast, plain)
    assert not np.array_equal(fast, start)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", [4, 27, 28, 29, 60])
@pytest.mark.parametrize("count", EDGES)
def test_inner_products(bits: int, count: int) -> None:
    numbers = shares.signed(drawn(bits, count), bits)
    words = Coins.from_seed(9).secure().words(shares.keys(count, bits)).copy()
    words[0], words[-1] = np.uint64(P), np.uint64((1 << 64) - 1)
    assert shares.dot(words, numbers, bits) == shares.dot_plain(words, numbers, bits)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", [2, 21, 31, 32, 60])
@pytest.mark.parametrize("count", EDGES)
def test_signs(bits: int, count: int) -> None:
    residues = drawn(bits, count)
    numbers = shares.signed(residues, bits)
    half = 1 << (bits - 1)
    assert all(-half <= n < half for n in numbers.tolist())
    assert [n % (1 << bits) for n in numbers.tolist()] == residues.tolist()
    assert np.array_equal(shares.wrapped(numbers, bits), residues)


def test_two_numbers_that_share_a_key_are_told_apart() -> None:
    key = Coins.from_seed(1).secure().words(1)
    top = 1 << 27
    sums = [(-top, 1), (top - 1, 0), (0, 1), (1, 0), (-1, 1), (0, 0), (top - 1, -top)]
    found = {shares.dot_plain(key, np.array(pair), 28) for pair in sums}
    assert len(found) == len(sums)
