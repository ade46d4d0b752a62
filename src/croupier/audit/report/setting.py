"""The last section: everything that was set, so that the audit can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from croupier.audit.report.facts import part, several, text
from croupier.audit.report.words import Html, number, percent, tag

# Shown elsewhere on the page, or in a block of their own.
ELSEWHERE = {"kind", "made", "name", "command", "threat", "rows", "notes", "task", "federation", "chance", "shadow"}
NAMES = {
    "clients": "Clients",
    "cohort": "Clients in a round",
    "rounds": "Rounds",
    "runs": "Independent runs",
    "seeds": "Seeds",
    "shadow_noise": "Kind of shadow set",
    "records_per_client": "Records asked about, per client",
    "version": "Croupier version",
}


def section(findings: Mapping[str, Any]) -> Html:
    """Task, federation, adversary and notes."""
    parts = [
        *_block("The task", [(str(key), words(value)) for key, value in part(findings.get("task")).items()]),
        *_block(
            "The federation", [(str(key), words(value)) for key, value in part(findings.get("federation")).items()]
        ),
        *_block("The audit", _audit(findings)),
        *_notes(several(findings.get("notes"))),
    ]
    parts = parts or [tag("p", "The findings name no setting.")]
    title = tag("h2", "The setting", id="setting-title")
    return tag("section", title, *parts, aria_labelledby="setting-title", class_="setting")


def words(value: object) -> str:
    """A described part in a line: what is used first, then its keys."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        rest = [f"{key} {words(inner)}" for key, inner in value.items() if key != "use"]
        return ", ".join([text(value["use"]), *rest] if "use" in value else rest) or "empty"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " by ".join(words(inner) for inner in value) or "none"
    return str(value)


def _audit(findings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The adversary and the runs; a key that this page does not know is shown under its own name."""
    chance, shadow = number(findings.get("chance")), number(findings.get("shadow"))
    known = [
        ("Shadow share", "" if shadow is None else f"{percent(shadow)} of each client's records"),
        ("1/n", "" if chance is None else percent(chance)),
    ]
    rest = {key: value for key, value in findings.items() if key not in ELSEWHERE and value is not None}
    seeds = {
        key: ", ".join(map(words, value)) if key == "seeds" and several(value) else words(value)
        for key, value in rest.items()
    }
    return [pair for pair in known if pair[1]] + [(NAMES.get(key, str(key)), said) for key, said in seeds.items()]


def _block(title: str, pairs: Sequence[tuple[str, str]]) -> list[Html]:
    if not pairs:
        return []
    entries = [tag("div", tag("dt", term), tag("dd", said)) for term, said in pairs]
    return [tag("h3", title), tag("dl", *entries, class_="facts")]


def _notes(notes: Sequence[Any]) -> list[Html]:
    return [tag("h3", "Notes"), tag("ul", *(tag("li", text(note)) for note in notes))] if notes else []
