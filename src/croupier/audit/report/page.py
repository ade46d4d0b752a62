"""The report of an audit as one HTML page that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from croupier.audit.report import facts, lines, plots, setting, tables
from croupier.audit.report.facts import Row, text
from croupier.audit.report.words import Html, date, full, full_points, joined, listing, percent, size, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
VERDICTS = {"yes": "Leaks: yes", "no": "Leaks: no", "unclear": "Leaks: unclear"}
# Shape tells them apart, not colour: a full disc, rings with a tick and a dash, a broken ring with a question mark.
SYMBOLS = {
    "yes": '<circle class="disc" cx="10" cy="10" r="9"/><path class="on-disc" d="M10 4.5v7M10 14v1.6"/>',
    "no": '<circle class="ring" cx="10" cy="10" r="8"/><path class="ring" d="M6 10.4l3 3 5-6"/>',
    "unjudged": '<circle class="ring" cx="10" cy="10" r="8"/><path class="ring" d="M6.5 10h7"/>',
    "unclear": '<circle class="ring" cx="10" cy="10" r="8" stroke-dasharray="3.2 2.4"/>'
    '<path class="ring" d="M7.6 8a2.4 2.4 0 1 1 3.6 2.1c-.9.5-1.2.9-1.2 1.7M10 13.8v1.2"/>',
}
READING = (
    (
        "Success",
        "The share of records for which the attack names the client they came from: a mean over rounds and runs.",
    ),
    (
        "Prior",
        "The success of the same knowledge without any view of the server: the best of several learners, chosen on the "
        "shadow sets alone. What can be guessed anyway is no leak.",
    ),
    ("1/n", "The success of a blind guess among the n clients of a round."),
    ("Leak", "Success minus prior, in percentage points. Above zero, looking at the server's view helped."),
    (
        "Interval",
        "95 %, over independent runs. An interval of a leak that holds zero shows neither a leak nor its absence.",
    ),
    (
        "Best round",
        "The round that suited the attack best, picked afterwards. It stands beside the mean and overstates.",
    ),
    (
        "Control",
        "The same attack on the first round of undefended updates. It must lie above 1/n there, or it scores nothing.",
    ),
)


def render(findings: Mapping[str, Any]) -> str:
    """The whole page."""
    rows = facts.rows(findings)
    name = text(findings.get("name")) or "unnamed task"
    top = masthead("Croupier audit", name, findings, tag("p", answer(rows), class_="answer"))
    return document(name, findings, top, *_sections(findings, rows))


def document(name: str, findings: Mapping[str, Any], top: Html, *sections: Html, pictures: bool = False) -> str:
    """A whole page: its masthead, its sections, and who made it."""
    body = tag("body", top, tag("main", *sections), _foot(findings))
    return f"<!doctype html>\n{tag('html', tag('head', *head(name, pictures=pictures)), body, lang='en')}\n"


def head(name: str, *, pictures: bool = False) -> list[Html]:
    """What a page's head holds: title, policy and style; pictures are allowed only as part of the page."""
    policy = POLICY + ("; img-src data:" if pictures else "")
    style = (resources.files("croupier.audit.report") / "style.css").read_text("utf-8")
    return [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{name}: Croupier audit"),
        tag("style", Html(style)),
    ]


def masthead(kicker: str, name: str, findings: Mapping[str, Any], *answers: Html) -> Html:
    """What stands above every report: its kind, its name, when and by what it was made, and its answer."""
    made, command = text(findings.get("made")), text(findings.get("command"))
    moment = [tag("p", tag("time", date(made), datetime=made), class_="date")] if made else []
    origin = [tag("p", "Made by ", tag("code", command), class_="command")] if command else []
    return tag(
        "header",
        tag("p", kicker, class_="kicker"),
        tag("h1", name),
        *moment,
        *answers,
        *origin,
    )


def answer(rows: Sequence[Row]) -> str:
    """What the verdicts say together."""
    if not rows:
        return "No defence was audited."
    judged = [(said, names) for said, names in _judged(rows) if names]
    count = "the one defence" if len(rows) == 1 else f"{{}} of {len(rows)} defences"
    parts = [said.format(count.format(len(names)), listing(names)) for said, names in judged]
    return " ".join([*parts, *_largest(rows), "An audit can find a leak; it cannot prove that there is none."])


def _judged(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The sentence for each verdict, and the defences that it is about."""
    by = {word: [row.name for row in rows if row.leaks == word] for word in VERDICTS}
    return [
        ("With {} the server's view tells more than could be guessed without it: {}.", by["yes"]),
        ("With {} no leak was found: {}.", by["no"]),
        ("With {} this audit cannot tell: {}.", by["unclear"]),
        ("No verdict is given for {}: {}.", [row.name for row in rows if row.leaks not in VERDICTS]),
    ]


def _largest(rows: Sequence[Row]) -> list[str]:
    found = [(attack.leak, row.name) for row in rows for attack in row.attacks if attack.scored and attack.leak]
    if not found:
        return []
    leak, name = max(found, key=lambda pair: pair[0].rate)
    return [f"The largest mean leak is {full_points(leak)}, under “{name}”."] if leak.rate > 0 else []


def _sections(findings: Mapping[str, Any], rows: Sequence[Row]) -> list[Html]:
    if not rows:
        return [_threat(findings), setting.section(findings)]
    members = [section("membership", "Membership inference", tables.membership(rows))]
    return [
        section("verdicts", "Verdict by defence", tag("div", *(_card(row) for row in rows), class_="cards")),
        _threat(findings),
        *_plots(rows),
        section("numbers", "All numbers", tables.numbers(rows)),
        *(members if any(row.membership for row in rows) else []),
        setting.section(findings),
    ]


def section(name: str, title: str, *inside: str) -> Html:
    """A section under its heading."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *inside, aria_labelledby=f"{name}-title", class_=name)


def _card(row: Row) -> Html:
    kind = row.leaks if row.leaks in VERDICTS else "unjudged"
    symbol = tag("svg", Html(SYMBOLS[kind]), width=20, height=20, aria_hidden="true", focusable="false")
    verdict = tag("p", symbol, VERDICTS.get(kind, "Not judged"), class_=f"verdict {kind}")
    learns = [tag("p", tag("span", "The server learns"), " ", row.learns, class_="learns")] if row.learns else []
    said = [tag("p", row.sentence)] if row.sentence else []
    return tag("article", tag("h3", row.name), verdict, *said, *learns, class_="card")


def _threat(findings: Mapping[str, Any]) -> Html:
    said = text(findings.get("threat")) or "The findings do not state a threat."
    reading = [tag("div", tag("dt", term), tag("dd", meaning)) for term, meaning in READING]
    how = joined([tag("h3", "How to read the numbers"), tag("dl", *reading, class_="reading")])
    return section("threat", "The threat", tag("p", said), how)


def _plots(rows: Sequence[Row]) -> list[Html]:
    """The plots for which there are numbers."""
    tried = [attack for row in rows for attack in (row.prior, *row.attacks) if attack]
    sent = [row.sent for row in rows if row.sent is not None]
    drawn = []
    if any(attack.rate for attack in tried):
        drawn.append(
            _figure("success", "How often is the right client named?", plots.success(rows), _say_success(rows))
        )
    if any(attack.leak for row in rows for attack in row.attacks):
        drawn.append(_figure("leak", "How much does looking add?", plots.leaks(rows), _say_leaks(rows)))
    if any(attack.rounds for attack in tried):
        drawn.append(_figure("rounds", "Round by round", lines.panels(rows), _say_rounds(rows)))
    if any(row.rounds for row in rows):
        drawn.append(_figure("accuracy", "What does the model lose?", lines.accuracy(rows), _say_accuracy(rows)))
    if sent:
        drawn.append(_figure("traffic", "What does it cost to send?", plots.traffic(rows), _say_traffic(rows)))
    return drawn


def _figure(name: str, title: str, plot: Html, said: Sequence[str]) -> Html:
    drawn = tag("div", plot, class_="plot", role="img", aria_labelledby=f"{name}-title {name}-gist")
    return section(name, title, tag("figure", drawn, tag("figcaption", " ".join(said), id=f"{name}-gist")))


def _say_success(rows: Sequence[Row]) -> list[str]:
    found = [
        f"{row.name}: {full(row.strongest.rate)}, prior {full(row.prior.rate if row.prior else None)}"
        for row in rows
        if row.strongest
    ]
    said = [f"Strongest scored attack on each defence: {'; '.join(found)}."] if found else ["No attack is scored."]
    chance = next((row.chance for row in rows if row.chance is not None), None)
    said += [f"Blind guessing (1/n) names {percent(chance)}."] if chance is not None else []
    return said + _past(plots.passes(plots.shares(rows), [attack.rate for row in rows for attack in row.attacks]))


def _past(any_past: bool) -> list[str]:
    return ["An arrow marks an interval that runs past the axis; the table has its ends."] if any_past else []


def _say_leaks(rows: Sequence[Row]) -> list[str]:
    best = [
        f"{row.name}: {full_points(max(found, key=lambda leak: leak.rate))}"
        for row in rows
        if (found := [attack.leak for attack in row.attacks if attack.scored and attack.leak])
    ]
    said = [f"Largest scored leak under each defence: {'; '.join(best)}."] if best else ["No attack is scored."]
    below = any(attack.leak and attack.leak.rate < 0 for row in rows for attack in row.attacks)
    said += ["Below zero, an attack does worse than the same knowledge without the view."] if below else []
    every = [attack.leak for row in rows for attack in row.attacks]
    return said + _past(plots.passes(plots.differences(rows), every))


def _say_rounds(rows: Sequence[Row]) -> list[str]:
    found = [
        f"{row.name}: mean {percent(attack.rate.rate)}"
        + (f", best round ({attack.best.round}) {percent(attack.best.rate.rate)}" if attack.best else "")
        for row in rows
        if (attack := row.strongest) and attack.rate
    ]
    return (
        [f"Strongest scored attack: {'; '.join(found)}."]
        if found
        else ["No attack is scored: only the prior is drawn."]
    )


def _say_accuracy(rows: Sequence[Row]) -> list[str]:
    found = [f"{row.name}: {full(row.accuracy)}" for row in rows if row.accuracy]
    same = [
        f"The lines of {listing(row.name for row in line)} coincide." for line in lines.together(rows) if len(line) > 1
    ]
    said = [f"Accuracy on the test records after the last round: {'; '.join(found)}."] if found else []
    return [*said, *same] or ["Accuracy on the test records, round by round."]


def _say_traffic(rows: Sequence[Row]) -> list[str]:
    found = [f"{row.name}: {size(row.sent)}" for row in rows if row.sent is not None]
    return [f"Bytes that each client sends in a round: {'; '.join(found)}."]


def _foot(findings: Mapping[str, Any]) -> Html:
    version = text(findings.get("version"))
    maker = f"Croupier {version}" if version else "Croupier"
    return tag(
        "footer", tag("p", f"Made by {maker}. This page holds all it shows: it loads nothing and runs no script.")
    )
