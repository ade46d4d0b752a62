"""The report as text: everything found is on the page, nothing found can break out of it."""

from __future__ import annotations

import copy
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.browser.findings import bare, hostile, usual

from croupier.audit.report.page import answer, render
from croupier.audit.report.plots import scale
from croupier.audit.report.words import Rate, date, decimal, full, full_points, interval, percent, size

EMPTY = {"meta"}


class Outline(HTMLParser):
    """The elements of a page with their attributes, and whether each is closed by its own tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.said.append(data)


def read(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def words(findings: dict[str, Any]) -> str:
    """All text of the page, without the style."""
    return " ".join(read(render(findings)).said)


def of(value: dict[str, Any]) -> Rate:
    return Rate(value["rate"], value["low"], value["high"])


@pytest.mark.parametrize("findings", [usual(), hostile(), *bare()])
def test_a_page_is_whole_and_runs_nothing(findings: dict[str, Any]) -> None:
    outline = read(render(findings))
    assert not {name for name, _ in outline.seen} & {"script", "link", "img", "iframe", "object", "a", "form", "base"}
    for _, attributes in outline.seen:
        assert not {key for key in attributes if key.startswith("on") or key in {"src", "href", "style"}}


def test_names_are_escaped() -> None:
    page = render(hostile())
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;/style&gt;&amp;amp;" in page
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_every_text_is_escaped() -> None:
    """Each text of the findings is made wicked in turn; the page keeps its elements."""
    plain = [name for name, _ in read(render(usual())).seen]
    for path in texts(usual()):
        findings = copy.deepcopy(usual())
        place: Any = findings
        for step in path[:-1]:
            place = place[step]
        # Verdicts choose a symbol by their word, so that another word is another drawing.
        if path[-1] == "leaks":
            continue
        place[path[-1]] = f"{place[path[-1]]}\"'><i>&"
        assert [name for name, _ in read(render(findings)).seen] == plain, path


def texts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the texts of nested values are."""
    if isinstance(value, str):
        return [path]
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in pairs for found in texts(inner, (*path, key))]


def test_every_number_is_on_the_page() -> None:
    found, said = usual(), words(usual())
    for row in found["rows"]:
        for attack in row["attacks"].values():
            assert attack["title"] in said
            rates = [of(attack), of(attack["best_round"])]
            wanted = [text for rate in rates for text in (percent(rate.rate), interval(rate))]
            wanted.append(f"round {attack['best_round']['round']}: {percent(attack['best_round']['rate'])}")
            assert [text for text in wanted if text not in said] == []
        for name, attack in row["attacks"].items():
            if name != "prior":
                wanted = [decimal(100 * attack["leak"]["rate"]), interval(of(attack["leak"])), percent(attack["prior"])]
                wanted += [percent(attack["control"]["rate"]), interval(of(attack["control"]))]
                assert [text for text in wanted if text not in said] == []
        for attack in row["membership"].values():
            wanted = [attack["title"], decimal(attack["rate"], 3), interval(of(attack), 1, 3)]
            wanted += [interval(of(attack["leak"]), 1, 3), full(of(attack["tpr_at_1_percent_fpr"]))]
            assert [text for text in wanted if text not in said] == []
        accuracy = Rate(row["accuracy"], row["accuracy_low"], row["accuracy_high"])
        wanted = [row["defence"], row["server_learns"], row["verdict"]["sentence"], full(accuracy)]
        assert [text for text in [*wanted, size(row["bytes_per_client"])] if text not in said] == []


def test_the_setting_is_on_the_page() -> None:
    found, said = usual() | {"something_new": 12345}, words(usual() | {"something_new": 12345})
    wanted = [found[key] for key in ("name", "command", "threat", "version", "shadow_noise")] + found["notes"]
    wanted += ["15 November 2026, 23:59 UTC", "3, 4, 5, 6, 7", "18", "digits, test 0.2", "mlp, hidden 64", "not set"]
    wanted += [f"{percent(0.05)} of each client's records", "something_new", "12345"]
    assert [text for text in wanted if text not in said] == []


def test_the_same_findings_give_the_same_page_and_stay_as_they_are() -> None:
    found = usual()
    assert render(found) == render(found)
    assert found == usual()


def test_what_failed_its_control_is_hollow_and_says_so() -> None:
    page, fine = render(usual()), usual()
    assert "failed its control, scores nothing" in page
    for attack in fine["rows"][2]["attacks"].values():
        attack["scored"] = attack["control"]["passed"] = True
    # The key has one hollow mark in each of two plots; one attack has one more in each.
    assert page.count('class="mark hollow"') == 4
    assert render(fine).count('class="mark hollow"') == 2


def test_what_failed_its_control_is_never_the_strongest() -> None:
    found = usual()
    found["rows"][2]["attacks"]["algorithm5"] |= {"rate": 0.99, "leak": {"rate": 0.47, "low": 0.4, "high": 0.5}}
    said = words(found)
    assert f"parameter shuffle: {full(of(found['rows'][2]['attacks']['algorithm5+prior']))}, prior" in said
    assert f"The largest mean leak is {full_points(of(found['rows'][0]['attacks']['both']['leak']))}" in said


def test_the_answer_counts_the_verdicts() -> None:
    said = words(usual())
    assert "With 2 of 4 defences the server's view tells more" in said
    assert "“none” and “model shuffle”" in said
    assert "With 1 of 4 defences no leak was found: “parameter shuffle”." in said
    assert "With 1 of 4 defences this audit cannot tell: “sum only”." in said
    assert answer([]) == "No defence was audited."
    lone = usual() | {"rows": usual()["rows"][:1]}
    assert "With the one defence the server's view tells more than could be guessed without it: “none”." in words(lone)


def test_lines_that_coincide_are_named() -> None:
    assert "The lines of “none”, “model shuffle” and “parameter shuffle” coincide." in words(usual())


def test_a_page_names_no_other_place() -> None:
    page = render(usual())
    assert not re.search(r"https?://|//[a-z]|url\(|@import", page)
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in unescape(page)
    assert "http://elsewhere.example" in words(usual() | {"name": "http://elsewhere.example"})


@pytest.mark.parametrize("findings", bare())
def test_what_is_missing_is_left_out(findings: dict[str, Any]) -> None:
    said = words(findings)
    assert "None" not in said
    assert "nan" not in said.lower().replace("unnamed", "")


def test_no_membership_no_table() -> None:
    found = usual()
    for row in found["rows"]:
        del row["membership"]
    assert "Membership inference" in words(usual())
    assert "Membership inference" not in words(found)


def test_an_interval_past_the_axis_is_said_and_kept() -> None:
    said = words(hostile())
    assert "An arrow marks an interval that runs past the axis" in said
    assert interval(Rate(1.0, 0.7, 1.3)) == "70.0 to 130.0"
    assert "70.0 to 130.0" in said
    assert "An arrow" not in words(usual())


def test_numbers_in_words() -> None:
    assert decimal(-0.04) == "0.0"
    assert decimal(-2.0) == "\N{MINUS SIGN}2.0"
    assert percent(None) == interval(None) == full(None) == size(None) == "\N{EN DASH}"
    assert [size(count).replace("\u202f", " ") for count in (0, 999, 19400, 4.2e6, 4.2e9)] == [
        "0 B", "999 B", "19.4 kB", "4.2 MB", "4.20 GB",
    ]  # fmt: skip
    assert date("2026-11-15T23:59:00+01:00") == "15 November 2026, 23:59 +0100"
    assert date("yesterday") == "yesterday"


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.0), (1.0, 1.0), (0.98, 1.0), (-0.43, 0.09), (0.0, 4.2e12)])
def test_an_axis_holds_its_values(values: tuple[float, float]) -> None:
    axis = scale(values)
    assert axis.low <= min(values) + 1e-9
    assert axis.high >= max(values) - 1e-9
    assert 2 <= len(axis.ticks) <= 8
    assert axis.ticks[-1] == pytest.approx(axis.high)
