"""A clustering rule beside FedAvg and robust rules on clear updates: what honest clients receive, who is kept apart.

The audit's question `poisoning` attacks a description's protocol as it is. Here the server's rule is played alone on
clear updates, which is enough, because a permutation that all clients share changes neither answers nor means. All
rules train from the same first model on the same records with the same clients a round. The server's own records for
FLTrust (100, unless the description has some) are kept back under every rule. `audit.attacked_training`,
`attacks.clustered_training` and `attacks.cluster_purity` say what the measures are. `croupier bench clusters` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import Field

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.geometry import MultiKrum, TrimmedMean
from croupier.aggregate.mean import Mean
from croupier.aggregate.median import Median
from croupier.aggregate.reference import FLTrust
from croupier.audit.poison import NONE, audit_attacks
from croupier.audit.report.words import interval, rate_of
from croupier.audit.setting import Setting, setting_of
from croupier.core.intervals import over_runs
from croupier.engine.local import Local
from croupier.errors import SpecError
from croupier.learn.root import Root
from croupier.spec import load
from croupier_lab.attacks.cluster_purity import purity_by_round, purity_of_labels
from croupier_lab.attacks.clustered_training import ClusterOutcome, ClusterTask
from croupier_lab.attacks.rules_under_attack import on_clear_updates
from croupier_lab.bench.size import BenchSize, Watch, ignore

# The share of malicious clients that is told to the two rules that assume a number (Trimmed Mean, Multi-Krum).
SHARE = 0.25
# What is reported: fields of `Purity`, of each round's groups and of all clients' last labels, and of `ClusterOutcome`.
OF_ROUND = ("all", "several", "one", "groups", "together")
OF_LABELS = (*OF_ROUND, "alone")
MEASURES = ("received", "weighted", "clusters", "success")


class ClusterSize(BenchSize):
    """Whose clusters, how many rounds, and how many runs."""

    description: str = Field("tazza", description="A preset or TOML file whose server clusters its clients.")
    rounds: int = Field(0, ge=0, description="Rounds; 0 for as many as the description has.")
    seeds: int = Field(4, ge=2, description="Independent runs.")


def measure(size: ClusterSize, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """Every attack of the audit, and none, under every rule.

    Raises: SpecError where the description's rule asks no models for answers, as only clusters do, or asks about
    clients' own samples, which clear updates here do not bring.
    """
    spec = load(size.description)
    rule, setting = spec.protocol.aggregate, setting_of(spec)
    if "answers" not in rule.asks:
        raise SpecError(f"--description = {size.description!r}: its server clusters nobody; use 'tazza'")
    if size.rounds:
        setting = replace(setting, plan=setting.plan.model_copy(update={"rounds": size.rounds}))
    if not setting.root.records:
        setting = replace(setting, root=Root(records=100))
    runs = [beside_clusters(setting, rule, one, watch) for one in range(seed, seed + size.seeds)]
    cohort = setting.plan.cohort or runs[0]["clients"]
    return {
        "description": size.description, "clients": runs[0]["clients"], "malicious": runs[0]["malicious"],
        "runs": len(runs), "not_run": unfit_baselines(cohort),
        "rows": [_row(lines) for lines in zip(*(one["rows"] for one in runs), strict=True)],
    }  # fmt: skip


def beside_clusters(setting: Setting, rule: Aggregator, seed: int, watch: Watch = ignore) -> dict[str, Any]:
    """One run: the rule that clusters and the baselines, each under every attack of the audit and under none."""
    seeded, drive = ClusterTask(setting, seed), Local()
    cohort = setting.plan.cohort or len(seeded.made.task.enrolled)
    rows = []
    for title, (attack, _) in audit_attacks(setting, seeded.made.dataset.shape).items():
        for name, part in {"Clusters": rule, **baselines(cohort)}.items():
            watch(f"seed {seed}: {title}: {name}")
            ended = seeded.train(on_clear_updates(part), drive, attack)
            assert isinstance(ended, ClusterOutcome)
            rows.append(_line(title, name, ended))
    return {"clients": len(seeded.made.task.enrolled), "malicious": len(seeded.malicious), "rows": rows}


def baselines(cohort: int) -> dict[str, Aggregator]:
    """FedAvg and robust rules that so many clients suffice for; `liars` is the number that some of them are told."""
    few, unfit = liars(cohort), unfit_baselines(cohort)
    every: dict[str, Aggregator] = {
        "FedAvg": Mean(), "Median": Median(), "Trimmed Mean": TrimmedMean(b=few), "Multi-Krum": MultiKrum(f=few),
        "FLTrust": FLTrust(),
    }  # fmt: skip
    return {name: part for name, part in every.items() if name not in unfit}


def liars(cohort: int) -> int:
    """How many of those invited the baselines are told to be malicious."""
    return max(1, math.ceil(SHARE * cohort))


def unfit_baselines(cohort: int) -> dict[str, str]:
    """Baselines that need more clients a round, each with the reason why it is left out."""
    few = liars(cohort)
    least = {"Trimmed Mean": 2 * few + 1, "Multi-Krum": 2 * few + 3}
    return {
        name: f"told of {few} liars it needs {many} clients a round, and {cohort} are invited"
        for name, many in least.items()
        if cohort < many
    }


def _line(title: str, rule: str, one: ClusterOutcome) -> dict[str, Any]:
    """One training as plain values."""
    attacked = title != NONE
    return {
        "attack": title, "rule": rule, **{name: getattr(one, name) for name in (*MEASURES, "models", "lost")},
        "purities": [asdict(pure) for pure in purity_by_round(one)] if attacked else [],
        "labels": asdict(end) if attacked and (end := purity_of_labels(one)) else None,
    }  # fmt: skip


def _row(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One attack on one rule, joined over runs."""
    row: dict[str, Any] = {
        "attack": lines[0]["attack"], "rule": lines[0]["rule"],
        **{name: rate_of([line[name] for line in lines]) for name in MEASURES},
        "models": rate_of([line["models"] for line in lines], over_runs),
        "lost": [line["lost"] for line in lines if line["lost"]],
    }  # fmt: skip
    by = [line["purities"] for line in lines]
    if all(by):
        row["purity"] = {name: rate_of([_mean([one[name] for one in turns]) for turns in by]) for name in OF_ROUND}
        row["labels"] = {name: rate_of([line["labels"][name] for line in lines]) for name in OF_LABELS}
        row["rounds"] = [
            {name: rate_of([turns[at][name] for turns in by]) for name in OF_ROUND[:4]}
            for at in range(min(len(turns) for turns in by))
        ]
    return row


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def show(found: dict[str, Any]) -> None:
    """Print the same numbers for people."""
    print(
        f"{found['description']}: {found['malicious']} of {found['clients']} clients are malicious, "
        f"{found['runs']} runs; percent"
    )
    print("purity: of those present, mean over rounds; a client alone counts as right (in brackets one cluster of all)")
    for row in found["rows"]:
        line = f"{row['attack']:17s} {row['rule']:12s} received {interval(row['received'], 100)}"
        if row["success"]["rate"] is not None:
            line += f", backdoor {interval(row['success'], 100)}"
        if "purity" in row:
            pure = row["purity"]
            line += f", purity {interval(pure['all'], 100)} ({100 * pure['one']['rate']:.1f})"
        print(line)
    for name, why in found["not_run"].items():
        print(f"{name}: not run: {why}")
