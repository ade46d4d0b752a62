from __future__ import annotations

import numpy as np
import pytest
import torch

from croupier.encode.moduli import moduli
from croupier.kernels import residues, tensors
from croupier.kernels.residues import Grid, Rounding

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("clients", "digits"), [(3, 1), (10, 5), (100, 6)])
@pytest.mark.parametrize("count", [0, 1, 7, 1000, (1 << 18) + 5])
def test_bits_counts_and_sums_are_those_of_the_arrays(device: str, clients: int, digits: int, count: int) -> None:
    chosen, top = moduli(clients, digits).values, 10**digits - 1
    draw = np.random.default_rng(count)
    sent = [draw.integers(-top, top + 1, count) for _ in range(2)]
    packed = [tensors.spread(torch.from_numpy(numbers).to(device), chosen) for numbers in sent]
    want = [residues.spread(numbers, top, chosen) for numbers in sent]
    for one, other in zip(packed, want, strict=True):
        assert one.cpu().numpy().tobytes() == other.tobytes()
    ones = tensors.counts(packed, count, chosen)
    assert np.array_equal(ones.cpu().numpy(), residues.counts(want, count, chosen))
    assert np.array_equal(tensors.join(ones, chosen).cpu().numpy(), sent[0] + sent[1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rounding", ["even", "stochastic", "floor"])
def test_rounding_is_that_of_the_arrays(device: str, rounding: Rounding) -> None:
    draw = np.random.default_rng(3)
    values = np.concatenate([draw.normal(0, 0.6, 5000), [0.5, -0.5, 0.125, -0.0, 1.0, -1.0, 3.0]]).astype(np.float32)
    grid = Grid(np.array([1.0]), 100, 99, 0.7, rounding)
    words = draw.integers(0, 1 << 32, len(values)).astype(np.uint32)
    got, clamped = tensors.whole(
        torch.from_numpy(values).to(device),
        grid,
        torch.from_numpy(words.astype(np.int64)).to(device) if rounding == "stochastic" else None,
    )
    want, wanted = residues.whole(values, grid, words)
    assert np.array_equal(got.cpu().numpy(), want)
    assert clamped == wanted > 0
