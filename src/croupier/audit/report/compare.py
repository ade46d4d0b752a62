"""Two reports of an audit side by side: what changed, and whether their numbers can be compared at all.

Audits are repeated, with another protocol or a newer version, and a changed number means something only if the setting
is the same and the intervals are apart. `croupier report compare` prints `lines` of what `compare` finds. `audit.arms`
uses `flat` to say in what two protocols differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from croupier.audit.report import read
from croupier.audit.report.read import KIND, SCHEMA, Asked, Lenient
from croupier.audit.report.words import NOTHING, Estimate, decimal, size
from croupier.errors import SpecError

# What is found, or says when and how it was: no part of the setting.
FOUND = {"kind", "schema", "verdict", "questions", "rows", "pictures", "notes", "command", "made"}
# What may differ and leave numbers comparable: other seeds, a newer version, another protocol under test.
FREE = ("name", "runs", "seeds", "version", "protocol")


def compare(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What changed from one report to another: settings, cells, costs, and what only one of them has.

    Raises: SpecError for what is no report, or one of another schema.
    """
    a, b = _known(then, "the first report"), _known(now, "the second report")
    was, is_now = (dict(flat("", {k: v for k, v in one.plain.items() if k not in FOUND})) for one in (a, b))
    # Reports of earlier versions do not say what their data were.
    told = bool(a.part("data").plain and b.part("data").plain)
    keys = [key for key in {**was, **is_now} if was.get(key) != is_now.get(key) and (told or key[:5] != "data.")]
    differ = [{"key": key, "then": was.get(key), "now": is_now.get(key)} for key in keys]
    old, new = ({_name(row): row for row in one.parts("rows")} for one in (a, b))
    return {
        "comparable": all(key.split(".")[0] in FREE for key in keys),
        "verdict": {"then": a.part("verdict").text("light"), "now": b.part("verdict").text("light")},
        "data": ("differ" if any(key.startswith("data.") for key in keys) else "the same") if told else "not told",
        "settings": differ,
        "cells": [cell for name in old if name in new for cell in _cells(name, old[name], new[name], a, b)],
        "costs": [cost for name in old if name in new for cost in _costs(name, old[name], new[name])],
        "only_then": [name for name in old if name not in new],
        "only_now": [name for name in new if name not in old],
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """What `compare` found, as sentences: the most important first, and whether the numbers can be compared."""
    said = [] if found["comparable"] else ["Not comparable: the settings differ, so numbers may differ for that alone."]
    said += [f"setting {one['key']}: {one['then']} -> {one['now']}" for one in found["settings"]]
    said += [_cell_line(one) for one in found["cells"]]
    said += [f"{one['defence']}, {one['cost']}: {_cost(one, 'then')} -> {_cost(one, 'now')}" for one in found["costs"]]
    said += [f"{name}: only in the first report" for name in found["only_then"]]
    said += [f"{name}: only in the second report" for name in found["only_now"]]
    return [_summary(found), *said] if said else ["Nothing changed."]


def _summary(found: Mapping[str, Any]) -> str:
    then, now = (read.MARKS.get(found["verdict"][when], read.NO_MARK)[1] for when in ("then", "now"))
    verdict = f"unchanged ({now})" if then == now else f"{then} -> {now}"
    cells, apart = found["cells"], sum(one["apart"] for one in found["cells"])
    return f"Verdict {verdict}; data {found['data']}; answers changed: {len(cells)}, with intervals apart: {apart}."


def _known(found: object, name: str) -> Lenient:
    if not isinstance(found, Mapping) or found.get("kind") != KIND:
        kind = found.get("kind") if isinstance(found, Mapping) else type(found).__name__
        raise SpecError(f"{name}: kind = {kind!r} is no audit report; give what croupier audit --json wrote")
    if found.get("schema") != SCHEMA:
        raise SpecError(f"{name}: schema = {found.get('schema')!r}, not {SCHEMA}; repeat that audit with this version")
    return Lenient(found)


def _name(row: Lenient) -> str:
    """Own protocols are the same row, whatever they are called."""
    return "your protocol" if row.plain.get("own") else row.text("defence")


def flat(head: str, value: object) -> Iterator[tuple[str, object]]:
    """Every value of nested tables, with its keys joined by dots."""
    if not isinstance(value, Mapping):
        yield head, value
    else:
        for key, inner in value.items():
            yield from flat(f"{head}.{key}" if head else str(key), inner)


def _cells(name: str, old: Lenient, new: Lenient, a: Lenient, b: Lenient) -> Iterator[dict[str, Any]]:
    units = {one.key: one.unit for one in read.questions(a)}
    for question in read.questions(b):
        then, now = (row.part("questions").part(question.key) for row in (old, new))
        gains = then.part("gain").rate(), now.part("gain").rate()
        statuses = read.status(then), read.status(now)
        same_unit = units.get(question.key, question.unit) == question.unit
        if gains[0] == gains[1] and statuses[0] == statuses[1] and same_unit:
            continue
        yield {
            "defence": name, "question": question.key, "unit": question.unit, "same_unit": same_unit,
            "then": {"status": statuses[0], "gain": then.part("gain").plain},
            "now": {"status": statuses[1], "gain": now.part("gain").plain}, "apart": _apart(*gains),
        }  # fmt: skip


def _apart(one: Estimate | None, other: Estimate | None) -> bool:
    """Whether two intervals do not overlap, so that the difference is hardly chance."""
    if not (one and one.ends and other and other.ends):
        return False
    return one.ends[1] < other.ends[0] or other.ends[1] < one.ends[0]


def _costs(name: str, old: Lenient, new: Lenient) -> Iterator[dict[str, Any]]:
    for cost in ("accuracy", "bytes_per_client"):
        then, now = old.number(cost), new.number(cost)
        if then != now:
            yield {"defence": name, "cost": cost, "then": then, "now": now}


def _cell_line(one: Mapping[str, Any]) -> str:
    question = Asked(one["question"], "", one["unit"])
    then, now = ((moment["status"], Lenient(moment["gain"]).rate()) for moment in (one["then"], one["now"]))
    status = f"; {then[0]} -> {now[0]}" if then[0] != now[0] else ""
    sure = "; the intervals are apart" if one["apart"] else ""
    if not one["same_unit"]:
        return f"{one['defence']}, {one['question']}: its unit changed, nothing to compare"
    gains = f"{question.gain(then[1])} -> {question.gain(now[1])} {question.points}".strip()
    return f"{one['defence']}, {one['question']}: {gains}{status}{sure}"


def _cost(one: Mapping[str, Any], when: str) -> str:
    if one[when] is None:
        return NOTHING
    return size(one[when]) if one["cost"] == "bytes_per_client" else decimal(one[when], 3)
