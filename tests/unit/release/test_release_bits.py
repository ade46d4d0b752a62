"""Releases of residues in unary: what leaves, that it does not depend on threads, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.tape import Tape
from torch import Tensor

from croupier.core.coins import BLOCK, Coins
from croupier.core.update import Layout, Slice
from croupier.core.wire import Schema, attendance, bitmap
from croupier.errors import ProtocolError, RangeError, WireError
from croupier.kernels import residues, threads
from croupier.release.bits import Bits, Counts, Mod
from croupier.release.release import Release

MODULI = (3, 5, 7, 8, 11, 13, 17)
EVERY = pytest.mark.parametrize("release", [Bits(), Counts(), Mod()], ids=lambda release: release.use)


def rows_of(count: int, people: int, moduli: tuple[int, ...] = MODULI) -> tuple[list[Tensor], np.ndarray]:
    top = 50
    numbers = [Coins.from_seed(i).secure().below(2 * top + 1, count) - top for i in range(people)]
    rows = [torch.from_numpy(residues.spread(row, top, moduli)) for row in numbers]
    return rows, sum(row[:, None] % np.array(moduli) for row in numbers)


def layout(count: int) -> Layout:
    return Layout((Slice("w", (count,)),))


def ones_of(rows: Tensor | Sequence[Tensor], count: int) -> np.ndarray:
    return residues.counts([row.numpy() for row in rows], count, MODULI)


@pytest.mark.parametrize("count", [1, 9, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77])
def test_bits_keep_every_count_and_the_others_tell_it(count: int) -> None:
    rows, want = rows_of(count, 3)
    before = [row.clone() for row in rows]
    moved = Bits()(rows, layout(count), MODULI, Coins.from_seed(1))["rows"]
    assert np.array_equal(ones_of(moved, count), want)
    assert np.array_equal(Counts()(rows, layout(count), MODULI, Tape())["sums"].numpy(), want)
    assert np.array_equal(Mod()(rows, layout(count), MODULI, Tape())["sums"].numpy(), want % np.array(MODULI))
    assert all(torch.equal(row, old) for row, old in zip(rows, before, strict=True))


def test_counting_from_shuffled_bits_gives_what_counts_releases() -> None:
    """Bits and counts are equivalent: either can be made from the other (Proposition A.2)."""
    rows, _ = rows_of(500, 4)
    moved = Bits()(rows, layout(500), MODULI, Coins.from_seed(1))["rows"]
    told = Counts()(rows, layout(500), MODULI, Tape())["sums"]
    assert torch.equal(Counts()(list(moved), layout(500), MODULI, Tape())["sums"], told)
    again = Coins.from_seed(1).child("block", 0).secure().scatter(told.long().numpy(), 4, MODULI)
    assert np.array_equal(again, moved.numpy())


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * BLOCK + 5
    rows, _ = rows_of(count, 2)
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        found.append([r(rows, layout(count), MODULI, Coins.from_seed(1)) for r in (Bits(), Counts(), Mod())])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert all(torch.equal(one[key], two[key]) for key in one)


def test_blocks_of_coordinates_are_shuffled_by_coins_of_their_own() -> None:
    """The same bits in two blocks leave in different arrangements: one permutation for both would link them."""
    rows, _ = rows_of(BLOCK, 2)
    moved = Bits()([torch.cat([row, row]) for row in rows], layout(2 * BLOCK), MODULI, Coins.from_seed(1))["rows"]
    half = moved.shape[1] // 2
    assert not torch.equal(moved[:, :half], moved[:, half:])


@EVERY
@pytest.mark.parametrize("count", [1, 7, 8, 300])
def test_what_leaves_fits_its_fields(release: Release, count: int) -> None:
    rows, _ = rows_of(count, 3)
    names = ("a", "b", "c")
    schema = Schema((attendance(names), *release.fields("|u1", MODULI, count)))
    values = {"present": bitmap(names, names), **release(rows, layout(count), MODULI, Coins.from_seed(1))}
    schema.check(values)
    data = schema.pack(values)
    bits, packed = sum(m - 1 for m in MODULI), sum((m - 1).bit_length() for m in MODULI)
    length = {"bits": 3 * -(-bits * count // 8), "counts": 4 * 7 * count, "mod": -(-packed * count // 8)}
    assert len(data) == 3 + length[release.use]
    back = schema.unpack(data)
    assert all(torch.equal(back[key], values[key]) for key in values)


def test_residues_that_are_none_and_spare_bits_are_refused() -> None:
    moduli = (5, 7, 8, 9, 11)
    rows, _ = rows_of(3, 2, moduli)
    (field,) = Mod().fields("|u1", moduli, 3)
    sums = Mod()(rows, layout(3), moduli, Tape())["sums"]
    sums[0, 4] = 11
    with pytest.raises(RangeError, match="outside 0 to 10"):
        Schema((field,)).check({"sums": sums})
    sums[0, 4], sums[1, 0] = 0, 8
    with pytest.raises(RangeError, match="need more bits"):
        Schema((field,)).pack({"sums": sums})
    sums[1, 0] = 0
    data = bytearray(Schema((field,)).pack({"sums": sums}))
    assert (len(data), 3 * sum(field.widths)) == (7, 51)
    data[-1] |= 0x80
    with pytest.raises(WireError, match="bits set after its end"):
        Schema((field,)).unpack(bytes(data))


@EVERY
def test_only_residues_in_unary_are_released(release: Release) -> None:
    with pytest.raises(ProtocolError, match="use encode = 'residues'"):
        release([torch.zeros(3, dtype=torch.int32)] * 2, layout(3), 8, Tape())
    with pytest.raises(ProtocolError, match="fewer than 8 bits"):
        release([torch.zeros(3, dtype=torch.uint8)] * 2, layout(4), (2, 3), Tape())


def test_they_say_what_leaks() -> None:
    assert "more than the sum" in Bits().reveals()
    assert Counts().reveals() == Bits().reveals()
    assert "more" not in Mod().reveals()
    for release in (Bits(), Counts(), Mod()):
        assert (release.shape, release.least, release.unary) == ("sums", 2, True)
        assert release.hides == frozenset({"ids", "rows"})
