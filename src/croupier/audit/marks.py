"""Marks for the three stages: answers against the truth, and what the same knowledge answers without a view.

A row's owner is the client from whom most of its coordinates come: its sender, where rows are intact. A mean of a
bucket belongs to each of its members alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from croupier.audit import recombine
from croupier.audit.attributes import Attribute
from croupier.audit.glimpse import Outside
from croupier.audit.sights import Sight
from croupier.audit.surrogate import agreement, separability
from croupier.audit.track import Turn
from croupier.core.coins import Coins

Marks = dict[str, float]
# The groups of the paper's Table 5: epsilon up to 1, above 1 and up to 4, above 4.
GROUPS = (("low", 0.0, 1.0), ("middle", 1.0, 4.0), ("high", 4.0, math.inf))
# A value is called sure where its tier has at least this chance.
SURE = 0.99
# No single round may decide on its own.
_LEAST = 1e-3


@dataclass(frozen=True)
class Truth:
    """What was really so in all rounds: whose rows, what they had learnt, their tiers and attributes."""

    turns: tuple[Turn, ...]
    sights: tuple[Sight, ...]
    attributes: Mapping[str, Attribute]
    # Of clients in tiers.
    epsilons: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row, round and member: each row with its owner, or a bucket's mean with each of its members."""
        rows, rounds, who, first = list[int](), list[int](), list[int](), 0
        for at, (turn, one) in enumerate(zip(self.turns, self.sights, strict=True)):
            owners = one.owners
            if owners is not None:
                rows += range(first, first + len(owners))
                who += owners.tolist()
                rounds += [at] * len(owners)
            else:
                for row, bucket in enumerate(one.seen.bucket.tolist()):
                    members = [turn.names.index(name) for name in one.seen.members[bucket]]
                    rows += [first + row] * len(members)
                    who += members
                    rounds += [at] * len(members)
            first += len(one.seen.rows)
        return torch.tensor(rows), torch.tensor(rounds), torch.tensor(who)

    @cached_property
    def names(self) -> list[str]:
        """The client of each pair."""
        _, rounds, who = self.pairs
        return [self.turns[r].names[w] for r, w in zip(rounds.tolist(), who.tolist(), strict=True)]

    @cached_property
    def tiers(self) -> Tensor:
        """The declared epsilon of each pair's client."""
        return torch.tensor([self.epsilons[name] for name in self.names], dtype=torch.float64)

    @cached_property
    def clean(self) -> Tensor:
        """What each pair's client had learnt in that round."""
        _, rounds, who = self.pairs
        return torch.stack(
            [self.turns[r].clean[w] for r, w in zip(rounds.tolist(), who.tolist(), strict=True)]
        ).double()

    @cached_property
    def common(self) -> Tensor:
        """The mean of all that was learnt in each pair's round."""
        means = torch.stack([turn.clean.double().mean(0) for turn in self.turns])
        return means[self.pairs[1]]

    @cached_property
    def mates(self) -> list[tuple[str, ...]]:
        """The members of each row's bucket."""
        return [
            one.seen.members[bucket] for one in self.sights for bucket in one.seen.bucket.tolist()
        ]  # fmt: skip


def cosines(estimates: Tensor, truth: Truth) -> Marks:
    """Likeness of estimates (one a pair) and clean updates: as they are, around the round's mean, and by tier."""
    plain = torch.cosine_similarity(estimates, truth.clean, dim=1)
    around = torch.cosine_similarity(estimates - truth.common, truth.clean - truth.common, dim=1)
    by = {tier: float(plain[truth.tiers == tier].mean()) for tier in sorted(set(truth.tiers.tolist()))}
    found = {"cosine": float(plain.mean()), "cosine centred": float(around.mean()), **_curve(by)}
    return found | {f"cosine at epsilon {tier:g}": value for tier, value in by.items()}


def _curve(by: Mapping[float, float]) -> Marks:
    """Area under the cosine over log epsilon, taken from 0 to 1, and the cosine of the last tier less the first's."""
    tiers = list(by)
    if len(tiers) < 2:
        return {}
    along = [math.log(tier / tiers[0]) / math.log(tiers[-1] / tiers[0]) for tier in tiers]
    steps = zip(pairwise(along), pairwise(by.values()), strict=True)
    area = sum((b - a) * (y + z) / 2 for (a, b), (y, z) in steps)
    return {"CosAUC": area, "delta-cos": by[tiers[-1]] - by[tiers[0]]}


def denoising(rows: Tensor, truth: Truth) -> Marks:
    """Stage 1; beside it the reading that favours the attacker: of a row's bucket the most alike member."""
    at, rounds, _ = truth.pairs
    found = cosines(rows[at].double(), truth)
    best = []
    for row, number in dict(zip(at.tolist(), rounds.tolist(), strict=True)).items():
        turn = truth.turns[number]
        mates = turn.clean[[turn.names.index(name) for name in truth.mates[row]]].double()
        best.append(float(torch.cosine_similarity(rows[row].double().unsqueeze(0), mates, dim=1).max()))
    return found | {"cosine best of bucket": sum(best) / len(best)}


def inference(key: str, chances: Tensor, truth: Truth) -> Marks:
    """Stage 2: is each client's class named right, from its own row or from its bucket's rows together?

    Beside it the paper's reading: is each row's class that of its owner?
    """
    labels = truth.attributes[key]
    hits: list[bool] = []
    tiers: list[float] = []
    pooled: dict[str, Tensor] = {}
    first = 0
    for one in truth.sights:
        mine = chances[first : first + len(one.seen.rows)]
        for bucket, members in enumerate(one.seen.members):
            seen = mine[one.seen.bucket == bucket].double().mean(0)
            said = int(seen.argmax())
            for name in members:
                pooled[name] = pooled.get(name, torch.zeros_like(seen)) + seen.clamp_min(_LEAST).log()
            hits += [said == labels.labels[name] for name in members]
            tiers += [truth.epsilons.get(name, 0.0) for name in members]
        first += len(one.seen.rows)
    owned = labels.of(truth.names)
    rowwise = (chances[truth.pairs[0]].argmax(1) == owned).double()
    # The roster is known: what all rounds say of a client, by its own rows or its buckets', is put together.
    together = [int(sums.argmax()) == labels.labels[name] for name, sums in pooled.items()]
    found = {
        f"{key}: clients named right": _mean(hits), f"{key}: clients named right, all rounds": _mean(together),
        f"{key}: rows named right": float(rowwise.mean()),
    }  # fmt: skip
    for group, low, high in GROUPS:
        inside = [hit for hit, tier in zip(hits, tiers, strict=True) if low < tier <= high]
        found |= {f"{key}: clients named right, {group} epsilon": _mean(inside)} if inside else {}
    return found


def grouping(key: str, found: Tensor, features: Tensor, truth: Truth) -> Marks:
    """Do clusters follow the classes, and could a straight cut (fitted to the truth) tell them apart?"""
    at = truth.pairs[0]
    labels = truth.attributes[key].of(truth.names)
    index = {name: number for number, name in enumerate(dict.fromkeys(truth.names))}
    owners = torch.tensor([index[name] for name in truth.names])
    return {
        f"{key}: ARI": agreement(found[at], labels),
        f"{key}: linear separability": separability(features[at], labels, owners),
    }


def answers(links: Tensor, allowed: Tensor, truth: Truth) -> dict[str, list[tuple[int, float, float]]]:
    """Stage 3, question by question: the round, whether it was hit, and the chance of a candidate picked at random.

    Asked is every row whose owner has a row among the candidates: is the linked row its owner's (`row`)? For buckets:
    is its owner in the linked row's bucket (`bucket`)?
    """
    at, rounds, _ = truth.pairs
    single = all(one.sources is not None for one in truth.sights)
    numbers = {who: number for number, who in enumerate(dict.fromkeys(truth.names))}
    owner = torch.full((len(allowed),), -1)
    if single:
        owner[at] = torch.tensor([numbers[who] for who in truth.names])
    inside = {who: torch.tensor([who in mates for mates in truth.mates]) for who in numbers}
    found: dict[str, list[tuple[int, float, float]]] = {"row": [], "bucket": []}
    for row, number, who in zip(at.tolist(), rounds.tolist(), truth.names, strict=True):
        may, name = allowed[row], truth.turns[number].number
        kinds = {"bucket": inside[who]} | ({"row": owner == numbers[who]} if single else {})
        for kind, right in kinds.items():
            if bool((may & right).any()):
                chance = float((may & right).sum() / may.sum())
                found[kind].append((name, float(right[int(links[row])]), chance))
    return found


def linking(links: Tensor, allowed: Tensor, truth: Truth) -> tuple[Marks, Marks]:
    """Stage 3: hits and, beside them, what a candidate picked at random would hit."""
    titles = {"row": "linked to its owner's row", "bucket": "linked to its owner's bucket"}
    found = answers(links, allowed, truth)
    return (
        _means({titles[kind]: [hit for _, hit, _ in each] for kind, each in found.items()}),
        _means({titles[kind]: [chance for _, _, chance in each] for kind, each in found.items()}),
    )


def links(stages: Mapping[str, Any], allowed: Tensor, truth: Truth) -> tuple[Marks, Marks]:
    """Stage 3, of rows as they are and around the mean."""
    mark: Marks = {}
    prior: Marks = {}
    for name, suffix in (("links", ""), ("links_centred", " (centred)")):
        hits, chance = linking(stages[name], allowed, truth)
        mark |= {title + suffix: value for title, value in hits.items()}
        prior |= {title + suffix: value for title, value in chance.items()}
    return mark, prior


def recombining(answer: Mapping[str, Any], truth: Truth, coins: Coins) -> tuple[Marks, Marks]:
    """Values put back to their clients: hits, and what guessing gives."""
    by = {turn.number: place for place, turn in enumerate(truth.turns)}
    hits: dict[str, list[float]] = {"greedy": [], "told": [], "tier": [], "sure": [], "sure right": []}
    prior: dict[str, list[float]] = {"greedy": [], "tier": []}
    for one in answer["greedy"]:
        turn, seen, source = _bucket(one, truth, by)
        members = [turn.names.index(name) for name in seen]
        want = torch.tensor(members).unsqueeze(1)
        hits["greedy"].append(float((source.gather(0, one["places"].long()) == want).double().mean()))
        prior["greedy"].append(1 / len(members))
        values = truth.sights[by[one["number"]]].seen
        rows = values.rows[values.bucket == one["bucket"]]
        node = coins.child(one["number"], one["bucket"])
        places = recombine.greedy(rows, turn.clean[members], node)
        hits["told"].append(float((source.gather(0, places) == want).double().mean()))
    for one in answer["scale"]:
        turn, seen, source = _bucket(one, truth, by)
        told = truth.sights[by[one["number"]]].seen.tiers[one["bucket"]]
        levels, counts = torch.unique(torch.tensor(told, dtype=torch.float64), return_counts=True)
        level = torch.zeros(len(turn.names), dtype=torch.int64)
        for name, sigma in zip(seen, told, strict=True):
            level[turn.names.index(name)] = int((levels - sigma).abs().argmin())
        top = one["chances"].max(-1)
        right, sure = top.indices == level[source], top.values >= SURE
        hits["tier"].append(float(right.double().mean()))
        hits["sure"].append(float(sure.double().mean()))
        hits["sure right"] += [float(right[sure].double().mean())] if bool(sure.any()) else []
        prior["tier"].append(float(counts.max() / counts.sum()))
    titles = {
        "greedy": "greedy: values given to their client",
        "told": "greedy told the clean update (a ceiling)",
        "tier": "by scale: values given to their tier",
        "sure": "by scale: values that are sure",
        "sure right": "by scale: sure values that are right",
    }
    return (
        _means({titles[name]: found for name, found in hits.items()}),
        _means({titles[name]: found for name, found in prior.items()} | {titles["told"]: prior["greedy"]}),
    )


def _bucket(one: Mapping[str, Any], truth: Truth, by: Mapping[int, int]) -> tuple[Turn, tuple[str, ...], Tensor]:
    """The round, the members and the true sources of the rows that an answer is about."""
    place = by[one["number"]]
    sight = truth.sights[place]
    if sight.sources is None:
        raise ValueError("a bucket's mean has no values to put back")
    return truth.turns[place], sight.seen.members[one["bucket"]], sight.sources[sight.seen.bucket == one["bucket"]]


def unseen(outside: Outside, truth: Truth) -> Marks:
    """The prior: what auxiliary clients tell of a client without any view."""
    numbers = torch.tensor([truth.turns[number].number for number in truth.pairs[1].tolist()])
    found = cosines(outside.means(numbers).double(), truth)
    return found | {"cosine best of bucket": found["cosine"]} | guessing(outside, truth)


def guessing(outside: Outside, truth: Truth, common: Mapping[str, int] = MappingProxyType({})) -> Marks:
    """The prior of attributes: the auxiliary clients' commonest class, any class at random, or a `common` one."""
    found: Marks = {}
    for key in truth.attributes:
        guesses = {outside.majority(key), common.get(key, outside.majority(key))}
        each = [_guessed(key, guess, truth) for guess in guesses]
        found |= {name: max(one[name] for one in each) for name in each[0]}
    return found


def _guessed(key: str, guess: int, truth: Truth) -> Marks:
    attribute, found = truth.attributes[key], Marks()
    present = [name for turn in truth.turns for name in turn.names]
    right = [attribute.labels[name] == guess for name in present]
    # Where a common class misleads, a guess at random needs no view either.
    chance = 1 / len(attribute.classes)
    found[f"{key}: clients named right"] = max(_mean(right), chance)
    each = [attribute.labels[name] == guess for name in dict.fromkeys(present)]
    found[f"{key}: clients named right, all rounds"] = max(_mean(each), chance)
    found[f"{key}: rows named right"] = max(float((attribute.of(truth.names) == guess).double().mean()), chance)
    counts = torch.bincount(attribute.of(truth.names), minlength=len(attribute.classes))
    # A cut fitted to the truth names at least the commonest class.
    found[f"{key}: linear separability"] = float(counts.max() / counts.sum())
    found[f"{key}: ARI"] = 0.0
    for group, low, high in GROUPS:
        inside = [hit for hit, name in zip(right, present, strict=True) if low < truth.epsilons.get(name, 0.0) <= high]
        found |= {f"{key}: clients named right, {group} epsilon": max(_mean(inside), chance)} if inside else {}
    return found


def _means(found: Mapping[str, Sequence[float]]) -> Marks:
    return {name: sum(each) / len(each) for name, each in found.items() if each}


def _mean(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits)
