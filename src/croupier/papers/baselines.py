"""The aggregation rules of the literature, as the house has them, for the arena.

Rules that assume a number of malicious clients are told the true one, as far as they allow: more than they would know.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from croupier.aggregate import geometry, reference
from croupier.aggregate.rows import middle
from croupier.papers.rules import SIGNED, Rule, Sight


def _krum(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor, Any]:
    bad = min(sight.bad, (len(rows) - 3) // 2)
    return geometry.krum(rows, bad, _order(rows, sight))[0].to(rows.dtype), memory


def _median(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor, Any]:
    return middle(rows).to(rows.dtype), memory


def _trimmed(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor, Any]:
    return geometry.trimmed_mean(rows, min(sight.bad, (len(rows) - 1) // 2)).to(rows.dtype), memory


def _trusted(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor | None, Any]:
    return _some(*reference.fltrust(rows, sight.root), rows), memory


def _hamming(rows: Tensor, sight: Sight, memory: Any) -> tuple[Tensor | None, Any]:
    return _some(*reference.flod(rows, sight.reference), rows), memory


def _some(step: Tensor, weights: Tensor, rows: Tensor) -> Tensor | None:
    """No step where no row counts."""
    return step.to(rows.dtype) if bool((weights > 0).any()) else None


def _order(rows: Tensor, sight: Sight) -> Tensor:
    """Ties fall by chance."""
    return torch.randperm(len(rows), generator=sight.generator, device=rows.device)


KRUM = Rule("Krum", _krum)
MEDIAN = Rule("Median", _median)
TRIMMED = Rule("Trimmed mean", _trimmed)
FLTRUST = Rule("FLTrust", _trusted)
# Zeros are positive, as its paper has them.
FLOD = Rule("FLOD", _hamming, signs=True, rate=SIGNED, fair=False)
