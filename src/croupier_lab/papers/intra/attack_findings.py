"""What IntraShuffler's tables of attacks say when they are run again, in sentences computed from their rows.

A sentence is printed only if the rows say it: each is a function of them, with the prior and the control that it rests
on. `attack_tables` and `attack_figures` give these functions to their figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from croupier.audit.attacks.traits import LINEAR
from croupier_lab.attacks.tiers.experiment import LOUD, TITLES
from croupier_lab.papers.intra.attack_settings import Audited

Rows = Sequence[Mapping[str, Any]]
Mark = Mapping[str, Any]
NOISY = (LOUD, "tiers")
# The denoiser that tables look at, named in advance.
FIRST = LINEAR
SAME = (
    "Households and their tiers are the same in all seeds: intervals are over trainings, cohorts and noise, and a tier "
    "that happens to go with a class shows in every run."
)
# What the paper prints, table by table.
PAPER: dict[str, dict[str, Any]] = {
    "Table 1": {
        "about": "the paper does not say on which data set, model or budgets",
        "heads": ["method", "cosine", "linkage", "linear separability"],
        "rows": [["no denoising", 0.12, 0.18, 0.20], ["epsilon-aware denoising", 0.45, 0.76, 0.68]],
    },
    "Table 2": {
        "about": "the paper does not say on which data set or model, nor how many classes there are",
        "heads": ["defence", "CosAUC", "delta-cos", "surrogate accuracy", "ARI"],
        "rows": [
            ["no shuffling + DP", 0.42, 0.21, 0.78, 0.41],
            ["Shuffle-DP", 0.36, 0.18, 0.69, 0.30],
            ["IntraShuffler", 0.15, 0.05, 0.33, 0.06],
        ],
    },
    "Table 5": {
        "about": "surrogate accuracy by budget; the paper does not say on which data set or model",
        "heads": ["budget", "no shuffling + DP", "Shuffle-DP", "IntraShuffler"],
        "rows": [
            ["epsilon <= 1", 0.41, 0.38, 0.32],
            ["1 < epsilon <= 4", 0.63, 0.55, 0.34],
            ["epsilon > 4", 0.81, 0.72, 0.36],
        ],
    },
    "Table 10": {
        "about": "London households, LSTM",
        "heads": ["shuffling", "cosine", "inference accuracy"],
        "rows": [["layer-wise", 0.41, 0.62], ["parameter-level", 0.12, 0.28]],
    },
}
ROWS, SHUFFLED, INTRA = TITLES["rows"], TITLES["model"], TITLES["parameter"]


def marked(mark: Mark | None) -> str:
    """A measure as text: its mean, half of its interval, and its prior; a star where its control fails."""
    if mark is None or mark["rate"] is None:
        return "-"
    half = (mark["high"] - mark["low"]) / 2
    star = "*" if mark.get("control") is False else ""
    prior = f" ({alike(mark['prior'])})" if "prior" in mark else ""
    return f"{alike(mark['rate'])} ± {half:.3f}{star}{prior}"


def alike(value: float) -> str:
    """A number with three decimal places, where a rounded zero has no minus sign."""
    return f"{round(value, 3) + 0.0:.3f}"


def facts(found: Audited, noise: str) -> dict[str, Any]:
    """What sentences need besides measures, as plain values."""
    return {
        "clip": found.clip, "epsilons": [list(one.epsilons[noise]) for one in found.seeds],
        "clients": found.seeds[0].clients, "auxiliary": found.seeds[0].auxiliary,
    }  # fmt: skip


def says(rows: Rows) -> list[str]:
    """Sentences on who was attacked, and on the true epsilons of the noise."""
    said = []
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in rows if row["_facts"]):
        own = [row for row in rows if (row["data"], row["model"]) == (data, model)]
        known = own[0]["_facts"]
        said.append(
            f"{data}, {model}: {known['clients']} clients, {known['auxiliary']} auxiliary ones; C = "
            f"{known['clip']:.3g}."
        )
        loud = next((row["_facts"]["epsilons"] for row in own if row["noise"] == LOUD), None)
        if loud:
            tiers = [fmean(each) for each in zip(*loud, strict=True)]
            said.append(
                f"{data}: updates as received have the paper's cosine of 0.12 only with noise whose true epsilons of "
                f"one participation are {', '.join(f'{one:.3g}' for one in tiers)} (tier by tier, mean over seeds), "
                "not 0.5 to 8."
            )
    return said


def _of(rows: Rows, **wanted: str) -> Mapping[str, Any] | None:
    """The measures of the first row in which these columns have these values."""
    return next((row["_marks"] for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


def above(mark: Mark | None) -> bool:
    """Whether a measure passed its control and all of its interval lies above the prior."""
    return bool(mark and mark.get("control") is not False and "above" in mark and mark["above"]["low"] > 0)


def nothing(rows: Rows, what: str) -> list[str]:
    """A sentence on how many cells under the stated tiers are above their priors, and by how much at most."""
    found = [
        (name, mark) for row in rows if row["noise"] == "tiers" for name, mark in row["_marks"].items()
        if mark and "above" in mark and mark.get("control") is not False
    ]  # fmt: skip
    if not found:
        return []
    hits = [(mark["above"]["rate"], name) for name, mark in found if above(mark)]
    most = f", the largest by {max(hits)[0]:.3f} ({max(hits)[1].replace('_', ' ')})" if hits else ""
    return [
        f"With the tiers as stated, {len(hits)} of {len(found)} {what} that passed their control lie above their "
        f"priors (95 % each; about {len(found) / 40:.1f} would by chance){most}.",
        *([SAME] if any(row["data"].startswith("London") for row in rows) else []),
    ]


def says1(rows: Rows) -> list[str]:
    """What Table 1 says of denoising."""
    said = says(rows)
    loud = [row for row in rows if row["noise"] == LOUD]
    before, after = loud[0]["_marks"], loud[1]["_marks"]
    said.append(
        f"{LOUD}: the linear denoiser takes the cosine from {alike(before['cosine']['rate'])} to "
        f"{alike(after['cosine']['rate'])} (paper: 0.12 to 0.45), but the auxiliary clients' mean update, without any "
        f"view, has {alike(after['cosine']['prior'])} already. Around the round's mean, where that guess has "
        f"{alike(after['centred_cosine']['prior'])}, denoising takes it from "
        f"{alike(before['centred_cosine']['rate'])} to {alike(after['centred_cosine']['rate'])}."
    )
    link, prior = after["centred_linkage"], after["centred_linkage"].get("prior", 0.0)
    said.append(
        f"{LOUD}: linkage {alike(before['centred_linkage']['rate'])} without denoising, {alike(link['rate'])} with it, "
        f"{alike(prior)} by a random pick (paper: 0.18 and 0.76)"
        + ("." if link.get("control") is not False else "; it fails its control here.")
    )
    return [*said, *nothing(rows, "measures")]


def says2(rows: Rows) -> list[str]:
    """What Table 2 says of defences."""
    said = says(rows)
    printed = {row[0]: row[1:] for row in PAPER["Table 2"]["rows"]}
    plain, intra = _of(rows, noise=LOUD, view=ROWS), _of(rows, noise=LOUD, view=INTRA)
    if plain and intra:
        area, left = plain["CosAUC"], intra["CosAUC"]
        said.append(
            f"{LOUD}, no shuffling: CosAUC {alike(area['rate'])} and delta-cos {alike(plain['delta_cos']['rate'])} "
            f"(paper: {printed['no shuffling + DP'][0]:g} and {printed['no shuffling + DP'][1]:g}); the prior without "
            f"any view has {alike(area['prior'])}."
        )
        low = printed["IntraShuffler"][0]
        word = "below" if low < left["prior"] else "not below"
        said.append(
            f"IntraShuffler: CosAUC {alike(left['rate'])} against a prior of {alike(left['prior'])}. The paper's "
            f"{low:g} lies {word} what is known here without any view; who finds less than that throws knowledge away."
        )
    said += _attributes(rows)
    sums = _of(rows, noise=LOUD, view=TITLES["sums"])
    if intra and sums:
        said.append(
            "Shuffled rows add up to the sums of their buckets: IntraShuffler gives away at least what bucket sums do, "
            f"whose cosine is {alike(sums['cosine']['rate'])} against {alike(intra['cosine']['rate'])} of a shuffled "
            f"row with the client most of it is from (prior {alike(sums['cosine']['prior'])}; {LOUD})."
        )
    return [*said, *nothing(rows, "measures")]


def _attributes(rows: Rows) -> list[str]:
    """Sentences on how often clients are named right by attribute, from no noise to IntraShuffler."""
    names = [name for name in rows[0]["_marks"] if name.startswith("accuracy_")]
    said = []
    for name in names:
        cells = [
            f"{title} {marked(marks[name])}"
            for title, wanted in (
                ("no noise and no shuffling", ("no noise", ROWS)), ("with noise", (LOUD, ROWS)),
                ("Shuffle-DP", (LOUD, SHUFFLED)), ("IntraShuffler", (LOUD, INTRA)),
            )
            for marks in [_of(rows, noise=wanted[0], view=wanted[1])] if marks
        ]  # fmt: skip
        said.append(f"Clients named right, {name.removeprefix('accuracy_')}: {'; '.join(cells)} ({LOUD}).")
    return said


def says5(rows: Rows) -> list[str]:
    """What Table 5 says of budgets."""
    said = says(rows)
    for key in dict.fromkeys(row["attribute"] for row in rows):
        own = [row for row in rows if row["attribute"] == key and row["noise"] == LOUD]
        ends = [row["_marks"]["no_shuffling"] for row in own if row["_marks"]["no_shuffling"]]
        if not ends or ends[0].get("control") is False:
            said.append(f"{key}: the attack fails its control, and scores no defence.")
            continue
        words = ", ".join(f"{row['declared_budget']}: {marked(row['_marks']['no_shuffling'])}" for row in own)
        left = [row["declared_budget"] for row in own if above(row["_marks"]["intrashuffler"])]
        said.append(
            f"{key}, {LOUD}, no shuffling: {words}. After IntraShuffler "
            + (f"above the prior at {', '.join(left)}." if left else "no group is above its prior.")
        )
    return [*said, *nothing(rows, "cells")]


def says10(rows: Rows) -> list[str]:
    """What Table 10 says of the grain of shuffling."""
    said = says(rows)
    for noise in ("no noise", LOUD):
        layer, single = _of(rows, noise=noise, view=TITLES["layer"]), _of(rows, noise=noise, view=INTRA)
        if layer and single:
            said.append(
                f"{noise}: cosine {alike(layer['cosine']['rate'])} layer-wise and {alike(single['cosine']['rate'])} by "
                f"parameters, prior {alike(layer['cosine']['prior'])}; around the mean "
                f"{alike(layer['centred_cosine']['rate'])} and {alike(single['centred_cosine']['rate'])} "
                f"(paper, London and LSTM: cosine 0.41 and 0.12)."
            )
    return [*said, *nothing(rows, "measures")]


def says11(rows: Rows) -> list[str]:
    """What Table 11 says of data that is dealt evenly or unevenly."""
    said = says(rows)
    for row in rows:
        if row["denoiser"] == rows[1]["denoiser"] and row["noise"] != "tiers":
            mark = row["_marks"]["centred_linkage"]
            if mark and "above" in mark:
                word = "above" if above(mark) else "not shown to be above"
                said.append(
                    f"{row['data']}, {row['noise']}, {row['view']}: linked {marked(mark)}, {word} a random pick."
                )
    return [*said, *nothing(rows, "measures")]
