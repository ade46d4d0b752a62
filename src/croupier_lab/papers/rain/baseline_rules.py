"""Aggregation rules of the literature for rounds in the clear, as the product implements them.

Rules that assume a number of malicious clients are told the true one, as far as they allow, which is more than they
would know. `robustness` (RAIN's Figure 5) compares `THIRTEEN` of them, and `malicious_shares` (Figure 6) some.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from croupier.aggregate import cluster, geometry, latent, reference, reputation, romoa, spectral
from croupier.aggregate.rows import combine, middle, norms
from croupier_lab.papers.rain.rules import LOUD, SIGNED, ClearRule, ServerKnowledge
from croupier_lab.papers.rain.stacked_gradients import features, spans

# FLAME's noise for pictures, DnC's number of coordinates, CONTRA's neighbours, SignGuard's share of coordinates.
_NOISE, _LOOK, _NEAR, _BLOCK = 0.001, 10_000, 5, 0.1


def _krum(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    bad = min(sight.bad, (len(rows) - 3) // 2)
    return geometry.krum(rows, bad, _order(rows, sight))[0].to(rows.dtype), memory


def _median(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    return middle(rows).to(rows.dtype), memory


def _trimmed(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    return geometry.trimmed_mean(rows, min(sight.bad, (len(rows) - 1) // 2)).to(rows.dtype), memory


def _trusted(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor | None, Any]:
    return _some(*reference.fltrust(rows, sight.root), rows), memory


def _hamming(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor | None, Any]:
    return _some(*reference.flod(rows, sight.reference), rows), memory


def _flame(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    step = cluster.flame(rows)[0].to(rows.dtype)
    noise = torch.randn(step.shape, generator=sight.generator, device=step.device)
    return step + _NOISE * float(middle(norms(rows))) * noise, memory


def _dnc(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor | None, Any]:
    size = rows.shape[1]
    pick = torch.randperm(size, generator=sight.generator, device=rows.device)[:_LOOK]
    bad = min(sight.bad, len(rows) - 1)
    return _some(*spectral.dnc(rows, bad, [pick], _order(rows, sight)), rows), memory


def _signguard(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor | None, Any]:
    size = rows.shape[1]
    width = max(1, int(_BLOCK * size))
    start = int(torch.randint(size - width + 1, (1,), generator=sight.generator, device=rows.device))
    return _some(*spectral.signguard(rows, rows[:, start : start + width]), rows), memory


def _foolsgold(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    sent = _added(rows, sight, memory)
    return _mean(rows, reputation.foolsgold(sent)), sent


def _contra(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    sent = _added(rows, sight, memory)
    return _mean(rows, reputation.contra(sent, _NEAR)[0]), sent


def _added(rows: Tensor, sight: ServerKnowledge, memory: Any) -> Tensor:
    """The sum of all that each place of the rows has sent so far, of the last layer alone."""
    start = spans(sight.widths)[-2][0]
    now = rows[:, start:].double()
    return now if memory is None else memory + now


def _mean(rows: Tensor, weights: Tensor) -> Tensor:
    return combine(rows, weights / len(rows)).to(rows.dtype)


def _shieldfl(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    # Directions have no length: the step gets the median one.
    step = reputation.shieldfl(rows, memory, _order(rows, sight))[0]
    return (step * middle(norms(rows))).to(rows.dtype), step


def _flare(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    found = features(sight.vector + rows, sight.widths, sight.records)
    return latent.flare(rows, found, order=_order(rows, sight))[0].to(rows.dtype), memory


def _romoa(rows: Tensor, sight: ServerKnowledge, memory: Any) -> tuple[Tensor, Any]:
    last, before = memory or (torch.zeros_like(rows[0]), torch.full_like(rows, 1 / len(rows)))
    step, _, found = romoa.romoa(rows, spans(sight.widths), last, before)
    return step.to(rows.dtype), (step.to(rows.dtype), found)


def _some(step: Tensor, weights: Tensor, rows: Tensor) -> Tensor | None:
    """The step, or None where no row has a weight."""
    return step.to(rows.dtype) if bool((weights > 0).any()) else None


def _order(rows: Tensor, sight: ServerKnowledge) -> Tensor:
    """A random order of the rows, by which ties fall."""
    return torch.randperm(len(rows), generator=sight.generator, device=rows.device)


KRUM = ClearRule("Krum", _krum)
MEDIAN = ClearRule("Median", _median)
TRIMMED = ClearRule("Trimmed mean", _trimmed)
FLTRUST = ClearRule("FLTrust", _trusted)
# Zeros count as positive, as in FLOD's paper.
FLOD = ClearRule("FLOD", _hamming, signs=True, rate=SIGNED, loud=LOUD, fair=False)
FLAME = ClearRule("FLAME", _flame)
DNC = ClearRule("DnC", _dnc)
SIGNGUARD = ClearRule("SignGuard", _signguard)
FOOLSGOLD = ClearRule("FoolsGold", _foolsgold)
CONTRA = ClearRule("CONTRA", _contra)
SHIELDFL = ClearRule("ShieldFL", _shieldfl)
FLARE = ClearRule("FLARE", _flare)
ROMOA = ClearRule("Romoa", _romoa)
# As Figure 5 groups them: by geometry, then by reputation.
THIRTEEN = (
    KRUM, TRIMMED, MEDIAN, FLOD, FLAME, SHIELDFL, SIGNGUARD, FLTRUST, FOOLSGOLD, DNC, CONTRA, ROMOA, FLARE,
)  # fmt: skip
