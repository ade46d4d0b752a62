"""What a server makes of permuted uploads: a page of its own, and a part of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier.audit.report.page import document, masthead, section
from croupier.audit.report.tables import table
from croupier.audit.report.words import NOTHING, Html, bullets, decimal, joined, tag, terms

GROUPS = ("Group", "Places", "Recovered, absolute", "Between rounds", "Worst upload", "Chance", "Uploads")
READ = ("What the server knows", "PSNR, dB", "SSIM", "Records")
LAID = ("Measure", "Found", "By chance")
BROKEN = ("One client's upload", "Accuracy, nobody lies", "With it", "Points lost", "Noticed")
KNOWN = {
    "prior": "nothing at all: the mean public record",
    "order": "uploads are in plain order",
    "nothing": "uploads, read as if in order",
    "matched": "the rule, by weight matching",
    "relative": "one order for all rounds, by matching",
    "told": "the rule, told by a client",
}


def render(findings: Mapping[str, Any]) -> str:
    """The whole page."""
    name, secret = str(findings["name"]), findings["confidentiality"]
    counted = (
        f"{findings['clients']} clients, {findings['cohort']} a round, up to {findings['rounds']} rounds in each "
        f"setting, {findings['runs']} runs; the server is curious and follows the protocol."
    )
    answers = (tag("p", str(said), class_="answer") for said in findings["verdict"])
    return document(
        name,
        findings,
        masthead("Croupier secrecy audit", name, findings, *answers, tag("p", counted)),
        *sections(secret),
        section("setting", "Setting", _facts(findings), tag("h3", "Notes"), bullets(findings["notes"])),
        pictures=True,
    )


def _facts(findings: Mapping[str, Any]) -> Html:
    counts = [(key, findings[key]) for key in ("clients", "cohort", "rounds", "runs")]
    return terms([*counts, *findings["task"].items(), *findings["protocol"].items()])


def sections(found: Mapping[str, Any]) -> list[Html]:
    """Recovered orders, inverted records, pictures, tampered uploads."""
    parts = [
        section(
            "secrecy",
            "What does the server learn?",
            tag("p", str(found["threat"])),
            bullets(found["says"]),
        )
    ]
    if found["hidden"]:
        parts.append(section("matching", "How much of each permutation is recovered?", groups(found["orders"])))
    if any(order["inversion"] for order in found["orders"]):
        parts.append(section("inversion", "What do single steps give away?", inversion(found["orders"]),
                             *layout(found["layout"]), *strips(found["pictures"])))  # fmt: skip
    if found["tampered"]:
        parts.append(section("tampered", "A client that breaks the rule", tampered(found["tampered"])))
    return parts


def groups(orders: Sequence[Mapping[str, Any]]) -> Html:
    """Recovered shares of every group, in every order of things."""
    caption = (
        "Per cent of a group's places, with 95 % intervals over runs. Absolute: the plain place of a unit or an input. "
        "Between rounds: its place in the first model that was handed out."
    )
    return table(
        "numbers", caption, GROUPS, [(_title(one), [_group(line) for line in one["groups"]]) for one in orders]
    )


def _title(order: Mapping[str, Any]) -> str:
    name = str(order["name"])
    return f"{name[:1].upper()}{name[1:]}{' (the description)' if order['own'] else ''}"


def _group(line: Mapping[str, Any]) -> list[Html]:
    return [
        joined([str(line["group"])]), joined([str(line["size"])]), rate(line["absolute"], 100),
        rate(line["relative"], 100), joined([decimal(100 * line["least"])]),
        joined([decimal(100 * line["chance"])]), joined([str(line["uploads"])]),
    ]  # fmt: skip


def inversion(orders: Sequence[Mapping[str, Any]]) -> Html:
    """How like inverted records are, by what the server knows."""
    caption = "Means with 95 % intervals over runs. Higher: more is given away; below the prior nothing is."
    used = [key for key in ("lpips",) if any(key in one for order in orders for one in order["inversion"])]
    heads = (*READ[:3], *(key.upper() for key in used), READ[3])
    parts = [
        (f"{_title(order)}: {moment}", [_read(one, used) for one in order["inversion"] if one["moment"] == moment])
        for order in orders
        for moment in dict.fromkeys(one["moment"] for one in order["inversion"])
    ]
    return table("numbers", caption, heads, parts)


def _read(one: Mapping[str, Any], used: Sequence[str]) -> list[Html]:
    how = f", compared {one['read']}" if one["knows"] == "relative" else ""
    cells = [rate(one["psnr"], 1, 1), rate(one["ssim"], 1, 3), *(rate(one[key], 1, 3) for key in used)]
    return [joined([KNOWN[one["knows"]] + how]), *cells, joined([str(one["records"])])]


def layout(found: Mapping[str, Any] | None) -> list[Html]:
    """What public pictures make of the unknown order."""
    if found is None:
        return []
    lines = [
        [joined(["places found, %"]), rate(found["places"], 100), joined([decimal(100 * found["chance"])])],
        [joined(["neighbours kept, %"]), rate(found["neighbours"], 100),
         joined([decimal(100 * found["chance_neighbours"])])],
        [joined(["PSNR, dB"]), rate(found["psnr"], 1), joined([NOTHING])],
        [joined(["SSIM"]), rate(found["ssim"], 1, 3), joined([NOTHING])],
    ]  # fmt: skip
    said = f"{found['pictures']} records of single steps in the order of the first model, laid out by public pictures."
    return [tag("h3", "The unknown order, undone"), table("numbers", said, LAID, [("By co-occurrence", lines)])]


def strips(found: Sequence[Mapping[str, Any]]) -> list[Html]:
    """Example pictures in a row under a title."""
    return [
        tag("figure", tag("div", *(_picture(one) for one in strip["pictures"]), class_="strip"),
            tag("figcaption", f"{strip['title']}. First run, first record."), class_="pictures")
        for strip in found
    ]  # fmt: skip


def _picture(one: Mapping[str, Any]) -> Html:
    said = str(one["says"])
    drawn = Html(f'<img src="data:image/png;base64,{one["png"]}" width="84" height="84" alt="">')
    return tag("div", drawn, tag("span", said))


def tampered(lines: Sequence[Mapping[str, Any]]) -> Html:
    """What one upload under another rule does, and whether it is noticed."""
    caption = (
        "One more round with one such client. Accuracy of the models that the other clients of the round are handed, "
        "per cent, with 95 % intervals over runs."
    )
    by: dict[str, list[list[Html]]] = {}
    for line in lines:
        cells = [joined([str(line["says"])]), *(rate(line[key], 100) for key in ("honest", "accuracy", "lost"))]
        by.setdefault(str(line["rule"]).capitalize(), []).append([*cells, joined([noticed(line)])])
    return table("numbers", caption, BROKEN, list(by.items()))


def noticed(line: Mapping[str, Any]) -> str:
    """Whether and how a tampered upload was kept from the others."""
    runs = line["runs"]
    if line["left_out"]:
        return f"left out in {line['left_out']} of {runs}"
    if line["alone"] is None:
        return "no"
    return f"put apart in {line['alone']} of {runs}; honest, it was in {line['honest_alone']}"


def rate(found: Mapping[str, Any] | None, scale: float, digits: int = 1) -> Html:
    """A mean with its interval below."""
    if found is None or found["rate"] is None:
        return joined([NOTHING])
    ends = f"{decimal(scale * found['low'], digits)} to {decimal(scale * found['high'], digits)}"
    return joined([decimal(scale * found["rate"], digits), tag("small", ends)])
