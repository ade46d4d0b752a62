"""What the question of permutations found, over runs: tables, and the sentences that follow from them.

Beside scores and verdicts, which all questions have in common, a report shows these for the description's own protocol
and its control. An order is one of these two: which share of places was recovered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier.audit.report.words import Table, interval, rate_of, table

THREAT = (
    "Here the server is curious and follows the protocol. It has its own views, the models that it handed out and the "
    "uploads that came back, and the public network; nothing of the rule."
)
# Measures that are shares of one.
SHARES = ("absolute", "relative")


def over_all_runs(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to show of one account for each run: sentences and tables; and the `numbers` behind them."""
    orders = [_order(parts) for parts in zip(*(one["orders"] for one in found), strict=True)]
    own, *others = orders
    said = [recovered(own), THREAT, *(f"Where {one['name']}: {recovered(one)}" for one in others)]
    return {
        "sentences": [*said, *notes(own["rounds"], len(found))], "tables": _groups(orders),
        "numbers": {"orders": orders},
    }  # fmt: skip


def _order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One variant of the protocol over runs."""
    first = parts[0]
    who = "the clients draw the first model" if first["first"] == "clients" else "the server knows the first model"
    return {key: first[key] for key in ("first", "kept", "own", "rounds")} | {
        "name": f"{who}, {'one rule for the epoch' if first['kept'] else 'a rule every round'}",
        "groups": [_group(lines) for lines in zip(*(part["groups"] for part in parts), strict=True)],
    }


def _group(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    size = lines[0]["size"]
    return {
        "group": lines[0]["group"], "size": size, "uploads": sum(line["uploads"] for line in lines),
        **{key: rate_of([line[key] for line in lines]) for key in SHARES},
        "least": min(line["least"] for line in lines), "chance": 1 / size,
    }  # fmt: skip


def _title(order: Mapping[str, Any]) -> str:
    name = str(order["name"])
    return f"{name[:1].upper()}{name[1:]}{' (the description)' if order['own'] else ''}"


def _groups(orders: Sequence[Mapping[str, Any]]) -> list[Table]:
    """How much of each permutation is recovered."""
    heads = ("Group", "Places", "Plain order, %", "Between rounds, %", "Worst upload, %", "Chance, %", "Uploads")
    return [
        each
        for order in orders
        for each in table(f"Places recovered. {_title(order)}", heads, [
            (one["group"], str(one["size"]), interval(one["absolute"], 100), interval(one["relative"], 100),
             f"{100 * one['least']:.1f}", f"{100 * one['chance']:.1f}", str(one["uploads"]))
            for one in order["groups"]
        ])
    ]  # fmt: skip


def recovered(order: Mapping[str, Any]) -> str:
    """What a permutation is worth: which places matching recovers."""
    groups = order["groups"]
    places = sum(group["size"] for group in groups)
    plain, between = (
        f"{sum(group[key]['rate'] * group['size'] for group in groups) / places:.1%}" for key in SHARES
    )  # fmt: skip
    chance = f"a random order recovers {len(groups) / places:.1%}"
    if order["first"] == "clients":
        said = (
            f"Obfuscation, not encryption: by matching weights the server links {between} of the {places} permuted "
            f"places of all rounds, and brings {plain} into plain order ({chance}). What stays hidden is the one order "
            "of the first model, until one client tells the rule."
        )
    else:
        whole = all(group["absolute"]["low"] >= 0.99 for group in groups)
        said = f"Weight matching recovers {plain} of the {places} permuted places; {chance}. " + (
            "Obfuscation, not encryption: nothing that depends on the rule survives, and the server holds updates in "
            "plain order, as where nothing defends."
            if whole
            else "That it failed in some groups is no proof that no attack can."
        )
    return f"{said} For confidentiality from the server use sum servers, which make the permutation unnecessary."


def notes(trained: int, runs: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"The description's own pipeline, agreement and clients are run for {trained} rounds, and once more with the "
        "first model from elsewhere. Rules and records are known to the scorer alone.",
        "Recovered: the share of a group's places that weight matching has right, from plain order, and between rounds "
        "from the order of the first model that was handed out. Chance is a random order's, 1 over the size. Means "
        f"over uploads, with 95 % intervals over {runs} runs; an interval of no width says that all runs agree, and no "
        "more.",
        "What records then look like, what public pictures make of the unknown order, and what a client does that "
        "breaks the rule: croupier bench permutation.",
    ]
