"""The sentences of the question of permutations: what the server recovers, what survives, how numbers are to be read.

Shown beside the tables of `audit.permutation_report`, whose numbers these are: one map of plain values for each variant
of the protocol that was played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from croupier.audit.single import RATE

THREAT = (
    "Here the server is curious and follows the protocol. It has its own views, the models that it handed out and the "
    "uploads that came back, and the public network; nothing of the rule."
)
FAILED = (
    "Control failed: even in plain order the search finds records no better than the mean public one, so that the "
    "numbers of inversion say nothing about the permutation here."
)

Knows = Literal["order", "nothing", "matched", "told", "relative"]
KNOWS: Mapping[Knows, str] = {
    "order": "uploads come in plain order",
    "nothing": "uploads are permuted, and are read as if they were not",
    "matched": "uploads are permuted; the rule is recovered by weight matching",
    "told": "uploads are permuted; a client told the server the rule",
    "relative": "the clients drew the first model, so that the server never saw plain order; matching is relative",
}


def name_of(order: Mapping[str, Any]) -> str:
    """A variant of the protocol in words."""
    who = "the clients draw the first model" if order["first"] == "clients" else "the server knows the first model"
    return f"{who}, {'one rule for the epoch' if order['kept'] else 'a rule every round'}"


def interval(rate: Mapping[str, Any], times: float = 1, digits: int = 1) -> str:
    """A mean with its interval; nothing where there is none."""
    if rate["rate"] is None:
        return ""
    mean, low, high = (f"{times * rate[name]:.{digits}f}" for name in ("rate", "low", "high"))
    return f"{mean} ({low} to {high})"


def at(order: Mapping[str, Any], knows: str, read: str = "as it lies", moment: str = "first model") -> Any:
    """The measured line of a variant; None where fewer than two runs have it, which is no mean."""
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
            f" Public pictures then put back {interval(layout['places'], 100)} % of the pixels (by chance "
            f"{100 * layout['chance']:.1f}), from {layout['pictures']} records: {interval(layout['psnr'])} dB, and "
            "more from more."
        )
    return said


def sentences(orders: Sequence[Mapping[str, Any]], layout: Mapping[str, Any] | None) -> list[str]:
    """What survives, in each variant, and what was not tried."""
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
            out.append(f"Where {order['name']}: {' '.join(survives(order))}")
        else:
            out.append(" ".join(_clients(order, layout)))
    return out


def survives(order: Mapping[str, Any]) -> list[str]:
    """What a permutation is worth where plain order is known, by what is recovered absolutely."""
    groups, prior = order["groups"], at(order, "prior")
    whole = [group for group in groups if group["absolute"]["low"] >= 0.99]
    places = sum(group["size"] for group in groups)
    said = [
        f"Weight matching recovers {_mean(order, 'absolute'):.1%} of the {places} permuted places, at least 99 % in "
        f"{len(whole)} of {len(groups)} groups; a random order recovers {len(groups) / places:.1%}."
    ]
    known: tuple[Knows, ...] = ("nothing", "matched", "told") if prior else ()
    for knows in known:
        value = at(order, knows)["psnr"]["rate"]
        beside = f"{value - prior['psnr']['rate']:+.1f} dB against the mean public picture"
        said.append(f"Inversion when {KNOWS[knows]}: {value:.1f} dB, {beside}.")
    if len(whole) == len(groups):
        said.append("Weight permutation is obfuscation, not encryption: nothing that depends on the rule survives.")
    elif whole:
        kept = ", ".join(group["group"] for group in groups if group not in whole)
        said.append(f"Weight permutation is obfuscation, not encryption: only {kept} withstood this attack so far.")
    else:
        said.append("This attack did not recover the rule; that it failed here is no proof that none can.")
    return [*said, "For confidentiality from the server use sum servers, which make the permutation unnecessary."]


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
            f"{layout['chance_neighbours']:.1%}), {interval(layout['places'], 100)} % of pixels are where they belong "
            f"(by chance {layout['chance']:.1%}), and the pictures have {interval(layout['psnr'])} dB."
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
