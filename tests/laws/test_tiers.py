"""tiers: a shorter run leaves out repetitions, never a law and never a part."""

from __future__ import annotations

import ast
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from tests.tiers import (
    HEAVY,
    SAMPLED,
    SLOW_LAWS,
    SLOW_OPENINGS,
    SPANNED,
    WHOLE_IN_CHECK,
    Case,
    Tier,
    evenly,
    selected,
    spanning,
)

FOLDER = Path(__file__).parents[1]
FILES = sorted(FOLDER.rglob("test_*.py"))
LAWS = sorted(FOLDER.glob("laws/test_*.py"))


def names_in(file: Path) -> list[str]:
    """The names of a file's tests, in their order."""
    tree = ast.parse(file.read_text("utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@cache
def known() -> dict[Path, list[str]]:
    """The tests of every file: read when a test asks, and not in every process that collects tests."""
    return {file: names_in(file) for file in FILES}


@pytest.mark.parametrize("name", sorted(SPANNED | SAMPLED.keys() | HEAVY | SLOW_LAWS | SLOW_OPENINGS | WHOLE_IN_CHECK))
def test_a_test_that_is_named_exists_once(name: str) -> None:
    where = [file.name for file in FILES if name in known()[file]]
    assert len(where) == 1, where


@pytest.mark.parametrize("tier", ["fast", "test"])
def test_every_law_is_in_every_tier(tier: Tier) -> None:
    cases = [Case(f"tests/laws/{file.name}", name) for file in LAWS for name in known()[file]]
    kept = {case.file for case, wanted in zip(cases, selected(cases, tier), strict=True) if wanted}
    assert kept == {f"tests/laws/{file.name}" for file in LAWS}


@pytest.mark.parametrize(("tier", "below"), [("fast", "tests/unit/"), ("test", "tests/")])
def test_every_file_has_a_test_in_the_tier(tier: Tier, below: str) -> None:
    cases = [Case(file.relative_to(FOLDER.parent).as_posix(), name) for file in FILES for name in known()[file]]
    kept = {case.file for case, wanted in zip(cases, selected(cases, tier), strict=True) if wanted}
    assert {case.file for case in cases if case.file.startswith(below)} - kept == set()


def test_a_product_is_spanned() -> None:
    names, changes = [f"pipeline {number}" for number in range(11)], ["drop", "cut", "repeat"]
    cases = [Case("t.py", "test", {"name": name, "change": change}) for name, change in product(names, changes)]
    kept = [cases[place].arguments for place in spanning(cases)]
    assert len(kept) == len(names)
    assert {case["name"] for case in kept} == set(names)
    assert {case["change"] for case in kept} == set(changes)


def test_holes_in_a_product_are_filled() -> None:
    pairs = [("a", 1), ("a", 2), ("b", 2), ("c", 3), ("d", 3)]
    cases = [Case("t.py", "test", {"letter": letter, "number": number}) for letter, number in pairs]
    kept = [pairs[place] for place in spanning(cases)]
    assert {letter for letter, _ in kept} == set("abcd")
    assert {number for _, number in kept} == {1, 2, 3}


def test_places_are_spread_evenly() -> None:
    assert evenly(10, 3) == [0, 3, 6]
    assert evenly(2, 5) == [0, 1]


def test_what_is_long_runs_in_the_long_tier_only() -> None:
    cases = [Case("tests/unit/test_a.py", "test_b", marks=frozenset({"long"}))]
    assert [selected(cases, tier) for tier in (None, "fast", "test", "long")] == [[False], [False], [False], [True]]
