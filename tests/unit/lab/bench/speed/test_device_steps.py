"""Steps after training on a device give the bytes of the product's own; on a GPU too, where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from croupier.core.coins import Coins
from croupier.kernels import packed, permute, residues
from croupier.kernels.weighted import weighted_plain
from croupier_lab.bench.speed import device_steps, device_times
from croupier_lab.bench.speed.device_steps import averaged, covered, folded, joined, rounded, shuffled, unpacked
from croupier_lab.bench.speed.device_times import _words, compare, ready

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.cuda))
WIDTHS = (5, 17, 31, 32, 33, 47)


def spread(clients: int, width: int) -> torch.Tensor:
    """Updates of which some reach out of the scale, and some lie right between two steps."""
    rows = 0.5 * torch.randn(clients, width, generator=torch.Generator().manual_seed(1))
    rows[:, ::7] = torch.round(rows[:, ::7] * 100) / 100 + 0.005
    return rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bits", WIDTHS)
def test_residues_are_packed_and_unpacked_as_ever(bits: int, device: str) -> None:
    numbers = Coins.from_seed(bits).secure().below(1 << bits, 333)
    data = packed.packed(numbers.astype(packed.dtype(bits)), bits)
    words = _words(data).to(device)
    assert np.array_equal(unpacked(words, 333, bits).cpu().numpy(), numbers)
    back = joined(torch.from_numpy(numbers).to(device), bits).cpu().numpy().view(np.uint8)
    assert np.array_equal(back[: len(data)], data)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("unit", "bits"), [(100, 12), (10**6, 34)])
def test_values_are_rounded_as_ever(unit: int, bits: int, device: str) -> None:
    rows, grid = spread(3, 2500), residues.Quantiser(np.ones(1), unit, unit - 1)
    got = rounded(rows.to(device), unit, unit - 1, bits).cpu().numpy()
    for row, one in zip(rows, got, strict=True):
        wanted, clamped = residues.wrapped(row.numpy(), grid, np.zeros(0, np.uint32), bits)
        assert clamped > 0
        assert one.dtype == wanted.dtype
        assert np.array_equal(one, wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bits", [17, 33])
def test_masks_and_sums_are_as_ever(bits: int, device: str) -> None:
    count, coins = 1000, Coins.from_seed(2)
    numbers = [coins.child(c).secure().below(1 << bits, count).astype(packed.dtype(bits)) for c in range(3)]
    shares, there = [], []
    for c, own in enumerate(numbers):
        sources = [coins.child("mask", c, s).secure().packed(bits) for s in range(2)]
        shares.append(packed.cover(own, bits, sources)[0])
        draws = []
        for source in sources:
            words = np.zeros(-(-count * bits // 64), np.uint64)
            source(0)(words, count)
            draws.append(torch.from_numpy(words.view(np.int64)).to(device))
        there.append(covered(torch.from_numpy(own).to(device), draws, bits))
        assert np.array_equal(there[-1].cpu().numpy().view(np.uint8)[: len(shares[-1])], shares[-1])
    total = folded(there, count, bits).cpu().numpy().view(np.uint8)
    wanted = packed.fold(shares, (), count, bits)
    assert np.array_equal(total[: len(wanted)], wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clients", [2, 7, 30])
def test_columns_are_permuted_as_ever(clients: int, device: str) -> None:
    rows = torch.arange(clients * 40, dtype=torch.float32).view(clients, 40)
    words = Coins.from_seed(clients).secure().words(len(permute.batches(clients)) * 40).reshape(-1, 40)
    # The first column's word is refused: its remainder is 0.
    words = words.copy()
    words[0, 0] = 0
    wanted = rows.numpy().copy()
    again = permute._strip_plain(wanted, words)
    got, refused = shuffled(rows.to(device), torch.from_numpy(words.view(np.int64)).to(device))
    least = permute.batches(clients)[0].least
    assert refused.nonzero()[:, 0].tolist() == again.tolist() == ([0] if least else [])
    assert np.array_equal(got.cpu().numpy(), wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("clients", [1, 2, 5, 8])
def test_sums_of_floats_are_as_ever(clients: int, device: str) -> None:
    rows = spread(clients, 500) * 10.0 ** torch.randint(-9, 9, (clients, 500), generator=torch.Generator())
    weights = torch.arange(1, clients + 1, dtype=torch.float64)
    got = averaged(rows.to(device), weights.to(device)).cpu() / weights.sum()
    assert torch.equal(got.float(), device_times._mean(rows, weights))
    # Bit for bit before the division too, and whatever vanishes beside far larger values.
    rows[0] = -rows[-1] * 1e9
    there = averaged(rows.to(device), weights.to(device)).cpu().numpy()
    assert np.array_equal(there.view(np.int64), weighted_plain(rows.numpy(), weights.numpy()).view(np.int64))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wide", [False, True])
def test_every_step_is_timed_and_agrees(device: str, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if wide:
        # As if vectors were long, and clients worked on all cores.
        monkeypatch.setattr(device_times, "FEW", 1000)
    # As if a word had been refused in the second block, which is then permuted on the CPU.
    honest = device_steps.shuffled

    def refusing(rows: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moved, refused = honest(rows, words)
        refused[-1] = True
        return moved.index_fill(1, torch.tensor([rows.shape[1] - 1], device=rows.device), 0.0), refused

    monkeypatch.setattr(device_steps, "shuffled", refusing)
    found = compare(spread(3, (1 << 16) + 100).to(device), Coins.from_seed(1), 1)
    ready(torch.device(device))
    assert [step["step"] for step in found["steps"]] == ["encode", "mask", "fold", "shuffle", "mean"]
    assert all(step["same_bytes"] for step in found["steps"])
    assert found["cpu_s"] > found["home_s"]
    assert found["there_s"] > 0
    assert found["device_s"] > 0
