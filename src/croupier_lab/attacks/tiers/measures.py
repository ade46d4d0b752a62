"""Measures of the IntraShuffler paper's tables that audits do not show.

They are the likeness of denoised updates to the clean ones (stage 1), clients named right by budget (stage 2), clusters
against classes, and shuffled values given back to their clients. All of them need the truth. `attacks.tiers.experiment`
scores each view with them, and `papers.intra.attack_tables` names its groups of budgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from croupier.audit.attacks.traits.denoise import FOLDS, AuxiliaryUpdates, fitted
from croupier.audit.traits.scores import RIGHT, Measures, RoundTruth, TraitTruth, client_chances, mean
from croupier.core.coins import Coins
from croupier_lab.attacks.tiers import recombine

# The groups of the paper's Table 5: epsilon up to 1, above 1 and up to 4, above 4.
GROUPS = (("low", 0.0, 1.0), ("middle", 1.0, 4.0), ("high", 4.0, math.inf))
# A value is called sure where its tier has at least this chance.
SURE = 0.99


@dataclass(frozen=True)
class CleanTruth:
    """The truth about a view, with what clients had learnt before noise in each round, and the budgets they declared.

    A pair is one row of the view together with one client that it belongs to.
    """

    truth: TraitTruth
    learnt: tuple[Tensor, ...]
    epsilons: Mapping[str, float]

    @cached_property
    def tiers(self) -> Tensor:
        """The declared epsilon of each pair's client."""
        return torch.tensor([self.epsilons[name] for name in self.truth.names], dtype=torch.float64)

    @cached_property
    def clean(self) -> Tensor:
        """What each pair's client had learnt in that round."""
        _, rounds, who = self.truth.pairs
        return torch.stack([self.learnt[r][w] for r, w in zip(rounds.tolist(), who.tolist(), strict=True)]).double()

    @cached_property
    def common(self) -> Tensor:
        """The mean of all that was learnt in each pair's round."""
        means = torch.stack([one.double().mean(0) for one in self.learnt])
        return means[self.truth.pairs[1]]


def cosines(estimates: Tensor, known: CleanTruth) -> Measures:
    """Likeness of estimates (one a pair) and clean updates: as they are, around the round's mean, and by tier."""
    plain = torch.cosine_similarity(estimates, known.clean, dim=1)
    around = torch.cosine_similarity(estimates - known.common, known.clean - known.common, dim=1)
    by = {tier: float(plain[known.tiers == tier].mean()) for tier in sorted(set(known.tiers.tolist()))}
    found = {"cosine": float(plain.mean()), "cosine centred": float(around.mean()), **curve(by)}
    return found | {f"cosine at epsilon {tier:g}": value for tier, value in by.items()}


def curve(by: Mapping[float, float]) -> Measures:
    """Two summaries of the cosine by tier, where there are two tiers or more.

    `CosAUC` is the area under the cosine over log epsilon, with the axis scaled from 0 to 1. `delta-cos` is the cosine
    of the last tier less that of the first.
    """
    tiers = list(by)
    if len(tiers) < 2:
        return {}
    along = [math.log(tier / tiers[0]) / math.log(tiers[-1] / tiers[0]) for tier in tiers]
    steps = zip(pairwise(along), pairwise(by.values()), strict=True)
    area = sum((b - a) * (y + z) / 2 for (a, b), (y, z) in steps)
    return {"CosAUC": area, "delta-cos": by[tiers[-1]] - by[tiers[0]]}


def denoising(rows: Tensor, known: CleanTruth) -> Measures:
    """Stage 1: the cosines, and beside them a reading that favours the attacker.

    That reading compares each row with the member of its bucket that it is most like.
    """
    truth = known.truth
    at, rounds, _ = truth.pairs
    found = cosines(rows[at].double(), known)
    best = []
    for row, number in dict(zip(at.tolist(), rounds.tolist(), strict=True)).items():
        names = truth.rounds[number].names
        mates = known.learnt[number][[names.index(name) for name in truth.mates[row]]].double()
        best.append(float(torch.cosine_similarity(rows[row].double().unsqueeze(0), mates, dim=1).max()))
    return found | {"cosine best of bucket": sum(best) / len(best)}


def by_budget(key: str, chances: Tensor, known: CleanTruth) -> Measures:
    """Stage 2 by groups of budgets: how often a client's class is named right."""
    labels = known.truth.attributes[key].labels
    hits = [(name, int(seen.argmax()) == labels[name]) for name, seen in client_chances(chances, known.truth)]
    return _grouped(key, hits, known, 0.0)


def _grouped(key: str, hits: Sequence[tuple[str, bool]], known: CleanTruth, least: float) -> Measures:
    found: Measures = {}
    for group, low, high in GROUPS:
        inside = [hit for name, hit in hits if low < known.epsilons[name] <= high]
        found |= {f"{RIGHT.format(key)}, {group} epsilon": max(mean(inside), least)} if inside else {}
    return found


def grouping(key: str, found: Tensor, features: Tensor, truth: TraitTruth) -> Measures:
    """Whether clusters follow the classes, and whether a straight cut fitted to the truth could tell them apart."""
    at = truth.pairs[0]
    labels = truth.attributes[key].of(truth.names)
    index = {name: number for number, name in enumerate(dict.fromkeys(truth.names))}
    owners = torch.tensor([index[name] for name in truth.names])
    return {
        f"{key}: ARI": agreement(found[at], labels),
        f"{key}: linear separability": separability(features[at], labels, owners),
    }


def separability(features: Tensor, labels: Tensor, owners: Tensor) -> float:
    """How well a straight cut separates rows by their TRUE labels: a measurement with the truth, not an attack.

    Mean accuracy over folds of logistic regression; all rows of a client are in one fold, so that it is not recognised.
    How strongly weights are held down goes by the unit of the features: their mean absolute deviation.
    """
    from sklearn.model_selection import GroupKFold

    x, y, group = features.double().numpy(), labels.numpy(), owners.numpy()
    x = x / (np.abs(x - x.mean(0)).mean() or 1.0)
    hits = []
    for train, test in GroupKFold(min(FOLDS, len(np.unique(group)))).split(x, y, group):
        model = fitted(x[train], y[train], 0.1)
        hits += list(model.predict(x[test]) == y[test])
    return float(np.mean(hits))


def agreement(found: Tensor, labels: Tensor) -> float:
    """The adjusted Rand index of two groupings: 0 is what chance gives, 1 the same groups."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(labels.numpy(), found.numpy()))


def without_view(auxiliary: AuxiliaryUpdates, known: CleanTruth) -> Measures:
    """The prior of these measures: what the auxiliary clients alone tell of a client."""
    truth = known.truth
    numbers = torch.tensor([truth.rounds[number].view.number for number in truth.pairs[1].tolist()])
    found = cosines(auxiliary.means(numbers).double(), known)
    found["cosine best of bucket"] = found["cosine"]
    present = [name for one in truth.rounds for name in one.names]
    for key, attribute in truth.attributes.items():
        guess, classes = auxiliary.majority(key), len(attribute.classes)
        counts = torch.bincount(attribute.of(truth.names), minlength=classes)
        # A cut fitted to the truth names at least the commonest class.
        found[f"{key}: linear separability"] = float(counts.max() / counts.sum())
        found[f"{key}: ARI"] = 0.0
        found |= _grouped(key, [(name, attribute.labels[name] == guess) for name in present], known, 1 / classes)
    return found


def recombining(answer: Mapping[str, Any], known: CleanTruth, coins: Coins) -> tuple[Measures, Measures]:
    """How often shuffled values are given back to their clients or tiers, and how often a guess would be right.

    "ceiling" is the greedy way told the clean update, which no attacker has.
    """
    by = {one.view.number: place for place, one in enumerate(known.truth.rounds)}
    hits: dict[str, list[float]] = {"greedy": [], "ceiling": [], "tier": [], "sure": [], "sure right": []}
    prior: dict[str, list[float]] = {"greedy": [], "tier": []}
    for one in answer["greedy"]:
        place = by[one["number"]]
        truth, members, source = _bucket(one, known.truth.rounds[place])
        want = torch.tensor(members).unsqueeze(1)
        hits["greedy"].append(float((source.gather(0, one["places"].long()) == want).double().mean()))
        prior["greedy"].append(1 / len(members))
        rows = truth.view.rows[truth.view.bucket == one["bucket"]]
        places = recombine.greedy(rows, known.learnt[place][members], coins.child(one["number"], one["bucket"]))
        hits["ceiling"].append(float((source.gather(0, places) == want).double().mean()))
    for one in answer["scale"]:
        truth, members, source = _bucket(one, known.truth.rounds[by[one["number"]]])
        sigmas = truth.view.deviations[one["bucket"]]
        levels, counts = torch.unique(torch.tensor(sigmas, dtype=torch.float64), return_counts=True)
        level = torch.zeros(len(truth.names), dtype=torch.int64)
        for member, sigma in zip(members, sigmas, strict=True):
            level[member] = int((levels - sigma).abs().argmin())
        top = one["chances"].max(-1)
        right, sure = top.indices == level[source], top.values >= SURE
        hits["tier"].append(float(right.double().mean()))
        hits["sure"].append(float(sure.double().mean()))
        hits["sure right"] += [float(right[sure].double().mean())] if bool(sure.any()) else []
        prior["tier"].append(float(counts.max() / counts.sum()))
    titles = {
        "greedy": "greedy: values given to their client",
        "ceiling": "greedy told the clean update (a ceiling)",
        "tier": "by scale: values given to their tier",
        "sure": "by scale: values that are sure",
        "sure right": "by scale: sure values that are right",
    }
    prior["ceiling"] = prior["greedy"]
    return (
        {titles[name]: mean(found) for name, found in hits.items() if found},
        {titles[name]: mean(found) for name, found in prior.items() if found},
    )


def _bucket(one: Mapping[str, Any], truth: RoundTruth) -> tuple[RoundTruth, list[int], Tensor]:
    """The round, the members and the true sources of the rows that an answer is about."""
    if truth.sources is None:
        raise ValueError("a bucket's mean has no values to put back")
    members = [truth.names.index(name) for name in truth.view.members[one["bucket"]]]
    return truth, members, truth.sources[truth.view.bucket == one["bucket"]]
