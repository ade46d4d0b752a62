"""The page's second half: pictures, every adversary and attack, and what each defence costs and states."""

from __future__ import annotations

import re
from collections.abc import Sequence

from croupier.audit.report import read
from croupier.audit.report.marks import Axis, Line, axis, fold, named, plot, section, small, stamp, table
from croupier.audit.report.read import Question, Told, adversaries, capital, measured, sentence, title, who
from croupier.audit.report.words import NOTHING, Html, Rate, bullets, decimal, joined, number, size, tag, terms

SENT = "Sent by a client in a round"
PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]*={0,2}")


def level(found: Told) -> str:
    """How sure intervals are."""
    return f"{100 * (found.number('level') or 0.95):.3g} %"


def pictures(found: Told) -> Html:
    """Records beside what attacks made of them, defence by defence; the report's own and those among facts, once."""
    told: dict[tuple[str, str, str], tuple[Told, object]] = {}
    titles = {row.text("defence"): title(row) for row in found.parts("rows")}
    for one in found.parts("pictures"):
        told[one.text("defence"), one.text("adversary"), one.text("title")] = one, False
    for row in found.parts("rows"):
        seen = [pair for cell in row.named("questions").values() for pair in adversaries(cell)]
        for key, cell in seen:
            for one in cell.part("facts").parts("pictures"):
                told[row.text("defence"), key, one.text("title")] = one, cell.plain.get("forbidden")
    strips = [
        tag("figure", _caption(titles.get(defence, defence), named(key, forbidden), name), drawn)
        for (defence, key, name), (one, forbidden) in told.items()
        if (drawn := _strip(one))
    ]
    said = "Each record stands beside what an adversary made of what it saw. The closer they look, the worse."
    shown = [tag("p", said), tag("div", *strips, class_="strips")] if strips else []
    return section("pictures", "Records that were rebuilt", *shown)


def _caption(defence: str, adversary: Html, name: str) -> Html:
    return tag("figcaption", tag("b", capital(defence)), "seen by ", adversary, small(name))


def _strip(one: Told) -> Html:
    drawn = [
        tag("div", Html(f'<img src="data:image/png;base64,{each.text("png")}" alt="">'), each.text("says"))
        for each in one.parts("pictures")
        if PNG.fullmatch(each.text("png"))
    ]
    return tag("div", *drawn, class_="strip") if drawn else Html()


def findings(found: Told, asked: Sequence[Question]) -> Html:
    """Every defence, folded but for the first; a question's plots share one axis, so that defences compare."""
    rows = [(row, row.named("questions")) for row in found.parts("rows")]
    along = {}
    for one in asked:
        cells = [cell for _, told in rows for _, cell in adversaries(told.get(one.key, Told({})))]
        along[one.key] = axis(cell.part("gain").rate() for cell in cells)
    folds = []
    for at, (row, told) in enumerate(rows):
        each = enumerate((one, told.get(one.key, Told({}))) for one in asked)
        answers = [_answer(f"d{at}-{index}", one, cell, along[one.key], level(found)) for index, (one, cell) in each]
        folds.append(fold(title(row), *answers, open=None if at else "", class_="defence"))
    return section("details", "Everything that was tried", *folds) if folds and asked else Html()


def _answer(name: str, question: Question, cell: Told, along: Axis, sure: str) -> Html:
    seen = adversaries(cell)
    lines = [_attack(question, key, one, *attack) for key, one in seen for attack in one.named("attacks").items()]
    heads = ("Attack", "Adversary", "Measured", "Prior", f"Gain ({question.points})".replace(" ()", ""), "Control")
    caption = f"Every attack, with {sure} intervals. The control is the same attack where nothing defends."
    return tag(
        "section",
        tag("h3", question.asks, " ", stamp(cell), id=f"{name}-title"),
        *(tag("p", sentence(said)) for said in (read.finding(cell), read.reason(cell)) if said),
        plot(question, seen, along, sure),
        *(shown for key, one in seen for shown in _facts(key, one.part("facts"))),
        *([fold(f"All attacks ({len(lines)})", table(caption, heads, lines))] if lines else []),
        id=name, aria_labelledby=f"{name}-title", class_="answer",
    )  # fmt: skip


def _attack(question: Question, adversary: str, cell: Told, key: str, one: Told) -> Line:
    failed = "" if one.plain.get("scored") else "failed its control, scores nothing"
    aside = f"not run: {one.text('not_run')}" if one.text("not_run") else failed
    control, gain, together = one.part("control"), one.part("gain").rate(), one.part("gain_together").rate()
    passed = {"True": "passed: ", "False": "failed: "}.get(control.text("passed"), "")
    value, prior, proof = one.rate("value"), one.number("prior"), control.rate()
    every = small(f"for all attacks at once: {question.ends(together)}" if question.ends(together) else "")
    return [
        (joined([one.text("title") or key, small(aside)]), None),
        (named(adversary, cell.plain.get("forbidden")), None),
        (question.value(value), value),
        (question.value(None if prior is None else Rate(prior)), prior),
        (joined([question.gain(gain), every]), gain),
        (f"{passed}{question.value(proof)}" if proof else NOTHING, proof),
    ]


def _facts(adversary: str, facts: Told) -> list[Html]:
    """Sentences and tables as they are."""
    shown = [bullets(facts.texts("sentences"))] if facts.texts("sentences") else []
    for one in facts.parts("tables"):
        lines = [[_plain(value) for value in line] for line in one.several("rows") if isinstance(line, list) and line]
        shown.append(table(f"{one.text('title')} ({who(adversary)})", one.texts("heads"), lines))
    return shown


def _plain(value: object) -> tuple[str, float | None]:
    known = number(value)
    return (f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)), known


def costs(found: Told) -> Html:
    """What each defence costs, who must not work together, and what its statement says."""
    rows = found.parts("rows")
    if not rows:
        return Html()
    heads = ("Defence", capital(measured(rows[0])[0]), SENT, "Seconds a round", "Epsilon", "Must not collude")
    folds = [
        fold(f"What the statement of {title(row)} says", terms(row.part("statement").plain.items()))
        for row in rows
        if row.part("statement").plain
    ]
    caption = "Epsilon is the differential privacy that is proved, where any is; the less, the better."
    return section(
        "costs", "What each defence costs, and what it rests on", table(caption, heads, map(_cost, rows)), *folds
    )


def _cost(row: Told) -> Line:
    _, unit, rate = measured(row)
    rounds = [one.number("rate") for one in row.parts("accuracy_by_round")]
    each = ", ".join(unit.value(Rate(one)) for one in rounds if one is not None)
    sent, seconds = row.number("bytes_per_client"), row.number("seconds_per_round")
    apart = [
        " with ".join(map(str, pair)) for pair in row.several("must_not_collude") if isinstance(pair, list | tuple)
    ]
    return [
        (title(row), None),
        (joined([unit.value(rate), small(f"by round: {each}" if each else "")]), rate),
        (size(sent), sent),
        (NOTHING if seconds is None else decimal(seconds, 2), seconds),
        (row.text("epsilon") or "none", row.number("epsilon")),
        ("; ".join(apart) or "nobody is kept apart", None),
    ]
