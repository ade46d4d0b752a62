"""Tables for notebooks: nothing that a name holds becomes markup, and results and statements are such tables."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import croupier
from croupier.core.html import html_table


def cells(text: str) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in ElementTree.fromstring(text).iter("tr")]


def test_every_text_is_escaped() -> None:
    text = html_table("<b>", ["<i>"], [["<script>", "a & b"]])
    assert cells(text) == [["<i>"], ["<script>", "a & b"]]
    assert ElementTree.fromstring(text).findtext("caption") == "<b>"
    assert "<script>" not in text


def test_a_result_is_a_table_of_its_rounds(tmp_path: Path) -> None:
    sets = {"federation.rounds": 2, "task.split.clients": 3, "task.fit.epochs": 1}
    result = croupier.run("digits-small", seed=1, sets=sets, out=tmp_path / "run")
    head, *rows = cells(result._repr_html_())
    assert head[0] == "round"
    assert [row[0] for row in rows] == ["1", "2"]
    assert dict(zip(head, rows[-1], strict=True))["accuracy"] == f"{result.final['accuracy']:.4g}"
    assert result.csv().count("\n") == 3


def test_a_statement_is_a_table_of_its_sentences() -> None:
    statement = croupier.explain("rns-servers")
    found = cells(statement._repr_html_())
    assert [tuple(row) for row in found] == statement.sentences()
