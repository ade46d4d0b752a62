"""Rows for people: what all rows share is told once, and no header is broken within a word."""

from __future__ import annotations

from typing import Any

import pytest

from croupier.cli.rows import columns, labels, parts, show_rows

NAMES = [f"what_is_measured_{number}" for number in range(9)]
ROWS: list[dict[str, Any]] = [
    {
        "data": "MNIST, MLP", "rule": rule, "defence": defence, "paper": None, "machine": "x86_64", "load": 0.5,
        **dict.fromkeys(NAMES, f"{10 * number:.2f} [{number:.2f}, {20 * number:.2f}]"), "_marks": {},
    }
    for number, (rule, defence) in enumerate([("Multi-Krum", "none"), ("Multi-Krum", "pruning"), ("Median", "none")])
]  # fmt: skip


def test_what_all_rows_share_is_no_column() -> None:
    shared, kept = columns(ROWS)
    assert shared == ["data", "machine", "load"]
    assert kept == ["rule", "defence", *NAMES]
    assert labels(ROWS, kept) == ["rule", "defence"]


def test_one_row_is_a_table_all_the_same() -> None:
    assert columns(ROWS[:1]) == ([], ["data", "rule", "defence", "machine", "load", *NAMES])


def test_what_fits_is_one_table() -> None:
    (part,) = parts(ROWS, ["rule", "defence", NAMES[0]], 80)
    assert part[0] == ["rule", "defence", NAMES[0]]


@pytest.mark.parametrize("width", [60, 80, 120, 140])
def test_a_wide_table_comes_in_parts_whose_words_are_whole(capsys: pytest.CaptureFixture[str], width: int) -> None:
    show_rows(ROWS, "A title", width)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[:2] == ["A title", "  In every row: data: MNIST, MLP; machine: x86_64; load: 0.5."]
    assert max(map(len, lines[2:])) <= width
    assert "paper" not in out
    found = parts(ROWS, columns(ROWS)[1], width)
    assert [key for part, _ in found for key in part[2:]] == NAMES
    heads = [line for line in lines if "\u2503" in line]
    assert sum(line.count("measured") for line in heads) == len(NAMES)
    assert out.count("Multi-Krum") == 2 * len(found)
    assert out.count("[2.00,") == out.count("40.00]") == len(NAMES)
