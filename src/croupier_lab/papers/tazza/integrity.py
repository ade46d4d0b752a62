"""Tazza's figures on integrity (10, 12 and 13), run again on the real round loop.

The paper's figures are pictures without numbers. What stands beside ours was read from the text around them.
`croupier reproduce tazza/figure10` (and 12, 13) runs them, on `attacks.rules_under_attack`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from croupier.engine.local import Local
from croupier_lab.attacks.cluster_purity import purity_by_round
from croupier_lab.attacks.clustered_training import ClusterOutcome
from croupier_lab.attacks.rules_under_attack import Probes, RuleUnderAttack, run
from croupier_lab.drawing.pictures import cluster_map
from croupier_lab.papers.shared.figure import Figure, Means, Scale
from croupier_lab.papers.tazza.combined_defences import (
    SEARCHED,
    chosen,
    defended_runs,
    guarded,
    hidden,
    mounted,
    played,
    row,
    shown_and_played,
)
from croupier_lab.papers.tazza.confidentiality_defences import BATCH, CLIP, MEDIUM, UNKNOWN
from croupier_lab.papers.tazza.integrity_settings import (
    FLIP,
    MNIST,
    NOISE,
    PAPER,
    REPLACE,
    RULES,
    SEEDS,
    SIZES,
    SUBSTITUTED,
    TAZZA,
    TRIGGER,
    Row,
    attacks,
    mark_shown,
    marks,
    pure,
    twenty,
)
from croupier_lab.papers.tazza.tradeoff_findings import draw10, draw12, says10, says12

Watch = Callable[[str], None]
PRINTED12 = "18.89 points less backdoor accuracy than FedAvg, 55.37 % accuracy (CIFAR-10, Mixer)"


def _figure10(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    rows = []
    for case in chosen(scale, means):
        shields = mounted(case, scale)
        every = defended_runs([None, FLIP], shields, guarded(scale))
        seen = hidden(case, scale, means, seeds, watch, shields)
        done = played(case, scale, means, seeds, watch, every)
        for shown, one in shown_and_played(every):
            words = "-"
            if shown.attack:
                told = {UNKNOWN: "both high", **dict.fromkeys(shields, "less accurate, more hidden")}
                words = told.get(shown.shield, "-")
            rows.append(row(case, shown, done[one], seen[shown.shield], words))
    return rows


def _figure12(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    rows = []
    for case in chosen(scale, means):
        every = defended_runs([TRIGGER, REPLACE, NOISE], [MEDIUM], guarded(scale))
        seen = hidden(case, scale, means, seeds, watch, [MEDIUM])
        done = played(case, scale, means, seeds, watch, every)
        for shown, one in shown_and_played(every):
            words = PRINTED12 if shown.shield is UNKNOWN and shown.attack == TRIGGER else "-"
            own = row(case, shown, done[one], seen[shown.shield], words)
            rows.append(own | {"backdoor_success": mark_shown(done[one], "success")})
    return rows


PROBES: Mapping[Probes, str] = {
    "noise": "noise", "samples": "clients' samples", "trained": "clients' samples, attackers' with their triggers",
}  # fmt: skip


def _figure13(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    known, rows = twenty(scale, means), []
    titles = {title: attack for title, attack in attacks().items() if title in (TRIGGER, REPLACE, FLIP)}
    # The paper's probes are the clients' samples. Attackers who showed theirs with the trigger would help the server.
    kinds: list[tuple[str, Probes]] = [(title, "noise") for title in titles] + [
        (TRIGGER, "samples"),
        (TRIGGER, "trained"),
    ]
    arms = [RuleUnderAttack(TAZZA, RULES[TAZZA], titles[title], title, probes=probes) for title, probes in kinds]
    done = run(known, arms, seeds, Local(), lambda one: watch(f"Figure 13, {one}"), means.processes)
    for arm, ended in zip(arms, done, strict=True):
        found = marks(ended)
        rows.append(
            {
                "attack": arm.title, "probes": PROBES[arm.probes],
                "paper": "isolated clearly" if arm.title == TRIGGER else "-",
                "purity": pure(found), "not_alone": mark_shown(found, "several"),
                "purity_by_round": " ".join(f"{one.all:.2f}" for one in purity_by_round(ended[0])),
                "clusters_a_round": mark_shown(found, "groups", 1), "honest_together": mark_shown(found, "together"),
                "accuracy": mark_shown(found, "received"), "backdoor_success": mark_shown(found, "success"),
                "_marks": found, "_malicious": list(ended[0].malicious), "_map": _labels(ended[0]),
            }
        )  # fmt: skip
    return rows


def _labels(ended: ClusterOutcome) -> list[dict[str, int]]:
    """The labels of those who took part, round by round."""
    return [{name: one.labels[name] for group in one.groups for name in group} for one in ended.by_round]


def draw13(rows: Sequence[Mapping[str, Any]]) -> str:
    """The map of clusters under the backdoor by the paper's probes, the clients' samples, from the first seed."""
    row = next(row for row in rows if row["attack"] == TRIGGER and row["probes"] == PROBES["samples"])
    everyone = sorted({name for labels in row["_map"] for name in labels})
    bad = [name for name in everyone if name in row["_malicious"]]
    honest = [name for name in everyone if name not in bad]
    return cluster_map(row["_map"], honest, bad, f"Clusters by round under {TRIGGER}, probes: {row['probes']}")


def says13(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on whether honest and malicious clients are kept apart."""
    return [
        f"{row['attack']}, probes of {row['probes']}: purity {row['purity']} % (without clients alone "
        f"{row['not_alone']} %), {row['clusters_a_round']} clusters a round, {row['honest_together']} % of the "
        "honest in one of them."
        for row in rows
    ]


READ = (
    "Per cent, means over seeds with 95 % intervals. Accuracy: what an honest client receives, mean over all of them; "
    "by clusters: each cluster with an honest client counts once, as in the paper. Purity: the share of a round's "
    "clients in clusters most of whose members are of their own kind, in brackets that of one cluster of all; a client "
    "alone counts as right, so the same without these stands beside it (not alone), and how many clusters there are."
)
SEEN = (
    " The feature distance and PSNR are of records inverted from one upload under the same defence, as in "
    "tazza/table2: they depend on the defence, not on the rule. 'Rule unknown' is the paper's server, 'rule matched' "
    "one that matches weights against the model it handed out."
)
DEFENDED = (
    "pruning: at every step of Adam all but the largest values of a client's gradient are zeroed; DP-SGD S, M, L: each "
    f"record's gradient clipped to {CLIP:g}, the sum noised by 2, 4, 8 times that, batches of {BATCH} on average, and "
    "Adam on what comes of it; the paper names small, medium and large only",
    "malicious clients train behind the same defence, the server's own training (FLTrust) has none; 'none' is the rule "
    "without a confidentiality defence, which favours it",
    f"inverted: one step of SGD on one record and fresh weights, of the networks of tazza/table2; at most {SEARCHED} "
    "records where the inversion is a search; a feature distance trained here stands for LPIPS",
    "smoke: the defences are mounted on FedAvg and Median alone",
    "below paper scale, and for ViT and RNN, pruning at 90 % and medium noise alone",
)


def _names(scale: Scale) -> tuple[str, ...]:
    return SIZES[scale].cases


FIGURES = (
    Figure(
        "tazza/figure10", f"{PAPER}, Figure 10", "accuracy under label flip at 25 %, and what is inverted", READ + SEEN,
        _figure10, SEEDS, (*DEFENDED, *SUBSTITUTED), says10, draw10, _names, True,
    ),
    Figure(
        "tazza/figure12", f"{PAPER}, Figure 12", "backdoor and noise at 25 %", READ + SEEN + " Backdoor success: the "
        "share of triggered test records of other classes that an honest client's model takes for the target.",
        _figure12, SEEDS,
        (f"{MNIST} below paper scale; the paper has CIFAR-10 with a Mixer alone", *DEFENDED, *SUBSTITUTED),
        says12, draw12, _names, True,
    ),
    Figure(
        "tazza/figure13", f"{PAPER}, Figure 13", "clusters over rounds, ten honest and ten malicious clients",
        READ, _figure13, SEEDS, ("all twenty take part in every round: the paper does not say", *SUBSTITUTED), says13,
        draw13,
    ),
)  # fmt: skip
