"""IntraShuffler's tables of what updates tell (1, 2, 5, 10, 11), run again with priors, controls and true epsilons.

The paper's noise is weaker than its stated epsilons ask for. So a sentence under each table gives the true ones, and
the same attack stands beside under noise that keeps the stated ones. `croupier reproduce intra/table1` (and so on) runs
them, on the settings of `attack_settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from croupier.audit.traits.tiers import View
from croupier_lab.attacks.tiers.denoise import TITLES as DENOISERS
from croupier_lab.attacks.tiers.experiment import LOUD, TITLES
from croupier_lab.attacks.tiers.measures import GROUPS
from croupier_lab.papers.intra.attack_findings import (
    FIRST,
    NOISY,
    alike,
    facts,
    marked,
    says1,
    says2,
    says5,
    says10,
    says11,
)
from croupier_lab.papers.intra.attack_findings import PAPER as PRINTED
from croupier_lab.papers.intra.attack_settings import (
    ALPHA,
    EVEN,
    HOUSEHOLDS,
    LINKED,
    ROW,
    SKEWED,
    AttackSetting,
    Audited,
    audited,
)
from croupier_lab.papers.shared.figure import Figure, Means, Scale

Watch = Callable[[str], None]
Row = dict[str, Any]
PAPER = "IntraShuffler (2026)"
SEEDS: Mapping[Scale, int] = {"smoke": 3, "small": 3, "paper": 5}


def _row(found: Audited, noise: str, view: View | None, **more: Any) -> Row:
    """A row: where it comes from, then its cells, then what its sentences need."""
    data, model = found.named
    where = {"data": data, "model": model, "noise": noise}
    return where | ({"view": TITLES[view]} if view else {}) | more | {"_facts": facts(found, noise)}


def _cells(marks: Mapping[str, Any], wanted: Mapping[str, str]) -> Row:
    """Columns of measures, each with its interval and prior; and the measures themselves under `_marks`."""
    kept = {head: marks.get(name) for head, name in wanted.items()}
    return {head: marked(mark) for head, mark in kept.items()} | {"_marks": kept}


def _table1(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    found = audited(HOUSEHOLDS, scale, means, seeds, watch)
    keys = found.seeds[0].attributes
    wanted = {
        "cosine": "cosine", "centred_cosine": "cosine centred", "linkage": LINKED, "centred_linkage": ROW,
        **{f"separability_{key}": f"{key}: linear separability" for key in keys},
    }  # fmt: skip
    printed = {row[0]: row[1:] for row in PRINTED["Table 1"]["rows"]}
    names = {"none": "no denoising", "wiener": "epsilon-aware denoising", "learned": "epsilon-aware denoising"}
    return [
        _row(found, noise, None, denoiser=DENOISERS[name],
             **_cells(found.arm(noise, "rows")["denoisers"][name], wanted),
             chance=_chances(found), paper=_beside(printed[names[name]], "Table 1, no data set or model named"))
        for noise in NOISY for name in names
    ]  # fmt: skip


def _table2(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    found = audited(HOUSEHOLDS, scale, means, seeds, watch)
    keys = found.seeds[0].attributes
    wanted = {
        "cosine": "cosine", "CosAUC": "CosAUC", "delta_cos": "delta-cos",
        **{f"accuracy_{key}": f"{key}: clients named right" for key in keys},
        **{f"ARI_{key}": f"{key}: ARI" for key in keys},
    }  # fmt: skip
    printed = {row[0]: row[1:] for row in PRINTED["Table 2"]["rows"]}
    names: Mapping[str, str] = {
        "rows": "no shuffling + DP", "model": "Shuffle-DP", "parameter": "IntraShuffler",
    }  # fmt: skip
    return [
        _row(found, noise, view, **_cells(found.arm(noise, view)["denoisers"][FIRST], wanted), chance=_chances(found),
             paper=_beside(printed.get(names.get(view, "")), "Table 2, no data set or model named"))
        for noise in ("no noise", *NOISY) for view in found.scene.views
    ]  # fmt: skip


def _table5(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    found = audited(HOUSEHOLDS, scale, means, seeds, watch)
    views: Mapping[str, View] = {
        "no_shuffling": "rows", "shuffle_dp": "model", "intrashuffler": "parameter", "bucket_sums": "sums",
    }  # fmt: skip
    rows = []
    for noise in NOISY:
        for key, attribute in found.seeds[0].attributes.items():
            for (group, _, _), (budget, *printed) in zip(GROUPS, PRINTED["Table 5"]["rows"], strict=True):
                name = f"{key}: clients named right, {group} epsilon"
                kept = {head: found.arm(noise, view)["denoisers"][FIRST].get(name) for head, view in views.items()}
                cells = {head: marked(mark) for head, mark in kept.items()} | {"_marks": kept}
                rows.append(
                    _row(found, noise, None, attribute=key, declared_budget=budget, **cells,
                         chance=round(1 / len(attribute.classes), 3),
                         paper=_beside(printed, "Table 5, no data set or model named"))
                )  # fmt: skip
    return rows


def _table10(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    found = audited(HOUSEHOLDS, scale, means, seeds, watch)
    wanted = {"cosine": "cosine", "centred_cosine": "cosine centred"}
    wanted |= {f"accuracy_{key}": f"{key}: clients named right" for key in found.seeds[0].attributes}
    wanted |= {f"by_rows_{key}": f"{key}: rows named right" for key in found.seeds[0].attributes}
    printed = dict(zip(("layer", "parameter"), (row[1:] for row in PRINTED["Table 10"]["rows"]), strict=True))
    views: tuple[View, ...] = ("rows", "layer", "parameter", "sums")
    return [
        _row(found, noise, view, **_cells(found.arm(noise, view)["denoisers"][FIRST], wanted), chance=_chances(found),
             paper=_beside(printed.get(view), "Table 10, London households, LSTM"))
        for noise in ("no noise", *NOISY) for view in views
    ]  # fmt: skip


# Plain, Shuffle, Intra; IID: about 1 in n_t, the candidates of a round.
TABLE11: Mapping[AttackSetting, Mapping[str, str]] = {
    EVEN: {"rows": "1/n_t", "model": "1/n_t", "parameter": "1/n_t"},
    SKEWED: {"rows": "0.42", "model": "0.31", "parameter": "0.12"},
}


def _table11(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    rows = []
    for scene, printed in TABLE11.items():
        found = audited(scene, scale, means, seeds, watch)
        cohort = scene.tiered(scale).setting.plan.cohort or 1
        wanted = {"linkage": LINKED, "centred_linkage": ROW, "cosine": "cosine"}
        rows += [
            _row(found, noise, view, denoiser=DENOISERS[name],
                 **_cells(found.arm(noise, view)["denoisers"][name], wanted), chance=round(1 / cohort, 3),
                 paper=f"{printed[view]} (Table 11, CIFAR-10, no model named)" if noise != "no noise" else "-")
            for noise in ("no noise", *NOISY) for view in scene.views for name in ("none", FIRST)
        ]  # fmt: skip
    return rows


def _beside(values: Sequence[float] | None, where: str) -> str:
    return f"{' / '.join(f'{one:g}' for one in values)} ({where})" if values else "-"


def _chances(found: Audited) -> str:
    """One in as many classes as there are, attribute by attribute."""
    return ", ".join(f"{key} {alike(1 / len(one.classes))}" for key, one in found.seeds[0].attributes.items())


READ = (
    "Means over seeds with 95 % intervals, in brackets the prior: what the auxiliary clients tell without any view. A "
    f"star: the attack fails its control (not above its prior without noise and shuffling). '{LOUD}': the tiers' "
    "deviations made smaller by one factor until updates as received have the mean cosine 0.12 of the paper's Table 1. "
    "'Tiers': per-round epsilon 0.5, 1, 2, 4 or 8 by client, delta = 1e-5, for whole clients, sensitivity 2 C. "
    "Centred: around the round's mean. Attributes: day (day- or night-active), evening (its load on the evening peak), "
    "use (how much it uses), cut at quantiles of auxiliary households. Linkage: top-1 within 10 rounds."
)
SUBSTITUTED = (
    "C is the median length of what auxiliary clients alone learn in up to five rounds without noise; the paper names "
    "no C",
    "the paper does not say on which data set and model its Tables 1, 2 and 5 are: London households and an LSTM here",
    "windows of a household begin 25 half hours apart at paper scale (61 small, 211 smoke); Adam, rate 0.003",
    "a linear denoiser, best for the auxiliary mean and covariance, and a network on principal directions: the paper "
    "does not describe its denoiser; logistic regression as surrogate: it does not describe that either",
    "buckets of 8 or more in every shuffled view, Shuffle-DP too, so that a difference is the shuffle's alone",
    "below paper scale fewer households, rounds and windows",
)
PICTURED = (
    *SUBSTITUTED[:1],
    "a perceptron of one hidden layer of 8 on CIFAR-10's pictures: the paper does not say which of its networks Table "
    "11 is on",
    f"non-IID: Dirichlet {ALPHA:g}; the paper says 'class-skew' with as many samples a client, which differ here",
    "10,000 pictures at paper scale, 4,000 small; smoke: handwritten digits; a quarter of the clients are auxiliary",
)
FIGURES = (
    Figure(
        "intra/table1", f"{PAPER}, Table 1", "what denoising adds: cosine, linkage, linear separability", READ, _table1,
        SEEDS, SUBSTITUTED, says1,
    ),
    Figure(
        "intra/table2", f"{PAPER}, Table 2", "what each defence leaves to denoising and inference", READ, _table2,
        SEEDS, SUBSTITUTED, says2,
    ),
    Figure(
        "intra/table5", f"{PAPER}, Table 5", "attack success by declared budget", READ, _table5, SEEDS, SUBSTITUTED,
        says5,
    ),
    Figure(
        "intra/table10", f"{PAPER}, Table 10", "layer-wise against parameter-level shuffling", READ, _table10, SEEDS,
        SUBSTITUTED, says10,
    ),
    Figure(
        "intra/table11", f"{PAPER}, Table 11", "cross-round linkage, IID against non-IID", READ, _table11, SEEDS,
        PICTURED, says11, bare=True,
    ),
)  # fmt: skip
