"""The audit's page as text: its numbers are the report's, what is missing is missing, and nothing breaks out of it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.reports import WICKED, asked, bare, cell, hostile, report, silent
from tests.tiers import repeats

from croupier.audit.report.html import axis, brief, render
from croupier.audit.report.read import Asked, Lenient, absent, adversaries, light, questions, remarks, stamp
from croupier.audit.report.result import Report
from croupier.audit.report.text import markdown
from croupier.audit.report.words import Estimate, sentence, who

EMPTY = {"meta", "input", "img"}


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text in them; every tag is closed by its own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.said)

    def values(self, tag: str) -> list[float]:
        return [float(found["data-value"] or "") for name, found in self.seen if name == tag and "data-value" in found]


def gains(found: dict[str, Any]) -> list[float]:
    """What the matrix must show, line by line."""
    cells = [[row["questions"][key]["gain"] for key in found["questions"]] for row in found["rows"]]
    costs = [[row["accuracy"], row["bytes_per_client"]] for row in found["rows"]]
    return [v for line, cost in zip(cells, costs, strict=True) for v in [*(g["rate"] for g in line if g), *cost]]


def test_the_matrix_holds_the_reports_own_numbers() -> None:
    found = report()
    matrix = brief(found)
    assert Page(matrix).values("td") == gains(found)
    assert "<b>+3.0</b>" in matrix
    assert "1.8 to 4.2" in matrix


def test_every_attack_stands_on_the_page_with_its_numbers() -> None:
    found = report()
    shown = set(Page(render(found)).values("td"))
    for row in found["rows"]:
        for answer in row["questions"].values():
            for adversary in answer["adversaries"].values():
                for attack in adversary["attacks"].values():
                    if attack["not_run"]:
                        assert attack["title"] in Page(render(found)).text
                        continue
                    numbers = {attack["value"], attack["prior"], attack["gain"]["rate"], attack["control"]["rate"]}
                    assert numbers <= shown


def test_an_officer_reads_the_answer_first() -> None:
    found = report()
    text = Page(render(found)).text
    verdict = found["verdict"]
    order = [
        verdict["sentence"], "Your protocol: rns-servers", "Against whom?", "All defences compared",
        "Records that were rebuilt", "Everything that was tried", "What each defence costs", "The threat",
        "croupier audit rns-servers --fast", "What the words mean",
    ]  # fmt: skip
    places = [text.index(said) for said in order]
    assert places == sorted(places)
    for one in verdict["against"]:
        assert one["sentence"] in text
    assert verdict["recommend"]["sentence"] in text
    assert "A client sends 3.1 times the bytes of yours; accuracy is 90.4\u202f%, yours 90.7\u202f%." in text
    assert "3 more are told apart than without looking" in text


def test_what_the_statement_forbids_is_called_a_what_if() -> None:
    page = render(report())
    # In the plots of three questions, in the tables of their attacks, and under one picture.
    assert page.count("what if: the statement forbids this") >= 4
    together = page.index("sum server 1, sum server 2 and sum server 3 together")
    assert "what if" in page[together : together + 120]


def test_only_pictures_are_shown() -> None:
    found = report()
    found["pictures"] += [{"title": "wicked", "pictures": [{"says": "x", "png": '"><script>'}]}]
    page = Page(render(found))
    assert [name for name, _ in page.seen].count("img") == 2 * 4
    assert "wicked" not in page.text


def test_proved_and_not_run_say_why() -> None:
    text = Page(render(report())).text
    assert "there are no two updates to link" in text
    assert "12 runs of poisoned training take long" in text


def test_what_has_no_answer_has_one_of_four_reasons() -> None:
    tried = {"server": {"attacks": {"lira": {"scored": False}}}}
    unable = {"server": {"attacks": {"counts": {"scored": False, "not_run": "no counts"}}}}
    cells: list[tuple[dict[str, Any], str]] = [
        ({}, "not asked"),
        ({"status": "not-run", "why": "not asked"}, "not asked"),
        ({"status": "not-run", "why": "nothing is permuted"}, "does not apply"),
        ({"status": "not-run", "why": "no counts", "adversary": "server", "adversaries": unable}, "does not apply"),
        ({"status": "not-run", "why": "not tested: the same clients take part"}, "not tested"),
        ({"status": "not-run", "why": "3 runs are too few", "unsure": True}, "could not be judged"),
        ({"status": "not-run", "why": "failed", "adversary": "server", "adversaries": tried}, "could not be judged"),
    ]
    assert [stamp(Lenient(cell)) for cell, _ in cells] == [("not-run", word) for _, word in cells]


def unplayed() -> dict[str, Any]:
    """A report of which one defence could not be played."""
    found = report()
    row, why = found["rows"][2], "did not run: too few clients could take part"
    row |= {"accuracy": None, "accuracy_by_round": [], "bytes_per_client": None, "seconds_per_round": None}
    row["questions"] = {name: asked({"server": silent("not-run", why)}) for name in row["questions"]}
    return found


def test_a_defence_that_did_not_run_has_no_verdict_and_says_why() -> None:
    found = unplayed()
    row = Lenient(found["rows"][2])
    assert light(row, Lenient({})) == ("not-run", "did not run")
    assert {stamp(cell)[1] for cell in row.named("questions").values()} == {"did not run"}
    assert brief(found).count("does not apply") == brief(report()).count("does not apply")
    assert brief(found).count("did not run") == 1
    said = "shuffle-parameter did not run: too few clients could take part"
    assert said in " ".join(Page(render(found)).text.split()).replace("Shuffle-parameter", "shuffle-parameter")
    assert absent(Lenient(found | {"left_out": {"rain": "it needs 10"}})) == [
        said,
        "rain was not compared: it needs 10",
    ]
    assert "Shuffle-parameter did not run" in markdown(found)


def test_a_leak_in_the_worst_case_alone_is_caution_for_every_row() -> None:
    def lit(**cells: dict[str, Any]) -> str:
        return light(Lenient({"questions": cells}), Lenient({}))[0]

    leak, quiet = {"status": "leak", "adversary": "server"}, {"status": "none-found"}
    assert lit(a=leak, b=quiet) == "red"
    assert lit(a=leak | {"worst_case": "one step"}, b=quiet) == "amber"
    assert lit(a=leak | {"adversary": "malicious"}, b=quiet) == "amber"
    assert lit(a=quiet | {"unsure": True}) == "amber"
    assert lit(a={"status": "not-run", "why": "nothing is permuted"}) == "amber"
    assert lit(a={"status": "not-run", "why": "nothing is permuted"}, b=quiet) == "green"


def test_a_row_is_told_what_its_gains_do_not_say() -> None:
    found = report()
    assert remarks(Lenient(found), Lenient(found["rows"][1])) == []
    found["rows"][1] |= {"accuracy": 0.1, "accuracy_low": 0.08}
    found["rows"][2]["questions"]["permutation"] = asked({"server": cell("source", 0.9, 0.1)})
    page, said = brief(found), markdown(found)
    for text in (page, said):
        assert text.count("ts model is no better than always answering the commonest class") == 1
        assert text.count("ttacks on records and clients did not first put its coordinates in order") == 1


def test_what_malicious_clients_break_has_one_mark() -> None:
    found = report()
    hit = cell("poisoning", 0.5, 0.1)
    found["rows"][0]["questions"]["poisoning"] = asked({"malicious": hit})
    found["verdict"]["against"] = [{"adversary": "malicious", "light": "amber", "sentence": "2 of 10 clients break it"}]
    page = Page(render(found))
    assert "Malicious clients ● broken 2 of 10 clients break it" in " ".join(page.text.split())
    assert "- **Malicious clients**: ● broken. 2 of 10" in markdown(found)
    ((key, seen),) = adversaries(Lenient(found["rows"][0]["questions"]["poisoning"]))
    assert (key, stamp(seen)) == ("malicious", ("leak", "broken"))


def test_the_page_says_that_it_protects_nobody_and_who_attacked() -> None:
    text = " ".join(Page(render(report())).text.split())
    assert "A simulation: all parties were played on one machine, and nobody is protected by it." in text
    assert "the others were attacked by their server and by malicious clients alone" in text
    assert "A simulation" not in render(report() | {"recorded": {"seen": "named"}})


def test_the_key_has_every_mark_of_the_table() -> None:
    page = render(report())
    key = page[page.index('<ul class="key">') :]
    words = ("leak", "none found", "proved", "not asked", "broken", "cannot tell", "not tested", "does not apply")
    for word in (*words, "could not be judged", "leak in the worst case"):
        assert f"</span> {word}</span>" in key


def test_questions_without_any_answer_are_named_below_the_matrix() -> None:
    found = report()
    assert "no answer anywhere" not in render(found)
    for row in found["rows"]:
        row["questions"]["linkage"] = asked({"server": silent("not-run", "one round was played")})
    assert "Left out, no answer anywhere: Are two updates from the same client?" in Page(render(found)).text


def test_the_page_says_how_many_records_there_were() -> None:
    text = " ".join(Page(render(report())).text.split())
    assert "1,442 records to train on and 355 to test on, inputs of 64 numbers, 10 classes." in text


def test_what_is_kept_is_told_with_what_it_sends() -> None:
    found = report()
    found["verdict"]["recommend"] = {"defence": None, "sentence": "Keep your protocol.", "bytes": None}
    assert "Yours sends 36.9\u202fkB from each client in a round, 3.10 times no defence." in Page(render(found)).text


def test_the_page_says_whose_data_it_was() -> None:
    found = report()
    assert "no record of yours was used" in Page(render(found)).text
    found["task"]["data"] = {"use": "own", "make": "mine:records"}
    assert "on your own data: what mine:records gives" in Page(render(found)).text


def test_every_link_leads_somewhere_and_no_name_is_given_twice() -> None:
    page = Page(render(report()))
    ids = [found["id"] for _, found in page.seen if "id" in found]
    assert len(ids) == len(set(ids))
    links = {(found["href"] or "")[1:] for name, found in page.seen if name == "a"}
    assert links <= set(ids)
    named = [word for _, found in page.seen for word in (found.get("aria-labelledby") or "").split()]
    assert set(named) <= set(ids)


def test_only_the_pages_own_script_may_run() -> None:
    page = render(report())
    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script) == 1
    known = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{known}'" in page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!#|data:image/png)", page)


def test_nothing_wicked_breaks_out() -> None:
    found = hostile()
    found["rows"][0]["questions"] = {f"{WICKED}{key}": one for key, one in found["rows"][0]["questions"].items()}
    page = Page(render(found))
    tags = [name for name, _ in page.seen]
    assert tags.count("script") == 1
    assert not [found for _, found in page.seen if any(key.startswith("on") for key in found)]
    assert WICKED in page.text
    Page(brief(found))


def holes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a report at which something could be missing."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in [(*path, key), *holes(one, (*path, key))]]


def small() -> dict[str, Any]:
    """The report's first defence with two questions, so that all its holes can be tried."""
    found = report()
    kept = ("source", "poisoning")
    found["questions"] = {key: found["questions"][key] for key in kept}
    row = found["rows"][0]
    found["rows"] = [row | {"questions": {key: row["questions"][key] for key in kept}}]
    answer = found["rows"][0]["questions"]["source"]
    told = answer["adversaries"]["sum1+sum2+sum3"]
    told["attacks"] = {key: told["attacks"][key] for key in ("tuned", "deep")}
    told["facts"] = row["questions"]["reconstruction"]["adversaries"]["sum1+sum2+sum3"]["facts"]
    answer["adversaries"] = {"sum1": answer["adversaries"]["sum1"], "sum1+sum2+sum3": told}
    return found


@pytest.mark.parametrize(("turn", "put"), list(enumerate([None, "text", 7, [], {}, float("nan")])))
def test_whatever_is_missing_the_page_stands(turn: int, put: Any) -> None:
    base = small()
    paths = list(holes(base))
    # A shorter tier puts each into every other hole, and each hole gets half of them.
    step = len(paths) // repeats(len(paths), 12)
    for path in paths[turn % step :: step]:
        at: Any = base
        for key in path[:-1]:
            at = at[key]
        at[path[-1]], before = put, at[path[-1]]
        assert render(base).endswith("</html>\n"), path
        at[path[-1]] = before


@pytest.mark.parametrize("found", [{}, {"rows": None}, {"verdict": 3}, bare()])
def test_a_page_of_nearly_nothing(found: dict[str, Any]) -> None:
    Page(render(found))
    Page(brief(found))


def test_keys_to_come_are_ignored() -> None:
    found = report()
    before = render(found)
    found["later"] = {"x": 1}
    found["rows"][0]["questions"]["source"]["later"] = ["y"]
    assert render(found) == before


def test_numbers_in_their_units() -> None:
    share, decibel, cosine = (Asked("q", "?", unit) for unit in ("share", "dB", "cosine"))
    assert share.gain(Estimate(0.07, 0.05, 0.09)) == "+7.0 (5.0 to 9.0)"
    assert share.gain(Estimate(-0.07)) == "\N{MINUS SIGN}7.0"
    assert share.gain(Estimate(0.0001)) == "0.0"
    assert decibel.value(Estimate(9.4)) == "9.4\u202fdB"
    assert cosine.gain(Estimate(0.12)) == "+0.12"
    # An interval above zero is not shown to begin at zero.
    assert cosine.gain(Estimate(0.0094, 0.0029, 0.0158)) == "+0.01 (0.003 to 0.016)"
    assert cosine.gain(Estimate(0.0094, 0.006, 0.0128)) == "+0.01 (0.01 to 0.01)"
    assert share.gain(Estimate(0.01, -0.0001, 0.02)) == "+1.0 (0.0 to 2.0)"
    assert (share.points, decibel.points, cosine.points) == ("points", "dB", "cosine")


def test_names_in_words() -> None:
    assert who("server+relay") == "the server with the relay"
    assert who("sum1+sum2+sum3") == "sum server 1, sum server 2 and sum server 3 together"
    assert sentence("not asked") == "Not asked."
    assert [one.key for one in questions(Lenient({"rows": [{"questions": {"late": {}}}]}))] == ["late"]


def test_an_axis_holds_zero_and_all_that_is_drawn() -> None:
    along = axis([Estimate(0.31, 0.27, 0.35), None, Estimate(-0.02)])
    assert along.low <= -0.02
    assert along.high >= 0.35
    assert float(axis([]).x(0.0)[:-1]) == 4
    assert 4 <= float(along.x(0.0)[:-1]) <= 96


def test_a_report_is_short_to_look_at() -> None:
    found = Report(report())
    assert len(repr(found)) < 130
    assert found.verdict == report()["verdict"]["sentence"]
    assert [row["defence"] for row in found.rows] == ["rns-servers", "none", "shuffle-parameter"]
    shown = found._repr_html_()
    assert "All defences compared" not in shown
    assert "href" not in shown
    assert found.page() == render(report())
