"""What Tazza's Figures 10 and 12 say: sentences and pictures of accuracy against what a server inverts.

Each is a function of the rows that `combined_defences` gives, so that a run at another scale says what it found.
`integrity` hands them to its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from croupier_lab.attacks.feature_distance import NAME
from croupier_lab.drawing.points import ScatterDot, ScatterPanel, scatter
from croupier_lab.papers.tazza.combined_defences import PERMUTED, accuracy, far, measure_of
from croupier_lab.papers.tazza.confidentiality_defences import MATCHED, MEDIUM, UNKNOWN
from croupier_lab.papers.tazza.integrity_settings import FEDAVG, FLIP, NOISE, REPLACE, TAZZA, TRIGGER, mark_shown, pure

Rows = Sequence[Mapping[str, Any]]
# The purity of clusters that is wanted.
GOAL = 0.95
# Marks by kind of defence; triangles and circles are the paper's.
KINDS = {
    "pruning": "triangle", "DP-SGD": "circle", "no defence": "square", "permuted, rule unknown": "diamond",
    "permuted, rule matched": "ring",
}  # fmt: skip
UPWARD = "accuracy that an honest client receives"


def says10(rows: Rows) -> list[str]:
    """Sentences on Figure 10: Tazza beside FedAvg without attack, each defence, and purity beside its goal."""
    out = []
    for case in _cases(rows):
        own = {(one["attack"], one["rule"], one["defence"]): one for one in rows if one["data"] == case}
        quiet, beset = own["no attack", FEDAVG, "none"], own[FLIP, TAZZA, PERMUTED[UNKNOWN]]
        found = beset["_marks"]
        best = _best(own.values(), "none")
        reached = "reached" if found["purity"]["mean"] is not None and found["purity"]["mean"] >= GOAL else "missed"
        out.append(
            f"{case}: under 25 % label flip honest clients receive {100 * accuracy(beset):.1f} % with Tazza "
            f"({100 * (accuracy(beset) - accuracy(quiet)):+.1f} points from FedAvg without attack), "
            f"{100 * accuracy(best):.1f} % with the best of the others undefended ({best['rule']}). Purity "
            f"{pure(found)} %, without clients alone {mark_shown(found, 'several')} %: the goal of {100 * GOAL:g} % is "
            f"{reached}."
        )
        out += [
            f"{case}, {one['defence']}: {100 * accuracy(one):.1f} % with the best rule behind it ({one['rule']}), "
            f"{100 * (accuracy(one) - accuracy(best)):+.1f} points from the best undefended; {measure_of(one)} "
            f"{far(one)}."
            for one in _behind(own.values())
        ]
        out.append(_hides(case, beset, own[FLIP, TAZZA, PERMUTED[MATCHED]], own[FLIP, FEDAVG, "none"]))
    return [*out, _eye(rows)]


def _hides(case: str, blind: Mapping[str, Any], told: Mapping[str, Any], bare: Mapping[str, Any]) -> str:
    return (
        f"{case}: of a permuted upload the server gets a {measure_of(blind)} of {far(blind)} while it looks for no "
        f"rule, {far(told)} once it matches weights; undefended {far(bare)}."
    )


def _eye(rows: Rows) -> str:
    return f"Distances: {NAME}, which is right on {rows[0]['_eye']:.0%} of new pictures; this is no LPIPS."


def _cases(rows: Rows) -> list[str]:
    return list(dict.fromkeys(one["data"] for one in rows))


def _best(rows: Iterable[Mapping[str, Any]], defence: str, attack: str = FLIP) -> Mapping[str, Any]:
    """The rule other than Tazza that does best behind a defence."""
    return max((one for one in rows if one["attack"] == attack and one["defence"] == defence), key=accuracy)


def _behind(rows: Iterable[Mapping[str, Any]], attack: str = FLIP) -> list[Mapping[str, Any]]:
    """The best such rule behind each defence that is mounted."""
    held = list(rows)
    names = dict.fromkeys(one["defence"] for one in held if one["_kind"] in ("pruning", "noise"))
    return [_best(held, name, attack) for name in names]


def says12(rows: Rows) -> list[str]:
    """Sentences on Figure 12: what is left of a backdoor beside FedAvg's, and accuracy under injected noise."""
    out = []
    for case in _cases(rows):
        for attack in (TRIGGER, REPLACE):
            own = {(one["rule"], one["defence"]): one for one in rows if (one["data"], one["attack"]) == (case, attack)}
            tazza = own[TAZZA, PERMUTED[UNKNOWN]]
            gaps = [_success(tazza) - _success(own[FEDAVG, name]) for name in (MEDIUM.label, "none")]
            out.append(
                f"{case}, {attack}: Tazza's success is {gaps[0]:+.1f} points from that of FedAvg behind {MEDIUM.label} "
                f"(the paper: -18.89 on CIFAR-10), {gaps[1]:+.1f} from FedAvg undefended, at "
                f"{100 * accuracy(tazza):.1f} % accuracy (FedAvg {100 * accuracy(own[FEDAVG, MEDIUM.label]):.1f} % and "
                f"{100 * accuracy(own[FEDAVG, 'none']):.1f} %); purity {tazza['purity']} %, without clients alone "
                f"{tazza['not_alone']} %."
            )
        held = [one for one in rows if (one["data"], one["attack"]) == (case, NOISE)]
        tazza, told = (next(one for one in held if one["defence"] == PERMUTED[how]) for how in (UNKNOWN, MATCHED))
        bare, (best,) = _best(held, "none", NOISE), _behind(held, NOISE)
        out.append(
            f"{case}, {NOISE}: {100 * accuracy(tazza):.1f} % with Tazza, {100 * accuracy(best):.1f} % with the best "
            f"rule behind {MEDIUM.label} ({best['rule']}), {100 * accuracy(bare):.1f} % with the best undefended "
            f"({bare['rule']})."
        )
        out.append(_hides(case, tazza, told, bare))
    return [*out, _eye(rows)]


def _success(own: Mapping[str, Any]) -> float:
    value = own["_marks"]["success"]["mean"]
    return float("nan") if value is None else 100 * float(value)


def draw10(rows: Rows) -> str:
    """Accuracy under label flip against the distance of what is inverted, by case."""
    panels = [_against_distance(rows, case, FLIP) for case in _cases(rows)]
    return scatter([one for one in panels if one.dots], "Figure 10: accuracy and feature distance", KINDS)


def draw12(rows: Rows) -> str:
    """Accuracy against the backdoor's success, and under injected noise against the distance."""
    panels = [
        ScatterPanel(
            f"{case}, {attack}", "backdoor success (lower is better)", UPWARD, _dots(rows, case, attack, _succeeds)
        )
        for case in _cases(rows)
        for attack in (TRIGGER, REPLACE)
    ]
    panels += [_against_distance(rows, case, NOISE) for case in _cases(rows)]
    return scatter([one for one in panels if one.dots], "Figure 12: backdoor, and noise injection", KINDS)


def _against_distance(rows: Rows, case: str, attack: str) -> ScatterPanel:
    own = [one for one in rows if (one["data"], one["attack"]) == (case, attack) and one["_distance"]]
    guides = {one["defence"].removeprefix("permuted, "): float(one["_distance"]["mean"]) for one in own}
    along = "feature distance of inverted records (higher: less is given away)"
    return ScatterPanel(f"{case}, {attack}", along, UPWARD, _dots(rows, case, attack, _distant), guides)


def _distant(own: Mapping[str, Any]) -> float | None:
    return None if own["_distance"] is None else own["_distance"]["mean"]


def _succeeds(own: Mapping[str, Any]) -> float | None:
    # What the server matches changes no backdoor: one point is enough.
    value: float | None = own["_marks"]["success"]["mean"]
    return None if own["defence"] == PERMUTED[MATCHED] else value


def _dots(rows: Rows, case: str, attack: str, along: Callable[[Mapping[str, Any]], float | None]) -> list[ScatterDot]:
    out = []
    for own in rows:
        mark = own["_marks"]["received"]
        if (own["data"], own["attack"]) != (case, attack) or mark["mean"] is None or (at := along(own)) is None:
            continue
        named = {"none": "no defence", "noise": "DP-SGD", "permuted": own["defence"]}
        kind = str(named.get(own["_kind"], own["_kind"]))
        out.append(ScatterDot(at, mark["mean"], mark["low"], mark["high"], own["rule"], kind))
    return out
