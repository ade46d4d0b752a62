"""What hidden coordinates are worth, over runs: tables with intervals, and the sentences that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from croupier.audit.lies import LIES
from croupier.audit.permuted import KNOWS, Knows, survives
from croupier.audit.score import over_runs, smooth
from croupier.audit.single import RATE

THREAT = (
    "Here the server is curious and follows the protocol. It has its own views, the models that it handed out and the "
    "uploads that came back, and the public network; nothing of the rule."
)
FAILED = (
    "Control failed: even in plain order the search finds records no better than the mean public one, so that the "
    "numbers of inversion say nothing about the permutation here."
)

# Measures that are shares of one.
SHARES = ("absolute", "relative", "accuracy", "places", "neighbours")


def exposed(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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


def name_of(order: Mapping[str, Any]) -> str:
    """An order of things in words."""
    who = "the clients draw the first model" if order["first"] == "clients" else "the server knows the first model"
    return f"{who}, {'one rule for the epoch' if order['kept'] else 'a rule every round'}"


def _order(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One order of things over runs."""
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
    """Of the first order of things in which pictures were laid out."""
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
    """Examples: what came out, by order of things and by what the server knows."""
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


def at(order: Mapping[str, Any], knows: str, read: str = "as it lies", moment: str = "first model") -> Any:
    """The measured line of an order of things; None where fewer than two runs have it, which is no mean."""
    wanted = (knows, read, moment)
    lines = [one for one in order["inversion"] if (one["knows"], one["read"], one["moment"]) == wanted]
    return next((one for one in lines if one["psnr"]["rate"] is not None), None)


def _mean(order: Mapping[str, Any], key: str) -> float:
    places = sum(group["size"] for group in order["groups"])
    return float(sum(group[key]["rate"] * group["size"] for group in order["groups"]) / places)


def _percent(order: Mapping[str, Any], key: str) -> str:
    return f"{100 * _mean(order, key):.1f} %"


def verdict(orders: Sequence[Mapping[str, Any]], layout: Mapping[str, Any] | None) -> str:
    """What the server of the description reads, in a sentence or two."""
    own = orders[0]
    prior = at(own, "prior")
    beside = f"; the mean public record, which needs no upload, has {prior['psnr']['rate']:.1f} dB" if prior else ""
    chance = sum(1 for _ in own["groups"]) / sum(group["size"] for group in own["groups"])
    if own["first"] == "open":
        read = at(own, "matched")
        told = f" Records of single steps then come out at {read['psnr']['rate']:.1f} dB{beside}." if read else ""
        return (
            f"The server undoes the permutation: from its own views it recovers {_percent(own, 'absolute')} of the "
            f"permuted places (a random order {100 * chance:.1f} %).{told}"
        )
    read = at(own, "relative", "in the unknown order")
    said = (
        "Obfuscation, not encryption: by matching weights alone the server links the orders of all rounds, "
        f"{_percent(own, 'relative')} of the permuted places, and not plain order, {_percent(own, 'absolute')} (a "
        f"random order {100 * chance:.1f} %)."
    )
    said += (
        f" Records of single steps come out at {read['psnr']['rate']:.1f} dB in one unknown order{beside}."
        if read
        else ""
    )
    if read and layout is not None and layout["psnr"]["rate"] is not None:
        said += (
            f" Public pictures then put back {_span(layout['places'], 100)} % of the pixels (by chance "
            f"{100 * layout['chance']:.1f}), from {layout['pictures']} records: {_span(layout['psnr'])} dB, and "
            "more from more."
        )
    return said


def _span(rate: Mapping[str, Any], times: float = 1) -> str:
    """A rate with its interval, which is as wide as few runs make it."""
    return f"{times * rate['rate']:.1f} ({times * rate['low']:.1f} to {times * rate['high']:.1f})"


def sentences(orders: Sequence[Mapping[str, Any]], layout: Mapping[str, Any] | None) -> list[str]:
    """What survives, in each order of things, and what was not tried."""
    why = orders[0]["unread"]
    told, prior = at(orders[0], "told"), at(orders[0], "prior")
    out = _surviving(orders, layout) + ([f"Nothing was inverted: {why}."] if why else [])
    if told and told["psnr"]["rate"] <= prior["psnr"]["rate"]:
        out.append(FAILED)
    return out


def _surviving(orders: Sequence[Mapping[str, Any]], layout: Mapping[str, Any] | None) -> list[str]:
    out = []
    for order in orders:
        if order["kept"] and not order["own"]:
            out.append(_kept(order))
        elif order["first"] == "open":
            out.append(f"Where {order['name']}: {' '.join(_open(order))}")
        else:
            out.append(" ".join(_clients(order, layout)))
    return out


def _open(order: Mapping[str, Any]) -> list[str]:
    """What survives where plain order is known, by what is recovered absolutely."""
    groups = [
        {
            "group": one["group"], "size": one["size"], "recovered": one["absolute"]["rate"],
            "low": one["absolute"]["low"],
        }
        for one in order["groups"]
    ]  # fmt: skip
    prior, known = at(order, "prior"), ("nothing", "matched", "told")
    exposure: dict[Knows, float] = {name: at(order, name)["psnr"]["rate"] for name in known} if prior else {}  # type: ignore[misc]
    return list(survives(groups, exposure, prior["psnr"]["rate"] if prior else 0.0)["says"])


def _clients(order: Mapping[str, Any], layout: Mapping[str, Any] | None) -> list[str]:
    out = [
        f"Where {order['name']}: matching links {_percent(order, 'relative')} of the places of all rounds, and brings "
        f"{_percent(order, 'absolute')} of them into plain order. What matching leaves hidden is the one order of the "
        "first model, and with it which unit and which input is which."
    ]
    told, read, prior = at(order, "told"), at(order, "relative", "in the unknown order"), at(order, "prior")
    if told and read and prior:
        out.append(
            f"There single steps come out at {read['psnr']['rate']:.1f} dB in that order, and at "
            f"{told['psnr']['rate']:.1f} dB in plain order once one client tells the rule; the "
            f"mean public record has {prior['psnr']['rate']:.1f}."
        )
    if layout is not None and layout["neighbours"]["rate"] is not None:
        out.append(
            f"With {layout['pictures']} of them and public pictures to compare with, "
            f"{layout['neighbours']['rate']:.0%} of neighbouring pixels are neighbours again (by chance "
            f"{layout['chance_neighbours']:.1%}), {_span(layout['places'], 100)} % of pixels are where they belong (by "
            f"chance {layout['chance']:.1%}), and the pictures have {_span(layout['psnr'])} dB."
        )
    return out


def _kept(order: Mapping[str, Any]) -> str:
    count = "nothing had to be matched" if not order["matched"] else "one round's matching serves all"
    return f"Where {order['name']}: {count}, because frames say that all uploads are in one order."


def notes(trained: int, runs: int) -> list[str]:
    """How the numbers are to be read."""
    return [
        f"Confidentiality: the description's own pipeline, agreement and clients are run for {trained} rounds, and in "
        "each other setting. The server is curious and follows the protocol; it has its own views and the public "
        "network. Rules and records are known to the scorer alone.",
        "Recovered: the share of a group's places that weight matching has right. Absolute: from plain order. Between "
        "rounds: from the order of the first model that was handed out. Chance is a random order's, 1 over the size. "
        f"Means over uploads, with 95 % intervals over {runs} runs; an interval of no width says that all runs agree, "
        "and no more.",
        f"Inversion: in one more round everybody takes a single step of SGD (rate {RATE:g}) on one record of its own. "
        "That is the worst case: uploads of several epochs tell far less of a single record. "
        + "; ".join(f"{knows}: {says}" for knows, says in KNOWS.items())
        + ". PSNR is at most 100 dB.",
        "Laid out: the server has public records of the same kind in plain order, and as many single steps as are "
        "named; it compares how places vary together. Where a place never varies any order of it is as good, so that "
        "pictures can be whole though not all places are right.",
        "Tampered: in one more round one client, drawn at random, breaks the rule; measured is what the others of that "
        "round are handed next.",
    ]


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


def interval(rate: Mapping[str, Any], times: float = 1, digits: int = 1) -> str:
    """A mean with its interval; nothing where there is none."""
    if rate["rate"] is None:
        return ""
    mean, low, high = (f"{times * rate[name]:.{digits}f}" for name in ("rate", "low", "high"))
    return f"{mean} ({low} to {high})"


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
