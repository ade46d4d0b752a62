"""An audit of clusters from a description to findings: what malicious clients break, and what the server reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from croupier.aggregate.aggregator import Aggregator
from croupier.aggregate.geometry import MultiKrum, TrimmedMean
from croupier.aggregate.mean import Mean
from croupier.aggregate.median import Median
from croupier.aggregate.reference import FLTrust
from croupier.audit.integrity import Arm, Ended, Ground, Setting, parts, run
from croupier.audit.poison import LabelFlip, NoiseInjection, Poison, Scaling
from croupier.audit.report.result import Reported
from croupier.audit.score import Rate, over_runs, smooth
from croupier.audit.secrecy import FULL, Depth, part
from croupier.disclosure import check, decided, described, hands, read
from croupier.errors import SpecError, option
from croupier.learn.data import folder_of
from croupier.learn.datasets import Cifar10
from croupier.learn.root import Root
from croupier.runtime.kept import Kept
from croupier.runtime.local import Local
from croupier.spec import Sets, Source, Spec, counted, load

SHARE, GOAL = 0.25, 0.95
NONE, FLIP, NOISE, TRIGGER, REPLACE = "no attack", "label flip", "noise injection", "backdoor", "model replacement"
PAPER = (
    "Figure 10 (label flip) and Figure 12b (noise) print no numbers; by the text Tazza has 'high accuracy'.",
    "Figure 12a (backdoor, CIFAR-10 with a Mixer, baselines behind DP-SGD): Tazza's backdoor accuracy is 18.89 points "
    "below FedAvg's, its accuracy 55.37 %.",
    "Figure 13 (MNIST, 10 honest and 10 malicious clients, backdoor, 50 rounds): 'effectively isolates'; no numbers.",
)


@dataclass(frozen=True, repr=False)
class Soundness(Reported):
    """The result of an integrity audit."""

    def page(self) -> str:
        """The report, as one HTML document that needs nothing else."""
        from croupier.audit.report.integrity import render

        return render(self.plain)


def setting_of(spec: Spec, folder: Path | None = None) -> Setting:
    """What a description says, on clear updates. Raises: SpecError when its clients noise what they send."""
    one = described(spec, folder)
    return replace(one, share=SHARE, root=one.root if one.root.records else Root(records=100))


def attacks_of(setting: Setting, shape: Sequence[int]) -> dict[str, tuple[Poison | None, str]]:
    """The attacks on records of this shape, each with what malicious clients do."""
    ink: float | tuple[float, ...] = (1.0, 0.0, 0.0) if isinstance(setting.data, Cifar10) else 1.0
    mark, whole = (Scaling(corner="upper-left", value=ink, factor=factor) for factor in (1.0, None))
    drawn = "a square of 4 x 4 pixels in the upper left corner"
    if len(shape) < 3:
        drawn = "a 1 in the first 4 numbers of the first 4 steps" if len(shape) == 2 else "a 1 in every fourth feature"
    square = f"half of their records get {drawn} and the class 0"
    return {
        NONE: (None, "everybody is honest"),
        FLIP: (LabelFlip(), "every label y of theirs becomes M - 1 - y"),
        NOISE: (NoiseInjection(scale=0.25), "normal noise of deviation 0.25 is added to every weight they send"),
        TRIGGER: (mark, f"{square}; what training gives is sent as it is"),
        REPLACE: (whole, f"{square}; what training changed is sent as many times over as there are clients in a round"),
    }


def rules_of(spec: Spec, cohort: int) -> dict[str, Aggregator]:
    """The description's own rule first, then the baselines that fit so many clients, told a quarter of liars."""
    few, unfit = liars(cohort), unfit_of(cohort)
    baselines: dict[str, Aggregator] = {
        "FedAvg": Mean(), "Median": Median(), "Trimmed Mean": TrimmedMean(b=few), "Multi-Krum": MultiKrum(f=few),
        "FLTrust": FLTrust(),
    }  # fmt: skip
    return {"Clusters": spec.protocol.aggregate} | {name: part for name, part in baselines.items() if name not in unfit}


def liars(cohort: int) -> int:
    """How many of those invited the baselines are told to be lying."""
    return max(1, math.ceil(SHARE * cohort))


def unfit_of(cohort: int) -> dict[str, str]:
    """Baselines that need more clients a round, each with how many; the others run."""
    few = liars(cohort)
    least = {"Trimmed Mean": 2 * few + 1, "Multi-Krum": 2 * few + 3}
    return {
        name: f"told of {few} liars it needs {many} clients a round, and {cohort} are invited"
        for name, many in least.items()
        if cohort < many
    }


def examine(
    source: Source = "tazza-mnist",
    *,
    sets: Sets = (),
    seeds: int = 3,
    seed: int = 0,
    data: str | Path | None = None,
    abreast: int | None = None,
    depth: Depth = FULL,
    watch: Callable[[str], None] = lambda _: None,
    kept: Kept | None = None,
) -> Soundness:
    """Audit a description with clusters beside the baselines, and what its server reads. Raises: SpecError, DataError.

    `depth` says how much of the second is tried. Trainings that are finished go to `kept`, and what is there is not
    done again (StoreError where that cannot be).
    """
    check(seeds, depth)
    spec = load(source, sets, count=counted(data))
    if spec.protocol.aggregate.use != "clusters":
        raise SpecError(
            f"protocol.aggregate = {spec.protocol.aggregate.use!r}: an integrity audit asks what clusters keep apart; "
            f"use 'clusters', or {option('kind')} source"
        )
    setting = setting_of(spec, folder_of(data))
    ground = Ground(setting, seed)
    made = ground.made
    cohort = setting.plan.cohort or len(made.task.enrolled)
    attacks = attacks_of(setting, made.dataset.shape)
    arms = [
        Arm(rule, part, attack, title)
        for title, (attack, _) in attacks.items()
        for rule, part in rules_of(spec, cohort).items()
    ]
    numbers = range(seed, seed + seeds)
    many = hands(spec, abreast)
    shelf = Kept() if kept is None else kept
    names = [*(part(number) for number in numbers), *parts(numbers, len(arms))]
    shelf.begin(f"{spec.name}-integrity", decided(spec, ground, depth, "integrity"), names, "parts")
    secret = read(setting, spec.protocol, numbers, watch, depth, many, shelf)
    found = run(setting, arms, numbers, Local(), watch, many, shelf)
    says = {title: said for title, (_, said) in attacks.items()}
    return Soundness(findings(spec, setting, numbers, arms, found, secret, says))


def findings(
    spec: Spec, setting: Setting, seeds: Sequence[int], arms: Sequence[Arm], found: Sequence[Sequence[Ended]],
    secret: Mapping[str, Any], says: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Everything as plain values, with intervals over runs; `says` tells of each attack what the malicious do."""
    rows = [_row(arm, done) for arm, done in zip(arms, found, strict=True)]
    first = next(done for arm, done in zip(arms, found, strict=True) if arm.rule == "Clusters" and arm.title == FLIP)
    cohort = setting.plan.cohort or first[0].enrolled
    unfit = unfit_of(cohort)
    return {
        "kind": "croupier integrity audit",
        "name": spec.name,
        "task": spec.plain()["task"],
        "federation": spec.plain()["federation"],
        "protocol": spec.plain()["protocol"],
        "clients": first[0].enrolled,
        "malicious": len(first[0].malicious),
        "cohort": cohort,
        "rounds": setting.plan.rounds,
        "runs": len(seeds),
        "seeds": list(seeds),
        "goal": GOAL,
        "verdict": [secret["verdict"], verdict(rows)],
        "confidentiality": secret,
        "attacks": dict(says),
        "not_run": unfit,
        "rows": rows,
        "maps": [_map(arm, done[0]) for arm, done in zip(arms, found, strict=True) if done[0].turns and arm.attack],
        "sentences": sentences(rows) + [f"{name}: not run: {why}." for name, why in unfit.items()],
        "paper": list(PAPER),
        "threat": threat(len(first[0].malicious), first[0].enrolled),
        "notes": [*notes(len(seeds)), *secret["notes"]],
        # Sections that other audits of the same description add: a title and its paragraphs each.
        "more": [],
    }


def _row(arm: Arm, done: Sequence[Ended]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "attack": arm.title,
        "rule": arm.rule,
        "received": _over([ended.received for ended in done]),
        "weighted": _over([ended.weighted for ended in done]),
        "clusters": _over([ended.clusters for ended in done]),
        "models": _over([float(ended.models) for ended in done], over_runs),
        "success": _over([ended.success for ended in done]),
        "lost": [ended.lost for ended in done if ended.lost],
    }
    by = [ended.purities() for ended in done]
    if arm.attack is not None and all(by):
        ends = [ended.labelled() for ended in done]
        row["purity"] = {
            name: _over([_mean([getattr(one, name) for one in turns]) for turns in by])
            for name in ("all", "several", "one", "groups", "together")
        }
        row["labels"] = {
            name: _over([getattr(end, name) for end in ends if end is not None])
            for name in ("all", "several", "one", "groups", "alone", "together")
        }
        count = min(len(turns) for turns in by)
        row["rounds"] = [
            {name: _over([getattr(turns[at], name) for turns in by]) for name in ("all", "several", "one", "groups")}
            for at in range(count)
        ]
    return row


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _over(values: Sequence[float | None], interval: Callable[[list[float]], Rate] = smooth) -> dict[str, Any]:
    """Over the runs that have it; none where fewer than two do."""
    known = [float(value) for value in values if value is not None]
    return asdict(interval(known)) | {"runs": len(known)} if len(known) > 1 else {"rate": None, "runs": len(known)}


def _map(arm: Arm, ended: Ended) -> dict[str, Any]:
    """Who was in which cluster in each round, of the first run."""
    return {
        "attack": arm.title,
        "malicious": list(ended.malicious),
        "rounds": [{name: turn.labels[name] for group in turn.groups for name in group} for turn in ended.turns],
    }


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """What malicious clients do to honest ones, in a sentence."""
    mine = {row["attack"]: row for row in rows if row["rule"] == "Clusters"}
    quiet, hit = mine[NONE]["received"]["rate"], {title: row for title, row in mine.items() if title != NONE}
    worst = min(hit, key=lambda title: hit[title]["received"]["rate"])
    doors = {title: row["success"]["rate"] for title, row in hit.items() if row["success"]["rate"] is not None}
    said = (
        f"Where a quarter of the clients attack, honest ones receive models that are right on "
        f"{100 * hit[worst]['received']['rate']:.1f} % at worst ({worst}), and on {100 * quiet:.1f} % when nobody does."
    )
    if doors:
        open_ = max(doors, key=lambda title: doors[title])
        said += f" A backdoor works in up to {100 * doors[open_]:.1f} % of their models' answers ({open_})."
    return said


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each attack did, beside the baselines and without any."""
    out = []
    quiet = next(row for row in rows if (row["attack"], row["rule"]) == (NONE, "FedAvg"))["received"]["rate"]
    for title in dict.fromkeys(row["attack"] for row in rows):
        own = {row["rule"]: row for row in rows if row["attack"] == title}
        mine, others = own["Clusters"], {name: row for name, row in own.items() if name != "Clusters"}
        best = max(others, key=lambda name: others[name]["received"]["rate"])
        said = (
            f"{title.capitalize()}: with clusters honest clients receive {_percent(mine['received'])} "
            f"({100 * (mine['received']['rate'] - quiet):+.1f} points from FedAvg without attack), with {best}, the "
            f"best of the others, {_percent(others[best]['received'])}."
        )
        if title in (TRIGGER, REPLACE):
            safest = min(others, key=lambda name: others[name]["success"]["rate"])
            said += (
                f" The backdoor works in {_percent(mine['success'])} of their models' answers; with FedAvg "
                f"{_percent(own['FedAvg']['success'])}, with {safest} {_percent(own[safest]['success'])}."
            )
        if title != NONE and "purity" in mine:
            said += f" {_purity(mine['purity'], title)}"
        out.append(said)
    return out


def _purity(found: Mapping[str, Any], title: str) -> str:
    said = f"Purity {_percent(found['all'])}, without clients alone {_percent(found['several'])}; "
    said += f"one cluster of all would have {100 * found['one']['rate']:.1f} %."
    if title == FLIP:
        said += f" The goal of {100 * GOAL:g} % is {'reached' if found['all']['rate'] >= GOAL else 'missed'}."
    return said


def _percent(rate: Mapping[str, Any]) -> str:
    if rate["rate"] is None:
        return "nobody"
    return f"{100 * rate['rate']:.1f} % ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"


def threat(bad: int, clients: int) -> str:
    """Who attacks, and what it can do."""
    return (
        f"{bad} of {clients} clients are malicious, drawn anew for each run, and work together. They choose what they "
        "train on and what they send; they see the models that they are handed and nothing of what others send. The "
        "server is honest here, and does not know who they are. No claim is made for what they do otherwise: none of "
        "these attacks tries to pass as honest."
    )


def notes(runs: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"Intervals are 95 %, Student's t over {runs} independent runs, each by itself, within 0 and 100; "
        "one of no width says that all runs agree, and no more.",
        "Accuracy received: on the test records, by the model that each honest client would be handed next, mean over "
        "all of them; who has no cluster yet gets the largest one's. Cluster by cluster: each cluster with at least "
        "one honest client counts once, as in the paper; the same weighted by honest clients is in the numbers file.",
        "Purity of a round: the share of those present in clusters most of whose members are of their own kind (honest "
        "or malicious). A client alone counts as right, so that putting everybody apart has purity 1: beside it stands "
        "the purity among clients who are not alone, the number of clusters, and what one cluster of all would have.",
        "Backdoor: the share of triggered test records of other classes that the model takes for the target, mean over "
        "honest clients. A model without backdoor has some, too: its own mistakes.",
        "All rules train from the same models on the same records with the same clients a round; 100 records are kept "
        "back for FLTrust's server under every rule. Trimmed Mean and Multi-Krum are told a quarter of liars.",
        "Updates are compared as they are: a permutation that all clients share changes neither answers nor means.",
        "Attacks that fail prove nothing: an attacker who knows the rule can do better than these.",
    ]
