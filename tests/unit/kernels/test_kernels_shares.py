"""Compiled loops of packing and sharing equal their references, around the limits of words, blocks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from croupier.core.coins import Coins
from croupier.kernels import pack, shares, threads

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
    monkeypatch.setattr(threads, "cores", lambda: request.param)
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


@pytest.mark.parametrize("widths", [(3, 17), (1, 63, 30), (8, 8)])
@pytest.mark.parametrize("count", [1, 64, 1025, 20_000])
def test_packing_in_several_widths(widths: tuple[int, ...], count: int) -> None:
    rows = np.stack([drawn(width, count) for width in widths], 1)
    data = pack.pack(rows, widths)
    assert np.array_equal(data, pack.pack_plain(rows, widths))
    assert np.array_equal(pack.unpack(data, count, widths), rows)


@pytest.mark.parametrize("bits", [1, 21, 32, 33, 60])
@pytest.mark.parametrize("count", [1, (1 << 13) - 1, 1 << 13, 1 << 14, (1 << 14) + 1, 40_000])
@pytest.mark.parametrize("minus", [False, True])
def test_blinding_adds_the_words_of_the_stream(bits: int, count: int, minus: bool) -> None:
    total = drawn(bits, count).astype(np.uint32 if bits <= 32 else np.uint64)
    start = total.copy()
    data = Coins.from_seed(4).secure().bytes(total.nbytes)
    words = np.frombuffer(data, total.dtype)
    Coins.from_seed(4).secure().blind(total, bits, minus=minus)
    assert np.array_equal(total, start - words if minus else start + words)
    Coins.from_seed(4).secure().blind(total, bits, minus=not minus)
    assert np.array_equal(total, start)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("bits", [2, 21, 31, 32, 60])
@pytest.mark.parametrize("count", EDGES)
def test_signs(bits: int, count: int) -> None:
    residues = drawn(bits, count)
    numbers = shares.signed(residues, bits)
    half = 1 << (bits - 1)
    assert all(-half <= n < half for n in numbers.tolist())
    assert [n % (1 << bits) for n in numbers.tolist()] == residues.tolist()
