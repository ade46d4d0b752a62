"""Purity of clusters: how well a partition of the clients keeps honest and malicious ones apart.

Accuracy alone does not tell whether a clustering server separated anybody. These functions count it, by round and from
the last labels. Tazza's figures on integrity (`papers.tazza.integrity` and `integrity_settings`) and
`bench.leakage.cluster_baselines` (`croupier bench clusters`) use them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from croupier_lab.attacks.clustered_training import ClusterOutcome

Groups = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Purity:
    """What a partition of clients is worth.

    `all`: the share of clients in groups most of whose members are of their own kind; a client alone counts as right,
    so that a rule that puts everybody apart has 1. `several`: the same among clients who are not alone, None where all
    are. `one`: what a single group of all of them would have. `groups` and `alone` tell how far it splits, `together`
    is the share of the honest in the group with most of them, None without any.
    """

    all: float
    several: float | None
    one: float
    groups: int
    alone: int
    together: float | None


def purity(groups: Groups, malicious: Collection[str]) -> Purity:
    """The purity of a partition into groups that are not empty; in a group that is half malicious, half are right."""
    shared = [group for group in groups if len(group) > 1]
    honest = [len(group) - _bad(group, malicious) for group in groups]
    whole = sum(honest)
    return Purity(
        all=_share(groups, malicious),
        several=_share(shared, malicious) if shared else None,
        one=_share([[name for group in groups for name in group]], malicious),
        groups=len(groups),
        alone=len(groups) - len(shared),
        together=max(honest) / whole if whole else None,
    )


def _bad(group: Iterable[str], malicious: Collection[str]) -> int:
    return sum(name in malicious for name in group)


def _share(groups: Groups, malicious: Collection[str]) -> float:
    bad = [_bad(group, malicious) for group in groups]
    right = sum(max(count, len(group) - count) for group, count in zip(groups, bad, strict=True))
    return right / sum(len(group) for group in groups)


def purity_by_round(outcome: ClusterOutcome, since: int = 0) -> list[Purity]:
    """The purity of each round's groups of those who took part, from the round `since` on."""
    return [purity(one.groups, outcome.malicious) for one in outcome.by_round if one.number >= since]


def purity_of_labels(outcome: ClusterOutcome) -> Purity | None:
    """The purity of all clients that have a label, by their last ones; None where there were no clusters."""
    if not outcome.by_round:
        return None
    held: dict[int, list[str]] = {}
    for name, label in outcome.by_round[-1].labels.items():
        held.setdefault(label, []).append(name)
    return purity(list(held.values()), outcome.malicious)
