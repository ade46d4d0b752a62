"""The report as lines of numbers and as Markdown, and the files that it leaves."""

from __future__ import annotations

import csv as tables
import io
import json
from pathlib import Path

import pytest
from tests.reports import report

from croupier.audit.report.result import Report
from croupier.audit.report.text import csv, markdown
from croupier.errors import SpecError


def test_every_attack_is_a_line_with_its_numbers() -> None:
    found = report()
    lines = list(tables.DictReader(io.StringIO(csv(found))))
    for row in found["rows"]:
        for name, answer in row["questions"].items():
            for who, adversary in answer["adversaries"].items():
                mine = [
                    one
                    for one in lines
                    if (one["defence"], one["question"], one["adversary"]) == (row["defence"], name, who)
                ]
                assert [one["attack"] for one in mine] == (list(adversary["attacks"]) or [""])
                for line, attack in zip(mine, adversary["attacks"].values(), strict=False):
                    if not attack["not_run"]:
                        assert float(line["gain"]) == attack["gain"]["rate"]
                        assert float(line["gain_together_high"]) == attack["gain_together"]["high"]
                        assert float(line["control_low"]) == attack["control"]["low"]
                        assert line["by_round"].count(":") == 2
                    assert line["forbidden"] == str(adversary["forbidden"])
                    assert float(line["accuracy"]) == row["accuracy"]
    assert {one["status"] for one in lines} == {"leak", "none-found", "proved", "not-run"}


def test_no_name_is_a_formula() -> None:
    found = report()
    found["rows"][0]["defence"] = "=1+1"
    lines = list(tables.DictReader(io.StringIO(csv(found))))
    assert lines[0]["defence"] == "'=1+1"


def test_markdown_has_the_sentence_the_card_and_the_matrix() -> None:
    found = report()
    said = markdown(found)
    assert said.startswith(f"# {found['verdict']['sentence']}\n")
    assert "- **The server**: ● Leaks. The sum tells" in said
    assert "A client sends 3.1 times the bytes of yours; accuracy is 90.4\u202f%, yours 90.7\u202f%." in said
    assert "what if: the statement forbids this; sum server 1, sum server 2 and sum server 3 together: +31.0" in said
    rows = [line for line in said.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 3
    assert {line.count(" | ") for line in rows} == {7}
    assert "● leak +3.0 (1.8 to 4.2)" in rows[2]


def test_markdown_is_not_broken_by_names() -> None:
    found = report()
    found["rows"][1]["title"] = "a|b\n<script>*"
    row = next(line for line in markdown(found).splitlines() if line.startswith("| a"))
    assert row.startswith(r"| a\|b \<script\>\* |")


@pytest.mark.parametrize("found", [{}, {"rows": [None]}, {"verdict": 3, "rows": [{"questions": {"x": None}}]}])
def test_next_to_nothing_is_said_of_next_to_nothing(found: dict[str, object]) -> None:
    assert csv(found).startswith("defence,own,question")
    assert markdown(found).startswith("# No verdict was given.")


def test_all_files_are_written_beside_the_page(tmp_path: Path) -> None:
    found = Report(report())
    page, *others = found.save_all(tmp_path / "sub" / "audit.html")
    assert page.read_text("utf-8") == found.page()
    assert [path.name for path in others] == ["audit.json", "audit.csv", "audit.md"]
    kept = json.loads(others[0].read_text("utf-8"))
    assert kept == report()
    assert list(kept["questions"]) == list(report()["questions"])
    assert Report(kept).page() == found.page()


def test_a_page_is_not_called_what_stands_beside_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"ends in \.html; \.json is written beside it"):
        Report(report()).save_all(tmp_path / "audit.json")
