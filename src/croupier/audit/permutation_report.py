"""What the question of permutations found, over runs: tables with intervals, and the sentences that follow from them.

Beside scores and verdicts, which all questions have in common, a report shows these for the description's own protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from croupier.audit.permutation_words import THREAT, interval, name_of, notes, sentences, verdict
from croupier.audit.permuted_run import LIES
from croupier.core.intervals import over_runs, smooth

# Measures that are shares of one.
SHARES = ("absolute", "relative", "accuracy", "places", "neighbours")


def over_all_runs(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What to show of one account for each run: sentences, tables and pictures; and the `numbers` behind them."""
    orders = [_order(parts) for parts in zip(*(one["orders"] for one in found), strict=True)]
    own = orders[0]
    layout = _layout([order["layout"] for order in orders])
    lies, strips = own["tampered"], _pictures(orders, layout)
    numbers = [
        {key: value for key, value in order.items() if key not in ("layout", "pictures", "tampered")}
        for order in orders
    ]  # fmt: skip
    laid = layout and {key: value for key, value in layout.items() if key != "shown"}
    return {
        "sentences": [verdict(orders, layout), THREAT, *sentences(orders, layout), *notes(own["rounds"], len(found))],
        "tables": [*_groups(orders), *_read(orders), *_laid(layout), *_broken(lies)],
        "pictures": strips,
        "numbers": {"orders": numbers, "layout": laid, "tampered": lies},
    }


def _order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One variant of the protocol over runs."""
    first = parts[0]
    told = {key: first[key] for key in ("first", "kept", "own", "rounds")}
    return told | {
        "name": name_of(first),
        "matched": sum(part["matched"] for part in parts),
        "groups": [_group(lines) for lines in zip(*(part["groups"] for part in parts), strict=True)],
        "inversion": [_inversion(lines) for lines in _together(parts)],
        # Of a run that could not be read, only where no other one could.
        "unread": "" if any(part["inversion"] for part in parts) else first["unread"],
        "tampered": [_tampered(lines) for lines in zip(*(part["tampered"] for part in parts), strict=True)],
        "layout": [part["layout"] for part in parts],
        "pictures": first["pictures"],
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


def _tampered(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    told = {"lie": lines[0]["lie"], "says": LIES[lines[0]["lie"]], "rule": lines[0]["rule"]}
    lost = [{"lost": line["honest"] - line["accuracy"]} for line in lines]
    counts = {
        key: None if lines[0][key] is None else sum(line[key] for line in lines)
        for key in ("left_out", "alone", "honest_alone")
    }
    return told | counts | {
        "runs": len(lines), "honest": _over(lines, "honest"), "accuracy": _over(lines, "accuracy"),
        "lost": _over(lost, "lost"),
    }  # fmt: skip


def _layout(parts: Sequence[Sequence[Mapping[str, Any] | None]]) -> dict[str, Any] | None:
    """Of the first variant in which pictures were laid out."""
    lines = next(([one for one in part if one] for part in parts if any(part)), None)
    if not lines:
        return None
    told = {key: lines[0][key] for key in ("pictures", "chance", "chance_neighbours", "shown")}
    measures = [line["measures"] for line in lines]
    return told | {key: _over(lines, key) for key in ("places", "neighbours")} | {
        key: _over(measures, key) for key in measures[0]
    }  # fmt: skip


def _over(lines: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    values = [line[key] for line in lines if line[key] is not None]
    return asdict((smooth if key in SHARES else over_runs)(values)) if len(values) > 1 else {"rate": None}


def _pictures(orders: Sequence[Mapping[str, Any]], layout: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Examples: what came out, by variant and by what the server knows."""
    said = {
        "true": "the record", "nothing": "read without a rule", "matched": "rule matched",
        "relative": "in the order of the first model", "told": "rule told by a client",
    }  # fmt: skip
    strips = [
        {"title": order["name"].capitalize(),
         "pictures": [one | {"says": said[one["says"]]} for one in order["pictures"]]}
        for order in orders
    ]  # fmt: skip
    if layout is not None:
        strips.append({"title": f"Laid out by public pictures, from {layout['pictures']} records of single steps",
                       "pictures": layout["shown"]})  # fmt: skip
    return [strip for strip in strips if strip["pictures"]]


KNOWN = {
    "prior": "nothing at all: the mean public record",
    "nothing": "uploads, read as if in order",
    "matched": "the rule, by weight matching",
    "relative": "one order for all rounds, by matching",
    "told": "the rule, told by a client",
}
Table = dict[str, Any]


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Table]:
    """A table for a report; none without rows."""
    return [{"title": title, "heads": list(heads), "rows": [list(row) for row in rows]}] if rows else []


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


def _laid(found: Mapping[str, Any] | None) -> list[Table]:
    """What public pictures make of the unknown order."""
    if found is None:
        return []
    return table(
        f"{found['pictures']} records of single steps in the order of the first model, laid out by public pictures",
        ("Measure", "Found", "By chance"),
        [("places found, %", interval(found["places"], 100), f"{100 * found['chance']:.1f}"),
         ("neighbours kept, %", interval(found["neighbours"], 100), f"{100 * found['chance_neighbours']:.1f}"),
         ("PSNR, dB", interval(found["psnr"]), ""), ("SSIM", interval(found["ssim"], 1, 3), "")],
    )  # fmt: skip


def _broken(lines: Sequence[Mapping[str, Any]]) -> list[Table]:
    """What one upload under another rule does, and whether it is noticed."""
    heads = ("One client's upload", "Averaged by", "Accuracy, nobody lies, %", "With it, %", "Points lost", "Noticed")
    return table("A client that breaks the rule", heads, [
        (one["says"], one["rule"], *(interval(one[key], 100) for key in ("honest", "accuracy", "lost")), noticed(one))
        for one in lines
    ])  # fmt: skip


def noticed(line: Mapping[str, Any]) -> str:
    """Whether and how a tampered upload was kept from the others."""
    runs = line["runs"]
    if line["left_out"]:
        return f"left out in {line['left_out']} of {runs}"
    if line["alone"] is None:
        return "no"
    return f"put apart in {line['alone']} of {runs}; honest, it was in {line['honest_alone']}"
