"""The report as CSV for a spreadsheet, and as Markdown for a text.

The CSV has the numbers of every attack, a line for each; the Markdown has the verdict, the own protocol's findings and
the matrix. `audit.report.result` (`Report.csv`, `Report.markdown`) calls both; `croupier audit` writes them beside the
page.
"""

from __future__ import annotations

import csv as tables
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from croupier.audit.report import read
from croupier.audit.report.read import FORBIDDEN, MARKS, NO_MARK, Asked, Lenient
from croupier.audit.report.words import capital, sentence, size, who

RATES = ("value", "gain", "gain_together", "control")
COLUMNS = (
    "defence", "own", "question", "unit", "status", "why", "adversary", "forbidden", "attack", "title", "scored",
    "not_run", "prior", *(f"{name}{end}" for name in RATES for end in ("", "_low", "_high")), "control_passed",
    "by_round", "accuracy", "bytes_per_client", "seconds_per_round",
)  # fmt: skip


def csv(findings: Mapping[str, Any]) -> str:
    """One line for each defence, question, adversary and attack; what is not known is empty."""
    file = io.StringIO()
    writer = tables.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _safe(value) for key, value in line.items()} for line in _lines(Lenient(findings)))
    return file.getvalue()


def _lines(found: Lenient) -> Iterator[dict[str, object]]:
    for row in found.parts("rows"):
        costs = {key: row.number(key) for key in ("accuracy", "bytes_per_client", "seconds_per_round")}
        head = {"defence": row.text("defence"), "own": bool(row.plain.get("own")), **costs}
        for question, key, cell, name, attack in read.attacks(found, row):
            about = {"question": question.key, "unit": question.unit, "adversary": key, "why": read.reason(cell)}
            about |= {"status": read.status(cell), "forbidden": str(bool(cell.plain.get("forbidden")))}
            yield head | about | {"attack": name} | _attack(attack)


def _attack(one: Lenient) -> dict[str, object]:
    rates = {"value": one.rate("value"), **{name: one.part(name).rate() for name in RATES[1:]}}
    found: dict[str, object] = {key: one.text(key) for key in ("title", "scored", "not_run")}
    for name, rate in rates.items():
        found |= {name: rate.rate, f"{name}_low": rate.low, f"{name}_high": rate.high} if rate else {}
    rounds = " ".join(f"{moment.text('round')}:{moment.text('rate')}" for moment in one.parts("by_round"))
    passed = one.part("control").text("passed")
    return found | {"prior": one.number("prior"), "control_passed": passed, "by_round": rounds}


def _safe(value: object) -> object:
    """What a spreadsheet would take for a formula is text to it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def markdown(findings: Mapping[str, Any]) -> str:
    """The verdict, what was found of the own protocol, and the matrix."""
    found = Lenient(findings)
    asked, rows, verdict = read.questions(found), found.parts("rows"), found.part("verdict")
    lines = [f"# {_plain(verdict.text('sentence') or 'No verdict was given.')}", ""]
    lines += [f"{_plain(one)}\n" for one in verdict.texts("more")]
    lines += [f"Croupier audit of {_plain(found.text('name') or 'unnamed')}, {_plain(found.text('made'))}", ""]
    lines += [f"## {_plain(capital(read.title(rows[0])))}: {_mark(verdict.text('light'))}", ""] if rows else []
    for one in verdict.parts("against"):
        name = _plain(capital(who(one.text("adversary"))))
        lines.append(f"- **{name}**: {_mark(*read.mark_against(found, one))}. {_plain(one.text('sentence'))}")
    lines += ["", _plain(f"{verdict.part('recommend').text('sentence')} {read.cost(found)}".strip()), ""]
    for question in asked if rows else ():
        cell = rows[0].part("questions").part(question.key)
        said = [sentence(one) for one in (read.finding(cell), read.reason(cell)) if one] + _what_if(question, cell)
        lines.append(f"- **{_plain(question.asks)}** {_mark(*read.stamp(cell))}. {_plain(' '.join(said))}")
    absent = [f"- {_plain(sentence(one))}" for one in read.absent(found)]
    return "\n".join([*lines, "", *_matrix(found), "", *absent, ""])


def _matrix(found: Lenient) -> list[str]:
    asked, rows = read.questions(found), found.parts("rows")
    heads = ["Defence", *(one.head for one in asked), read.measured(rows[0])[0] if rows else "", "sent in a round"]
    lines = [[_plain(head) for head in heads], ["---"] * len(heads)]
    for row in rows:
        cells = [(one, row.part("questions").part(one.key)) for one in asked]
        said = [f"{_mark(*read.stamp(cell))} {_gain(one, cell)}".strip() for one, cell in cells]
        _, unit, good = read.measured(row)
        head = _plain("; ".join([read.title(row), *read.remarks(found, row)]))
        lines.append([head, *said, unit.value(good), size(row.number("bytes_per_client"))])
    return [f"| {' | '.join(line)} |" for line in lines]


def _gain(question: Asked, cell: Lenient) -> str:
    gain = cell.part("gain").rate()
    return question.gain(gain) if gain else ""


def _what_if(question: Asked, cell: Lenient) -> list[str]:
    """What adversaries that the statement forbids would gain."""
    banned = [(who(key), _gain(question, one)) for key, one in read.adversaries(cell) if one.plain.get("forbidden")]
    return [f"({FORBIDDEN}; {name}: {gain} {question.points})" for name, gain in banned if gain]


def _mark(kind: str, word: str = "") -> str:
    shape, usual = MARKS.get(kind, NO_MARK)
    return f"{shape} {word or usual}"


def _plain(said: str) -> str:
    """Text that is no markup, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", re.sub(r"[\r\n]+", " ", said))
