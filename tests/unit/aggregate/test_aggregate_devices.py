"""Every rule gives on a GPU what it gives on the CPU, from rows that lie there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from croupier.aggregate.cluster import flame
from croupier.aggregate.geometry import krum, multi_krum, trimmed_mean
from croupier.aggregate.latent import flare
from croupier.aggregate.majority import majority
from croupier.aggregate.reference import flod, fltrust
from croupier.aggregate.reputation import contra, foolsgold, shieldfl
from croupier.aggregate.romoa import romoa
from croupier.aggregate.spectral import dnc, signguard

ORDER = torch.arange(11).flip(0)
RULES: dict[str, Callable[[Tensor], Tensor]] = {
    "krum": lambda rows: krum(rows, 3, ORDER)[0],
    "multi-krum": lambda rows: multi_krum(rows, 3, 8)[0],
    "trimmed mean": lambda rows: trimmed_mean(rows, 3),
    "fltrust": lambda rows: fltrust(rows, rows[0])[0],
    "flod": lambda rows: flod(rows, rows[0])[0],
    "majority": lambda rows: majority(rows, torch.ones(rows.shape[1])),
    "dnc": lambda rows: dnc(rows, 3, [torch.arange(50)], ORDER)[0],
    "signguard": lambda rows: signguard(rows, rows[:, :40])[0],
    "flame": lambda rows: flame(rows)[0],
    "flare": lambda rows: flare(rows, rows[:, :60].reshape(11, 12, 5), 1.0, ORDER)[0],
    "foolsgold": foolsgold,
    "contra": lambda rows: contra(rows, 3)[0],
    "shieldfl": lambda rows: shieldfl(rows, None, ORDER)[0],
    "romoa": lambda rows: romoa(rows, [(0, 50), (50, 200)], torch.zeros(200), torch.full((11, 200), 1 / 11))[0],
}


@pytest.mark.parametrize("name", RULES)
def test_a_gpu_gives_the_same(name: str) -> None:
    rows = 0.3 + torch.randn(11, 200, generator=torch.Generator().manual_seed(3))
    here = RULES[name](rows)
    assert torch.isfinite(here).all()
    assert here.dtype == torch.float64
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no CUDA device")
    there = RULES[name](rows.cuda())
    assert there.is_cuda
    assert torch.allclose(here, there.cpu(), atol=1e-5)
