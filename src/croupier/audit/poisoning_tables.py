"""What malicious clients did, over runs: tables with intervals, and the sentences that follow from them.

The question `poisoning` hands every run's outcomes in as plain rows, and shows what comes out beside its scores. Where
a protocol clusters its clients, `Purity` says how well honest and malicious ones are kept apart; Tazza's figures use it
for other rules, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from croupier.audit.attacked_training import TrainingOutcome
from croupier.audit.permutation_report import Table, table
from croupier.audit.permutation_words import interval
from croupier.audit.poison import FLIP, NONE, REPLACE, TRIGGER
from croupier.core.intervals import Rate, over_runs, smooth

Groups = Sequence[Sequence[str]]
GOAL = 0.95
# The protocol itself, beside rules on clear updates.
WHOLE = "the protocol"
OF_ROUND = ("all", "several", "one", "groups", "together")
OF_LABELS = ("all", "several", "one", "groups", "alone", "together")
NOTES = (
    "Accuracy received: on the test records, by the model that each honest client would be handed next, mean over all "
    "of them; who has no cluster yet gets the largest one's. Cluster by cluster: each cluster with at least one honest "
    "client counts once.",
    "Backdoor: the share of triggered test records of other classes that the model takes for the target, mean over "
    "honest clients. A model without backdoor has some, too: its own mistakes.",
    "Attacks that fail prove nothing: an attacker who knows the rule can do better than these.",
)
CLUSTERED = (
    "Purity of a round: the share of those present in clusters most of whose members are of their own kind (honest or "
    "malicious). A client alone counts as right, so that putting everybody apart has purity 1: beside it stands the "
    "purity among clients who are not alone, the number of clusters, and what one cluster of all would have.",
    "All rules train from the same models on the same records with the same clients a round; 100 records are kept back "
    "for FLTrust's server under every rule. Trimmed Mean and Multi-Krum are told a quarter of liars. Rules stand on "
    "clear updates: a permutation that all clients share changes neither answers nor means.",
)


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
    """Of a partition into groups that are not empty; a group of which half is malicious is half right."""
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


def purity_by_round(outcome: TrainingOutcome, since: int = 0) -> list[Purity]:
    """Of those who took part in each round, from the round `since` on."""
    return [purity(one.groups, outcome.malicious) for one in outcome.by_round if one.number >= since]


def purity_of_labels(outcome: TrainingOutcome) -> Purity | None:
    """Of everybody's last label; None without clusters."""
    if not outcome.by_round:
        return None
    held: dict[int, list[str]] = {}
    for name, label in outcome.by_round[-1].labels.items():
        held.setdefault(label, []).append(name)
    return purity(list(held.values()), outcome.malicious)


def rows_of(found: Mapping[tuple[str, str], TrainingOutcome]) -> list[dict[str, Any]]:
    """One run as plain values, by attack and rule."""
    return [
        {
            "attack": title, "rule": rule, "lost": one.lost, "accepted": one.accepted,
            **{name: getattr(one, name) for name in ("received", "weighted", "clusters", "models", "success")},
            "purities": [asdict(pure) for pure in purity_by_round(one)] if title != NONE else [],
            "labels": asdict(end) if title != NONE and (end := purity_of_labels(one)) else None,
        }
        for (title, rule), one in found.items()
    ]  # fmt: skip


def summarise(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to show of every run's facts: sentences and tables, and the `numbers` behind them."""
    first = found[0]
    rows = [_row(lines) for lines in zip(*(one["rows"] for one in found), strict=True)]
    clustered = any("purity" in row for row in rows)
    says = [f"{title.capitalize()}: {does}." for title, does in first["attacks"].items() if title != NONE]
    says += dict.fromkeys(f"{row['attack']}, {row['rule']}: {why}" for row in rows for why in row["lost"])
    says += _refused(found)
    says += [f"{name}: not run: {why}." for name, why in first["unfit"].items()]
    return {
        "sentences": [
            _threat(first["malicious"], first["clients"]), *says, *_sentences(rows), *NOTES, *(CLUSTERED * clustered),
        ],
        "tables": [*_received(rows), *_purity(rows), *_by_round(rows)],
        "numbers": {"rows": rows, "malicious": first["malicious"], "clients": first["clients"]},
    }  # fmt: skip


def _refused(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Attacks whose updates did not all come through: what is never averaged breaks nothing."""
    taken = dict[str, int]()
    for row in (row for one in found for row in one["rows"] if row["rule"] == WHOLE):
        taken[row["attack"]] = taken.get(row["attack"], 0) + row["accepted"]
    return [
        f"{title.capitalize()}: {many} of {taken[NONE]} updates of the malicious were taken; the others were refused."
        for title, many in taken.items()
        if many < taken[NONE]
    ]


def _row(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One attack on one rule over runs."""
    row: dict[str, Any] = {
        "attack": lines[0]["attack"], "rule": lines[0]["rule"],
        **{name: _over([line[name] for line in lines]) for name in ("received", "weighted", "clusters", "success")},
        "models": _over([line["models"] for line in lines], over_runs),
        "lost": [line["lost"] for line in lines if line["lost"]],
    }  # fmt: skip
    by = [line["purities"] for line in lines]
    if all(by):
        row["purity"] = {name: _over([_mean([one[name] for one in turns]) for turns in by]) for name in OF_ROUND}
        row["labels"] = {name: _over([line["labels"][name] for line in lines]) for name in OF_LABELS}
        row["rounds"] = [
            {name: _over([turns[at][name] for turns in by]) for name in ("all", "several", "one", "groups")}
            for at in range(min(len(turns) for turns in by))
        ]
    return row


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _over(values: Sequence[float | None], between: Callable[[list[float]], Rate] = smooth) -> dict[str, Any]:
    """Over the runs that have it; none where fewer than two do."""
    known = [float(value) for value in values if value is not None]
    return asdict(between(known)) | {"runs": len(known)} if len(known) > 1 else {"rate": None, "runs": len(known)}


def _received(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    heads = ("Attack", "Rule", "Accuracy received, %", "Cluster by cluster, %", "Backdoor success, %", "Models")
    return table("What honest clients receive", heads, [
        (row["attack"], row["rule"], *(interval(row[name], 100) for name in ("received", "clusters", "success")),
         f"{row['models']['rate']:.1f}")
        for row in rows
    ])  # fmt: skip


def _purity(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    heads = ("Attack", "Rule", "Purity, %", "Not alone, %", "One cluster of all, %", "Clusters", "Honest together, %")
    own = [row for row in rows if "purity" in row]
    return [
        each
        for title, key in (("Of those present, mean over rounds", "purity"), ("Of everybody's last label", "labels"))
        for each in table(f"Are honest and malicious clients kept apart? {title}", heads, [
            (row["attack"], row["rule"], *(interval(row[key][name], 100) for name in ("all", "several", "one")),
             f"{row[key]['groups']['rate']:.1f}", interval(row[key]["together"], 100))
            for row in own
        ])
    ]  # fmt: skip


def _by_round(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    own = [row for row in rows if "purity" in row]
    count = min((len(row["rounds"]) for row in own), default=0)
    heads = ("Attack", "Rule", *(f"{at + 1}" for at in range(count)))
    return table("Purity by round, %", heads, [
        (row["attack"], row["rule"], *(f"{100 * one['all']['rate']:.0f}" for one in row["rounds"][:count]))
        for row in own
    ])  # fmt: skip


def _sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each attack did under clusters, beside the baselines and without any; nothing where there are none."""
    quiet = next((row["received"]["rate"] for row in rows if (row["attack"], row["rule"]) == (NONE, "FedAvg")), None)
    if quiet is None:
        return []
    out = []
    for title in dict.fromkeys(row["attack"] for row in rows):
        own = {row["rule"]: row for row in rows if row["attack"] == title}
        mine, others = own["Clusters"], {name: row for name, row in own.items() if name not in ("Clusters", WHOLE)}
        best = max(others, key=lambda name: others[name]["received"]["rate"])
        sentence = (
            f"{title.capitalize()}: with clusters honest clients receive {_percent(mine['received'])} "
            f"({100 * (mine['received']['rate'] - quiet):+.1f} points from FedAvg without attack), with {best}, the "
            f"best of the others, {_percent(others[best]['received'])}."
        )
        if title in (TRIGGER, REPLACE):
            safest = min(others, key=lambda name: others[name]["success"]["rate"])
            sentence += (
                f" The backdoor works in {_percent(mine['success'])} of their models' answers; with FedAvg "
                f"{_percent(own['FedAvg']['success'])}, with {safest} {_percent(own[safest]['success'])}."
            )
        if "purity" in mine:
            sentence += f" {_pure(mine['purity'], title)}"
        out.append(sentence)
    return out


def _pure(found: Mapping[str, Any], title: str) -> str:
    sentence = f"Purity {_percent(found['all'])}, without clients alone {_percent(found['several'])}; "
    sentence += f"one cluster of all would have {100 * found['one']['rate']:.1f} %."
    if title == FLIP:
        sentence += f" The goal of {100 * GOAL:g} % is {'reached' if found['all']['rate'] >= GOAL else 'missed'}."
    return sentence


def _percent(rate: Mapping[str, Any]) -> str:
    if rate["rate"] is None:
        return "nobody"
    return f"{100 * rate['rate']:.1f} % ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"


def _threat(bad: int, clients: int) -> str:
    """Who attacks, and what it can do."""
    return (
        f"{bad} of {clients} clients are malicious, drawn anew for each run, and work together. They choose what they "
        "train on and what they send; they see the models that they are handed and nothing of what others send. The "
        "server is honest here, and does not know who they are. No claim is made for what they do otherwise: none of "
        "these attacks tries to pass as honest."
    )
