"""What IntraShuffler's figures show beside means: clients one by one, rows as spots, links round by round.

Experiments are long, and pictures are drawn later from results on disk, so this keeps plain values only.
`attacks.tiers.experiment` makes a `Sketch` of every view, and `papers.intra.attack_figures` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from croupier.audit.traits.scores import BUCKET, ROW, TraitTruth, link_hits
from croupier_lab.attacks.tiers.measures import CleanTruth

# Chances below this are taken as this, so that their logarithm stays finite.
_LEAST = 1e-6
# A row as a spot: the classifier's log odds, the first principal direction, and its owner's true class.
Spot = tuple[float, float, int]


@dataclass(frozen=True)
class Sketch:
    """Of one view and denoiser: each client's mean cosine, spots by attribute, and links by round.

    A spot's log odds are those of an attribute's last class against its first. `linked` has for each round how many
    questions were asked, how many were hit, and how many a random pick would hit. They ask for a row's owner, or for a
    bucket where rows are means of several.
    """

    clients: Mapping[str, float]
    spots: Mapping[str, tuple[Spot, ...]]
    linked: Mapping[int, tuple[int, float, float]]


def sketched(stages: Mapping[str, Any], features: Tensor, known: CleanTruth) -> Sketch:
    """Make it from an attack's answer (`stages`), the rows along principal directions (`features`) and the truth."""
    truth = known.truth
    at = truth.pairs[0]
    plain = torch.cosine_similarity(stages["rows"][at].double(), known.clean, dim=1).tolist()
    by: dict[str, list[float]] = {}
    for who, value in zip(truth.names, plain, strict=True):
        by.setdefault(who, []).append(value)
    spots = {key: _spots(chances, features, truth, key) for key, chances in stages["chances"].items()}
    return Sketch({who: fmean(each) for who, each in by.items()}, spots, _linked(stages, truth))


def _spots(chances: Tensor, features: Tensor, truth: TraitTruth, key: str) -> tuple[Spot, ...]:
    at = truth.pairs[0]
    logs = chances.double().clamp_min(_LEAST).log()
    odds, first = (logs[:, -1] - logs[:, 0])[at], features[at, 0]
    classes = truth.attributes[key].of(truth.names)
    return tuple(zip(odds.tolist(), first.tolist(), classes.tolist(), strict=True))


def _linked(stages: Mapping[str, Any], truth: TraitTruth) -> dict[int, tuple[int, float, float]]:
    found = link_hits(stages["links_centred"], stages["allowed"], truth)
    asked = found[ROW] or found[BUCKET]
    return {
        number: (len(mine), sum(hit for _, hit, _ in mine), sum(chance for _, _, chance in mine))
        for number in sorted({number for number, _, _ in asked})
        for mine in [[one for one in asked if one[0] == number]]
    }
