"""The report as one HTML page that needs nothing else: no network, no font, and a script only to sort and to filter."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from croupier.audit.report import details, read
from croupier.audit.report.marks import Line, fold, mark, section, small, spread, stamp, table
from croupier.audit.report.read import Question, Told, capital, sentence, who
from croupier.audit.report.words import Html, Rate, bullets, date, joined, size, tag, terms

KEY = {
    "leak": "the whole interval lies above zero", "none-found": "no attack that was tried gains for sure",
    "proved": "what is seen is proved to tell nothing", "not-run": "not asked, or no attack that works",
}  # fmt: skip
GLOSSARY = {
    "Adversary": "A party, or several that put together what they see, trying to learn what they should not.",
    "What if": "Adversaries that the protocol's statement forbids to work together, tried all the same. They do not "
    "count towards the verdict; they show what is lost when that condition is broken.",
    "Prior": "What the same adversary gets right without looking, from what it knows anyway. What can be guessed "
    "anyway is no leak.",
    "Gain": "What looking adds to the prior. Shares are told in points: +7 points are 7 more of 100.",
    "Interval": "Where the true value lies in all likelihood. A leak is called one only where all of it is above zero.",
    "Control": "The same attack where nothing defends. One that fails there is a blunt tool: it scores nothing, and "
    "its silence proves nothing.",
    "No leak found": "The attacks that were tried found nothing. Others may; only “proved” rules them out.",
}


def render(findings: Mapping[str, Any]) -> str:
    """The whole page."""
    found = Told(findings)
    asked, name, script = read.questions(found), found.text("name") or "unnamed", _kept("report.js")
    sections = [
        ("verdict", "Verdict", card(found, asked)),
        ("compare", "Compare", _compared(found, asked)),
        ("pictures", "Pictures", details.pictures(found)),
        ("details", "Details", details.findings(found, asked)),
        ("costs", "Costs", details.costs(found)),
        ("setting", "How it was audited", _setting(found)),
        ("glossary", "Glossary", section("glossary", "What the words mean", terms(GLOSSARY.items()))),
    ]
    body = tag(
        "body",
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        _top(found, name),
        tag("nav", *(tag("a", said, href=f"#{key}") for key, said, part in sections if part), aria_label="Sections"),
        tag("main", *(inside for *_, inside in sections)),
        tag("footer", f"Made by Croupier {found.text('version')}. This page holds all it shows and loads nothing."),
        tag("script", Html(script)),
    )
    return f"<!doctype html>\n{tag('html', _head(name, script), body, lang='en')}\n"


def brief(findings: Mapping[str, Any]) -> str:
    """The card and the matrix alone, for a notebook: styled within their own place."""
    found = Told(findings)
    style = f"@scope {{ {_kept('report.css').replace(':root', ':scope')} }}"
    asked = read.questions(found)
    return tag("div", tag("style", Html(style)), card(found, asked), matrix(found, asked, linked=False))


def card(found: Told, asked: Sequence[Question]) -> Html:
    """The description's own protocol: its light, against whom, what to use, and the numbers in words."""
    verdict, own = found.part("verdict"), next(iter(found.parts("rows")), None)
    kind = verdict.text("light")
    against = [
        tag("li", tag("b", capital(who(one.text("adversary")))), mark(one.text("light")), small(one.text("sentence")))
        for one in verdict.parts("against")
    ]
    asks = [_asked(one, own.part("questions").part(one.key)) for one in asked] if own else []
    whom = [tag("div", tag("h3", "Against whom?"), tag("ul", *against))] if against else []
    return section(
        "verdict",
        capital(read.title(own)) if own else "No protocol was audited",
        tag("p", mark(kind), class_="light"),
        tag("div", *whom, *_recommended(found), class_="columns"),
        *([tag("h3", "What was asked, and what came out"), tag("dl", *asks)] if asks else []),
        class_=f"card {kind}" if kind in ("red", "amber", "green") else "card",
    )


def _recommended(found: Told) -> list[Html]:
    """What to use, and what it costs: beside your protocol, and in its own row."""
    one = found.part("verdict").part("recommend")
    row = next((row for row in found.parts("rows") if row.text("defence") == one.text("defence")), None)
    said = [tag("p", tag("b", capital(read.title(row))), class_="use")] if row else []
    said += [tag("p", each) for each in (one.text("sentence"), read.cost(found)) if each]
    if row:
        name, unit, rate = read.measured(row)
        that = f"{size(row.number('bytes_per_client'))} from each client in a round, {name} {unit.value(rate)}"
        said.append(small(f"That is {that}."))
    return [tag("div", tag("h3", "What should you use?"), *said)] if said else []


def _asked(question: Question, cell: Told) -> Html:
    gain, said = cell.part("gain").rate(), [one for one in (read.finding(cell), read.reason(cell)) if one]
    by = f"By {who(cell.text('adversary'))}: a gain of {question.gain(gain)} {question.points}".strip()
    number = tag("small", by, data_value=gain.rate) if gain else Html()
    lines = [tag("p", sentence(one)) for one in said]
    return tag("div", tag("dt", question.asks, stamp(cell)), tag("dd", *lines, number))


def matrix(found: Told, asked: Sequence[Question], linked: bool = True) -> Html:
    """Every defence and every question: what looking adds to the prior."""
    rows = found.parts("rows")
    # A question that could be asked of nobody has no column; its reason stands on the card.
    shown = [
        (index, one)
        for index, one in enumerate(asked)
        if any(read.status(row.part("questions").part(one.key)) != "not-run" for row in rows)
    ]
    heads = ["Defence", *(one.head for _, one in shown)]
    heads += [capital(read.measured(rows[0])[0]) if rows else "Accuracy", details.SENT]
    lines: list[Line] = []
    for at, row in enumerate(rows):
        bold = tag("b", capital(read.title(row)), class_="own" if row.plain.get("own") else None)
        name = joined([bold, mark(read.light(row, found.part("verdict")))])
        links = [f"#d{at}-{index}" if linked else "" for index, _ in shown]
        cells = [_cell(one, row.part("questions").part(one.key), to) for (_, one), to in zip(shown, links, strict=True)]
        (_, unit, good), sent = read.measured(row), row.number("bytes_per_client")
        model = joined([tag("b", unit.value(Rate(good.rate) if good else None)), small(unit.ends(good))])
        lines.append([(name, None), *cells, (model, good), (tag("b", size(sent)), sent)])
    caption = f"What looking adds to what could be guessed without it, with its {details.level(found)} interval. The "
    caption += "worst of the adversaries that the protocol allows for counts. The higher, the worse."
    return table(caption, heads, lines, class_="matrix")


def _cell(question: Question, cell: Told, link: str) -> tuple[Html, Rate | None]:
    gain = cell.part("gain").rate()
    bold, ends = spread(question, gain) if gain else (Html(), Html())
    inside = joined([bold, stamp(cell), ends])
    return tag("a", inside, href=link) if link else inside, gain


def _compared(found: Told, asked: Sequence[Question]) -> Html:
    search, box = Html('<input type="search" autocomplete="off">'), Html('<input type="checkbox">')
    inside = [tag("label", "Find a defence ", search), tag("label", box, " only what leaks"), tag("p", role="status")]
    key = [tag("li", mark(kind), f": {said}") for kind, said in KEY.items()]
    controls = tag("div", *inside, class_="controls", hidden="")
    shown = section("compare", "All defences compared", controls, matrix(found, asked), tag("ul", *key, class_="key"))
    return shown if found.parts("rows") else Html()


def _top(found: Told, name: str) -> Html:
    made, task = found.text("made"), found.part("task")
    counts = {"clients": "clients", "cohort": "in a round", "rounds": "rounds", "runs": "independent runs"}
    about = [", ".join(f"{found.text(key)} {word}" for key, word in counts.items() if found.text(key))]
    about += [f"{key} {used}" for key in ("data", "model") if (used := task.part(key).text("use") or task.text(key))]
    when = [tag("time", date(made), datetime=made)] if made else []
    return tag(
        "header",
        tag("p", "Croupier audit of ", tag("b", name)),
        tag("h1", found.part("verdict").text("sentence") or "No verdict was given."),
        *(tag("p", one, class_="more") for one in found.part("verdict").texts("more")),
        tag("p", *when, "".join(f" · {one}" for one in about if one)),
    )


def _setting(found: Told) -> Html:
    again = {
        "Command": found.text("command"),
        "Version": found.text("version"),
        "Seeds": ", ".join(found.texts("seeds")),
    }
    tops = ("task", "federation", "protocol")
    described = {f"{top}.{key}": value for top in tops for key, value in found.part(top).plain.items()}
    notes = found.texts("notes")
    return section(
        "setting", "How it was audited",
        tag("h3", "The threat"), tag("p", found.text("threat") or "The report states no threat."),
        tag("h3", "How to repeat it"), terms((key, value) for key, value in again.items() if value),
        *([fold("The description, whole", terms(described.items()))] if described else []),
        *([tag("h3", "Notes"), bullets(notes)] if notes else []),
    )  # fmt: skip


def _head(name: str, script: str) -> Html:
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{known}'; img-src data:; base-uri 'none'"
    )
    return tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{name}: Croupier audit"),
        tag("style", Html(_kept("report.css"))),
    )


def _kept(name: str) -> str:
    return (resources.files("croupier.audit.report") / name).read_text("utf-8")
