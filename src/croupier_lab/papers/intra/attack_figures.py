"""IntraShuffler's Figures 2 to 7 run again: cosines by budget, groups of behaviour, cosines after a shuffle, and links.

They draw the audits of `attack_settings` that `attack_tables` tabulates, but for CIFAR-10 split evenly, and that of
people's activities. "Rows" are updates in the audit's words, and lines of a figure's table in the code here.
`croupier reproduce intra/figure2` (to `intra/figure7`) runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean, quantiles
from typing import Any

from croupier.audit.traits.tiers import View
from croupier_lab.attacks.tiers.experiment import LOUD, TITLES
from croupier_lab.attacks.tiers.sketch import Sketch
from croupier_lab.drawing.lines import LineStyle, lines
from croupier_lab.drawing.points import spots
from croupier_lab.papers.intra.attack_findings import FIRST, NOISY, alike, facts, marked, says
from croupier_lab.papers.intra.attack_settings import ACTIVITY, HOUSEHOLDS, ROW, SKEWED, Audited, audited
from croupier_lab.papers.intra.attack_tables import PAPER, PICTURED, READ, SEEDS, SUBSTITUTED
from croupier_lab.papers.intra.protocols import TIERS
from croupier_lab.papers.intra.utility_table import ABSENT
from croupier_lab.papers.shared.figure import Figure, Means, Scale

Watch = Callable[[str], None]
Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
LACKING = ("Pecan Street", "ComStock")
# At most so many updates of one panel are drawn as spots.
DRAWN = 400


def _sketches(found: Audited, noise: str, view: View, denoiser: str) -> list[Sketch]:
    return [
        one.sketch for seed in found.seeds for one in seed.found
        if (one.noise, one.view, one.denoiser) == (noise, view, denoiser)
    ]  # fmt: skip


def _marks(found: Audited, noise: str, view: View, denoiser: str = FIRST) -> Mapping[str, Any]:
    kept: Mapping[str, Any] = found.arm(noise, view)["denoisers"][denoiser]
    return kept


def _row(found: Audited, noise: str, marks: Mapping[str, Any], **more: Any) -> Row:
    data, model = found.named
    shown = {head: marked(mark) for head, mark in marks.items()}
    head = {"data": data, "model": model, "noise": noise}
    return {**head, **more, **shown, "_marks": dict(marks), "_facts": facts(found, noise)}


def _absent(like: Row, paper: str) -> list[Row]:
    """Rows for data sets of the paper that are not available."""
    empty = {key: None if key.startswith("_") else "-" for key in like}
    return [empty | {"data": data, "model": ABSENT, "paper": paper} for data in LACKING]


def _clients(sketches: Sequence[Sketch]) -> str:
    """The 10th, 50th and 90th percentile of clients' mean cosines, averaged over seeds."""
    cuts = [quantiles(one.clients.values(), n=10) for one in sketches]
    return " / ".join(alike(fmean(cut[at] for cut in cuts)) for at in (0, 4, 8))


def _figure2(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    rows = []
    for scene in (HOUSEHOLDS, ACTIVITY):
        found = audited(scene, scale, means, seeds, watch)
        for noise in NOISY:
            raw, clean = _marks(found, noise, "rows", "none"), _marks(found, noise, "rows")
            for name in ("cosine", *(f"cosine at epsilon {tier:g}" for tier in TIERS)):
                at = {"as_received": raw.get(name), "denoised": clean.get(name)}
                by = _clients(_sketches(found, noise, "rows", FIRST)) if name == "cosine" else "-"
                told = {
                    "budget": "all" if name == "cosine" else name.removeprefix("cosine at "),
                    "clients_10_50_90": by,
                }
                paper = "0.35 to 0.45 across clients (text at Figure 2)" if name == "cosine" else "-"
                rows.append(_row(found, noise, at, **told, paper=paper))
    return [*rows, *_absent(rows[0], "drawn only (Figure 2)")]


def _separated(views: Sequence[tuple[View, str]], scale: Scale, means: Means, seeds: Sequence[int],
               watch: Watch) -> list[Row]:  # fmt: skip
    """How far the classes of an attribute are apart in each view and denoiser: accuracy, separability, clusters (ARI).

    The spots that are drawn are those of the first seed, at the noise `LOUD` alone (`_draw3`).
    """
    found = audited(HOUSEHOLDS, scale, means, seeds, watch)
    rows = []
    for noise in NOISY:
        for key, attribute in found.seeds[0].attributes.items():
            for view, denoiser in views:
                marks = _marks(found, noise, view, denoiser)
                heads = {"rows_named_right": "rows named right", "separability": "linear separability", "ARI": "ARI"}
                at = {head: marks.get(f"{key}: {name}") for head, name in heads.items()}
                told = {"attribute": key, "view": TITLES[view], "denoised": "no" if denoiser == "none" else "yes",
                        "chance": round(1 / len(attribute.classes), 3), "paper": "drawn only"}  # fmt: skip
                first = _sketches(found, noise, view, denoiser)[0].spots[key][:DRAWN]
                spread = {"_spots": [list(one) for one in first], "_classes": list(attribute.classes)}
                rows.append(_row(found, noise, at, **told) | spread)
    return rows


def _cosines(found: Audited, noise: str, name: str) -> dict[str, Any]:
    return {
        "before": _marks(found, noise, "rows").get(name), "shuffle_dp": _marks(found, noise, "model").get(name),
        "after": _marks(found, noise, "parameter").get(name),
    }  # fmt: skip


def _figure5(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    rows = []
    for scene in (HOUSEHOLDS, ACTIVITY, SKEWED):
        found = audited(scene, scale, means, seeds, watch)
        for noise in NOISY:
            for name in ("cosine", "cosine centred"):
                at = _cosines(found, noise, name)
                change = at["after"]["rate"] / at["before"]["rate"] - 1 if at["before"]["rate"] > 0.01 else None
                left = f"{100 * change:+.0f} %" if change is not None else "-"
                rows.append(_row(found, noise, at, measure=name, change=left, paper="-60 % or more (text at Figure 5)"))
    return [*rows, *_absent(rows[0], "-60 % or more (text at Figure 5)")]


def _figure6(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    found = audited(HOUSEHOLDS, scale, means, seeds, watch)
    return [
        _row(found, noise,
             {"as_received": _marks(found, noise, "rows", "none").get(name), **_cosines(found, noise, name)},
             budget=tier, paper="drawn only (Figure 6)")
        for noise in NOISY for tier in TIERS for name in [f"cosine at epsilon {tier:g}"]
    ]  # fmt: skip


def _figure7(scale: Scale, means: Means, seeds: Sequence[int], watch: Watch) -> list[Row]:
    rows = []
    words = {
        "No Shuffle, No DP": "nearly 1", "No Shuffle + DP": "a little less", "Shuffler-DP": "less again",
        "IntraShuffler": "near random",
    }  # fmt: skip
    for scene in (HOUSEHOLDS, ACTIVITY, SKEWED):
        found = audited(scene, scale, means, seeds, watch)
        arms: list[tuple[str, str, View]] = [("No Shuffle, No DP", "no noise", "rows")]
        for noise in NOISY:
            arms += [
                ("No Shuffle + DP", noise, "rows"),
                ("Shuffler-DP", noise, "model"),
                ("IntraShuffler", noise, "parameter"),
            ]
        for title, noise, view in arms:
            at = {"linked": _marks(found, noise, view).get(ROW)}
            row = _row(found, noise, at, arm=title, paper=f"{words[title]} (text at Figure 7)")
            rows.append(row | {"_rounds": _by_round(_sketches(found, noise, view, FIRST))})
    return [*rows, *_absent(rows[0], "drawn only (Figure 7)")]


def _by_round(sketches: Sequence[Sketch]) -> list[list[float]]:
    """By round, the share of rows that are linked and the share of a random pick.

    Both are means over the seeds that were asked anything in that round.
    """
    numbers = sorted({number for one in sketches for number in one.linked})
    found = []
    for number in numbers:
        asked = [one.linked[number] for one in sketches if number in one.linked]
        hits, chance = fmean(hit / count for count, hit, _ in asked), fmean(lot / count for count, _, lot in asked)
        found.append([number + 1, hits, chance])
    return found


def _draw2(rows: Rows) -> str:
    own = [row for row in rows if row["_marks"] and row["budget"] != "all"]
    panels = {
        f"{data}; {noise}": {
            head: [(row["budget"].removeprefix("epsilon "), row["_marks"][head]) for row in at if row["_marks"][head]]
            for head in ("as_received", "denoised")
        }
        for data, noise in dict.fromkeys((row["data"], row["noise"]) for row in own)
        for at in [[row for row in own if (row["data"], row["noise"]) == (data, noise)]]
    }
    return lines(panels, "Cosine of updates as received and denoised, by declared epsilon", "declared epsilon")


def _draw6(rows: Rows) -> str:
    panels = {
        noise: {
            head: [
                (f"{row['budget']:g}", row["_marks"][head])
                for row in rows
                if row["noise"] == noise and row["_marks"][head]
            ]
            for head in ("as_received", "before", "shuffle_dp", "after")
        }
        for noise in dict.fromkeys(row["noise"] for row in rows)
    }
    return lines(panels, "Cosine before and after IntraShuffler, by declared epsilon", "declared epsilon")


def _draw5(rows: Rows) -> str:
    own = [row for row in rows if row["_marks"]]
    panels = {
        f"{noise}; {measure}": {
            row["data"]: [(head.replace("_", "-"), row["_marks"][head]) for head in ("before", "shuffle_dp", "after")]
            for row in own if (row["noise"], row["measure"]) == (noise, measure)
        }
        for noise, measure in dict.fromkeys((row["noise"], row["measure"]) for row in own)
    }  # fmt: skip
    return lines(panels, "Cosine of denoised updates before and after IntraShuffler", "")


def _draw7(rows: Rows) -> str:
    own = [row for row in rows if row["_marks"]]
    panels: dict[str, dict[str, list[tuple[str, Mapping[str, float]]]]] = {}
    for data, noise in dict.fromkeys((row["data"], row["noise"]) for row in own if row["noise"] != "no noise"):
        at = [row for row in own if row["data"] == data and row["noise"] in (noise, "no noise")]
        panels[f"{data}; {noise}"] = {
            row["arm"]: [(f"{number:g}", {"rate": rate, "prior": chance}) for number, rate, chance in row["_rounds"]]
            for row in at
        }
    return lines(
        panels, "Rows linked to an earlier row of their owner, round by round", "round", LineStyle(numbers=True)
    )


def _draw3(rows: Rows) -> str:
    panels = {
        f"{row['attribute']}; {row['view']}, {'denoised' if row['denoised'] == 'yes' else 'as received'}": (
            row["_spots"], row["_classes"],
        )
        for row in rows if row["noise"] == LOUD
    }  # fmt: skip
    return spots(panels, f"Updates by the surrogate's log odds and the first principal direction ({LOUD})")


def _says5(rows: Rows) -> list[str]:
    said = says(rows)
    for row in rows:
        if row["_marks"] and row["noise"] == LOUD and row["measure"] == "cosine":
            at = row["_marks"]
            said.append(
                f"{row['data']}: cosine {alike(at['before']['rate'])} before and {alike(at['after']['rate'])} after "
                f"({row['change']}; the paper says -60 % or more), prior {alike(at['before']['prior'])}: an attacker "
                f"who ignores the view loses {100 * (1 - at['before']['prior'] / at['before']['rate']):.0f} %."
            )
    return said


def _says7(rows: Rows) -> list[str]:
    said = says(rows)
    for row in rows:
        mark = row["_marks"] and row["_marks"]["linked"]
        if mark and mark["rate"] is not None:
            gain = verdict(mark)
            said.append(f"{row['data']}, {row['arm']}, {row['noise']}: linked {marked(mark)}, {gain}.")
    return said


def verdict(mark: Mapping[str, Any]) -> str:
    """In words whether links are above a random pick, or that they are not scored because the control failed."""
    if mark.get("control") is False:
        return "not scored: it fails its control"
    return "above a random pick" if mark["above"]["low"] > 0 else "not shown to be above a random pick"


NAMED = (
    "Pecan Street and ComStock are not available; people's activities (16 clients, 5 auxiliary, perceptron of 16) "
    "stand in as a second series with natural clients, their attribute is the commonest activity",
)
BOTH = (*SUBSTITUTED, *NAMED)


def _figure(number: int, title: str, rows: Any, draw: Any, said: Any = says, instead: Sequence[str] = BOTH) -> Figure:
    return Figure(
        f"intra/figure{number}", f"{PAPER}, Figure {number}", title, READ, rows, SEEDS, tuple(instead), said, draw
    )


FIGURE3: Any = partial(_separated, [("rows", "none"), ("rows", FIRST)])
FIGURE4: Any = partial(_separated, [("rows", FIRST), ("model", FIRST), ("parameter", FIRST), ("sums", FIRST)])
FIGURES = (
    _figure(2, "cosine of denoised updates, by client and declared budget", _figure2, _draw2),
    _figure(3, "behavioural groups before and after denoising", FIGURE3, _draw3, instead=SUBSTITUTED),
    _figure(4, "behavioural groups under each defence", FIGURE4, _draw3, instead=SUBSTITUTED),
    _figure(5, "cosine before and after IntraShuffler", _figure5, _draw5, _says5, (*BOTH, *PICTURED[1:])),
    _figure(6, "cosine by declared budget before and after IntraShuffler", _figure6, _draw6, instead=SUBSTITUTED),
    _figure(7, "linkage round by round, with an arm without noise", _figure7, _draw7, _says7, (*BOTH, *PICTURED[1:])),
)  # fmt: skip
