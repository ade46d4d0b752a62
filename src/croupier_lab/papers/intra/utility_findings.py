"""What the rows of IntraShuffler's tables of utility say, in plain sentences computed from them.

They depend on the rows, so that a run at another scale says what it found; only `GAP` and the end of `says4` are fixed.
`papers.intra.utility` gives `says` and `says4` to its figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def says(rows: Rows) -> list[str]:
    """What a table by aggregator (3, 8 or 9) says."""
    ran = [row for row in rows if row["_facts"]]
    said = [*_same(ran)]
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in ran):
        own = [row for row in ran if (row["data"], row["model"]) == (data, model)]
        said += [_public(data, model, own), *_stated(data, model, own), *_implied(data, model, own)]
    return [*said, GAP]


def says4(rows: Rows) -> list[str]:
    """What Table 4 says of weighing by buckets against none."""
    ran = [row for row in rows if row["_facts"]]
    said = []
    for data, model in dict.fromkeys((row["data"], row["model"]) for row in ran):
        own = [row for row in ran if (row["data"], row["model"]) == (data, model)]
        said.append(_public(data, model, own))
        for noise in dict.fromkeys(row["noise"] for row in own if row["_facts"]["noise"] != "none"):
            at = [row for row in own if row["noise"] == noise]
            ways = "; ".join(f"{row['weights']} {row['ours']}" for row in at)
            said.append(
                f"{data}, noise {noise} (true epsilon of one round {_range(at[0]['_facts']['epsilons'])}): {ways}."
            )
    return [
        *said,
        "No bucket means equal weights: a shuffle over all clients leaves no label to weigh by. That, and not the "
        "shuffle, is what buckets mend; weighing each client by its own public tier, without any shuffle, needs no "
        "buckets at all.",
    ]


GAP = (
    "The paper's Plain FL-DP is worse than its Shuffle-DP by 0.015 to 0.023 RMSE (Tables 3 and 8) and by 2.7 to 3.2 "
    "points of accuracy (Table 9). At equal noise and equal weights no such gap can be: those columns are one "
    "training. Its columns must have differed in noise or in weights."
)


def _same(ran: Rows) -> list[str]:
    return [
        "The same noised updates of one seed, handed over plainly, shuffled by rows, by parameters and by parameters "
        f"in buckets, gave models that differ from the plain one by at most {max(row['_same'].values()):g} in any "
        f"weight ({', '.join(f'{name} {apart:g}' for name, apart in row['_same'].items())})."
        for row in ran
        if row["_same"]
    ]


def _public(data: str, model: str, own: Rows) -> str:
    facts = own[0]["_facts"]
    loud: Sequence[float] = next((row["_facts"]["sigmas"] for row in own if row["_facts"]["noise"] == "stated"), [])
    noise = (
        f" Noise at the stated epsilons is {_range([s * math.sqrt(facts['size']) for s in loud])} times as long as C."
        if loud
        else ""
    )
    clip, guess = facts["clip"], facts["naive"]
    plainly = (
        f"Saying the last reading again has {guess:.3f}."
        if facts["forecast"]
        else f"Always saying the commonest class has {100 * guess:.1f}."
    )
    head = f"{data}, {model}: {facts['size']:,} weights; C = {clip['mean']:.3g} (seeds: {_range(clip['runs'])})."
    return f"{head} {plainly}{noise}"


def _stated(data: str, model: str, own: Rows) -> list[str]:
    found = [row for row in own if row["_facts"]["noise"] == "stated"]
    if not found:
        return []
    usual = [row for row in found if not row["_facts"]["quiet"]]
    quiet = [row for row in found if row["_facts"]["quiet"]]
    learnt = [row for row in found if _better(row)]
    spent = found[0]["_facts"]["spent"]
    words = [
        f"{data}, {model}, at the stated epsilons: with the usual server step {_span(usual)}, with the quiet one "
        f"{_span(quiet)}; the first model has {_start(own[0])} and training without noise reaches "
        f"{_span([row for row in own if row['_facts']['noise'] == 'none'])}. {len(learnt)} of {len(found)} rows end "
        "better than the first model (95 %). Per-round epsilons 0.5 to 8 add up to "
        f"{_range(spent)} for a client that takes part most often."
    ]
    if not any(_near(row, own) for row in found):
        words.append(
            f"{data}, {model}: at the stated epsilons, under client-level DP, no row comes half way from the first "
            "model to what training without noise reaches: utility like the paper's cannot be had there."
        )
    return words


def _implied(data: str, model: str, own: Rows) -> list[str]:
    found = [row for row in own if row["_facts"]["noise"] == "cosine"]
    if not found:
        return []
    facts = found[0]["_facts"]
    return [
        f"{data}, {model}, with as little noise as leaves the cosine {facts['cosine']:g} of the paper's Table 1: "
        f"{_span(found)}; the true epsilon of one round is {_range(facts['epsilons'])} by tier, "
        f"{_range(facts['spent'])} for a client that takes part most often."
    ]


def _better(row: Mapping[str, Any]) -> bool:
    """Whether the whole interval is better than the first model, seed by seed, with no run lost."""
    moved = row["_moved"]
    if moved["mean"] is None or moved["lost"]:
        return False
    return bool(moved["high"] < 0 if row["_facts"]["forecast"] else moved["low"] > 0)


def _near(row: Mapping[str, Any], own: Rows) -> bool:
    """Whether a row comes more than half way from the first model to training without noise under its rule."""
    clean = next(o for o in own if o["_facts"]["noise"] == "none" and o["aggregator"] == row["aggregator"])
    if row["_cell"]["mean"] is None or clean["_cell"]["mean"] is None:
        return False
    start, end = row["_start"]["mean"], clean["_cell"]["mean"]
    return bool((row["_cell"]["mean"] - start) / (end - start) > 0.5)


def _start(row: Mapping[str, Any]) -> str:
    times, places = (1, 3) if row["_facts"]["forecast"] else (100, 1)
    return f"{times * row['_start']['mean']:.{places}f}"


def _span(found: Rows) -> str:
    """The least and the largest mean of some rows."""
    times, places = (1, 3) if found and found[0]["_facts"]["forecast"] else (100, 1)
    means = [times * row["_cell"]["mean"] for row in found if row["_cell"]["mean"] is not None]
    lost = sum(row["_cell"]["lost"] for row in found)
    words = f"{min(means):.{places}f} to {max(means):.{places}f}" if means else "nothing"
    return words + (f" ({lost} runs lost)" if lost else "")


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}" if values else "none"
