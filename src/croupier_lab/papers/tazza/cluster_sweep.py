"""What Tazza's paper leaves open of its clusters, swept: probes, cosines, radius, neighbours, merges, splits, starts.

The paper names DBSCAN and not its parameters. At paper scale every choice is trained under every attack, at others
some, so that the defaults of `croupier.aggregate.clusters` can be seen beside their neighbours.
`croupier reproduce tazza/clusters` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from croupier.aggregate.clusters import Clusters
from croupier.audit.poison import LabelFlip
from croupier.engine.local import Local
from croupier_lab.attacks.poisoning import MinMax
from croupier_lab.attacks.rules_under_attack import Probes, RuleUnderAttack, run
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.tazza.integrity_settings import (
    FLIP,
    MNIST,
    NOISE,
    PAPER,
    REPLACE,
    SEEDS,
    SIZES,
    SUBSTITUTED,
    TRIGGER,
    Row,
    attacks,
    mark_shown,
    marks,
    pure,
    setting,
)

Watch = Callable[[str], None]
SLEEPER, COPIES = "label flip after honest rounds", "copies of one crafted update"


@dataclass(frozen=True)
class Choice:
    """A form of the clustering rule, and what inputs it asks models about."""

    name: str
    rule: Clusters
    probes: Probes = "noise"


def _of(**fields: Any) -> Clusters:
    return Clusters.parse({"use": "clusters", **fields})


# The fields in which the paper's text, taken literally, differs from ours.
LITERAL = {"centred": False, "split": "join", "kin": -1}
CHOICES = (
    Choice("ours", _of()),
    Choice("32 probes", _of(probes=32)),
    Choice("samples", _of(), "samples"),
    Choice("raw cosines", _of(centred=False)),
    Choice("literal: samples, raw, radius 0.1", _of(radius=0.1, **LITERAL), "samples"),
    Choice("literal: samples, raw, radius 0.3", _of(radius=0.3, **LITERAL), "samples"),
    Choice("literal: samples, raw, radius 0.5", _of(radius=0.5, **LITERAL), "samples"),
    Choice("radius 0.3", _of(radius=0.3)),
    Choice("radius 0.5", _of(radius=0.5)),
    Choice("radius 0.7", _of(radius=0.7)),
    Choice("3 neighbours", _of(neighbours=3)),
    Choice("weights of any cosine", _of(kin=-1)),
    Choice("merged into a new cluster", _of(merge="new")),
    Choice("split groups join", _of(split="join")),
    Choice("starts from the dominant", _of(starts="dominant")),
    Choice("median within", _of(within="median")),
    Choice("trimmed mean within", _of(within="trimmed")),
)
FEWER = ("ours", "samples", "literal: samples, raw, radius 0.3", "radius 0.5", "split groups join")


def _arms(scale: Scale) -> dict[tuple[str, str], RuleUnderAttack]:
    known = attacks()
    kinds = {title: (known[title], 0) for title in (FLIP, NOISE, TRIGGER, REPLACE)}
    kinds |= {SLEEPER: (LabelFlip(), max(1, SIZES[scale].rounds // 2)), COPIES: (MinMax(), 0)}
    titles = {
        "smoke": (FLIP, SLEEPER), "small": (FLIP, TRIGGER, SLEEPER), "paper": tuple(kinds),
    }[scale]  # fmt: skip
    choices = [one for one in CHOICES if scale != "smoke" or one.name in FEWER]
    return {
        (title, one.name): RuleUnderAttack(one.name, one.rule, kinds[title][0], title, kinds[title][1], one.probes)
        for title in titles
        for one in choices
    }


def _rows(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    arms = _arms(scale)
    found = run(setting(MNIST, scale, means), list(arms.values()), seeds, Local(), watch, means.processes)
    rows = []
    for (title, name), done in zip(arms, found, strict=True):
        known = marks(done, arms[title, name].sleeps)
        rows.append(
            {
                "attack": title, "choice": name, "paper": "-", "purity": pure(known),
                "not_alone": mark_shown(known, "several"), "clusters_a_round": mark_shown(known, "groups", 1),
                "honest_together": mark_shown(known, "together"), "accuracy": mark_shown(known, "received"),
                "by_clusters": mark_shown(known, "clusters"), "backdoor_success": mark_shown(known, "success"),
                "_marks": known,
            }
        )  # fmt: skip
    return rows


def says(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each attack, the choice under which honest clients fare best, and ours beside it."""
    out = []
    for attack in dict.fromkeys(row["attack"] for row in rows):
        own = {row["choice"]: row for row in rows if row["attack"] == attack}
        best = max(own, key=lambda name: own[name]["_marks"]["received"]["mean"] or 0.0)
        out.append(
            f"{attack}: honest clients receive {own['ours']['accuracy']} % by our choice at purity "
            f"{own['ours']['purity']} %; most by '{best}': {own[best]['accuracy']} % at purity {own[best]['purity']} %."
        )
    return out


READ = (
    "Per cent, means over seeds with 95 % intervals. Purity: the share of a round's clients in clusters most of whose "
    "members are of their own kind, clients alone counting as right, in brackets that of one cluster of all; not "
    "alone: the same without them; honest together: the share of the honest in the cluster with most of them. "
    "Accuracy: what honest clients receive; by clusters: each cluster with an honest client counts once. Ours: noise "
    "as probes, centred cosines, a radius that follows the distances, 2 neighbours, noise points as clusters of one, "
    "the dominant label, the larger part keeps it, a model of all members' uploads. Samples: one record of each client "
    "of the round, as the paper has it."
)
FIGURES = (
    Figure(
        "tazza/clusters", f"{PAPER}, Section 5.4", "what the paper leaves open of its clusters, swept on MNIST, MLP",
        READ, _rows, SEEDS, SUBSTITUTED, says,
    ),
)  # fmt: skip
