"""What the question of permutations found, over runs: tables, pictures, and the sentences that follow from them.

Beside scores and verdicts, which all questions have in common, a report shows these for the description's own protocol
and its control. An order is one of these two: which share of places was recovered, and how like their records are what
was read, by what the server knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier.audit.report.words import Table, interval, rate_of, table
from croupier.audit.single import RATE
from croupier.core.intervals import over_runs, smooth

THREAT = (
    "Here the server is curious and follows the protocol. It has its own views, the models that it handed out and the "
    "uploads that came back, and the public network; nothing of the rule."
)
FAILED = (
    "Control failed: even in plain order the search finds records no better than the mean public one, so that the "
    "numbers of inversion say nothing about the permutation here."
)
KNOWN = {
    "prior": "nothing at all: the mean public record",
    "nothing": "uploads, read as if in order",
    "matched": "the rule, by weight matching",
    "relative": "one order for all rounds, by matching",
    "told": "the rule, told by a client",
}
# Measures that are shares of one.
SHARES = ("absolute", "relative")


def over_all_runs(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to show of one account for each run: sentences, tables and pictures; and the `numbers` behind them."""
    orders = [_order(parts) for parts in zip(*(one["orders"] for one in found), strict=True)]
    strips = [{"title": _title(order), "pictures": order.pop("pictures")} for order in orders]
    return {
        "sentences": [*sentences(orders), *notes(orders[0]["rounds"], len(found))],
        "tables": [*_groups(orders), *_read(orders)],
        "pictures": [strip for strip in strips if strip["pictures"]],
        "numbers": {"orders": orders},
    }


def _order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One variant of the protocol over runs."""
    first = parts[0]
    who = "the clients draw the first model" if first["first"] == "clients" else "the server knows the first model"
    return {key: first[key] for key in ("first", "kept", "own", "rounds")} | {
        "name": f"{who}, {'one rule for the epoch' if first['kept'] else 'a rule every round'}",
        "groups": [_group(lines) for lines in zip(*(part["groups"] for part in parts), strict=True)],
        "inversion": [_inversion(lines) for lines in _together(parts)],
        # Of a run that could not be read, only where no other one could.
        "unread": "" if any(part["inversion"] for part in parts) else first["unread"],
        "pictures": [one | {"says": KNOWN.get(one["says"], "the record")} for one in first["pictures"]],
    }


def _group(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    size = lines[0]["size"]
    return {
        "group": lines[0]["group"], "size": size, "uploads": sum(line["uploads"] for line in lines),
        "absolute": _over(lines, "absolute"), "relative": _over(lines, "relative"),
        "least": min(line["least"] for line in lines), "chance": 1 / size,
    }  # fmt: skip


def _together(parts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Lines of all runs that say the same; one in which nobody could be read lacks some."""
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in (line for part in parts for line in part["inversion"]):
        found.setdefault((line["moment"], line["knows"], line["read"]), []).append(line)
    return list(found.values())


def _inversion(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    told = {key: lines[0][key] for key in ("moment", "knows", "read")}
    measures = [key for key in lines[0] if key not in (*told, "records")]
    return told | {"records": sum(line["records"] for line in lines)} | {key: _over(lines, key) for key in measures}


def _over(lines: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    return rate_of([line[key] for line in lines], smooth if key in SHARES else over_runs)


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


def _read(orders: Sequence[Mapping[str, Any]]) -> list[Table]:
    """How like records of single steps are, by what the server knows."""
    used = [key for key in ("lpips",) if any(key in one for order in orders for one in order["inversion"])]
    heads = ("The server knows", "PSNR, dB", "SSIM", *(key.upper() for key in used), "Records")
    return [
        each
        for order in orders
        for moment in dict.fromkeys(one["moment"] for one in order["inversion"])
        for each in table(f"Records of single steps, from the {moment}. {_title(order)}", heads, [
            (KNOWN[one["knows"]] + (f", compared {one['read']}" if one["knows"] == "relative" else ""),
             interval(one["psnr"]), interval(one["ssim"], 1, 3), *(interval(one[key], 1, 3) for key in used),
             str(one["records"]))
            for one in order["inversion"] if one["moment"] == moment
        ])
    ]  # fmt: skip


def at(order: Mapping[str, Any], knows: str, read: str = "as it lies", moment: str = "first model") -> Any:
    """The measured line of a variant; None where fewer than two runs have it, which is no mean."""
    wanted = (knows, read, moment)
    lines = [one for one in order["inversion"] if (one["knows"], one["read"], one["moment"]) == wanted]
    return next((one for one in lines if one["psnr"]["rate"] is not None), None)


def sentences(orders: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the server recovers of the description, then of its control, and what was not tried."""
    own = orders[0]
    told, prior = at(own, "told"), at(own, "prior")
    said = [recovered(own), THREAT, *(f"Where {one['name']}: {recovered(one)}" for one in orders[1:])]
    said += [f"Nothing was inverted: {own['unread']}."] if own["unread"] else []
    return said + ([FAILED] if told and told["psnr"]["rate"] <= prior["psnr"]["rate"] else [])


def recovered(order: Mapping[str, Any]) -> str:
    """What a permutation is worth: which places matching recovers, and what records then look like."""
    groups, prior = order["groups"], at(order, "prior")
    places = sum(group["size"] for group in groups)
    plain, between = (
        f"{sum(group[key]['rate'] * group['size'] for group in groups) / places:.1%}" for key in SHARES
    )  # fmt: skip
    chance = f"a random order recovers {len(groups) / places:.1%}"
    if order["first"] == "clients":
        read, how = at(order, "relative", "in the unknown order"), "in one unknown order"
        said = (
            f"Obfuscation, not encryption: by matching weights the server links {between} of the {places} permuted "
            f"places of all rounds, and brings {plain} into plain order ({chance}). What stays hidden is the one order "
            "of the first model, until one client tells the rule."
        )
    else:
        read, how = at(order, "matched"), "in plain order"
        whole = all(group["absolute"]["low"] >= 0.99 for group in groups)
        said = f"Weight matching recovers {plain} of the {places} permuted places; {chance}. " + (
            "Obfuscation, not encryption: nothing that depends on the rule survives."
            if whole
            else "That it failed in some groups is no proof that no attack can."
        )
    if read and prior:
        said += (
            f" Records of single steps come out at {read['psnr']['rate']:.1f} dB {how}; the mean public record, which "
            f"needs no upload, has {prior['psnr']['rate']:.1f}."
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
        f"Records: in one more round everybody takes a single step of SGD (rate {RATE:g}) on one record of its own. "
        "That is the worst case: uploads of several epochs tell far less of a single record. PSNR is at most 100 dB.",
        "What public pictures make of the unknown order, and what a client does that breaks the rule: croupier bench "
        "permutation.",
    ]
