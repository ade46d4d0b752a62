"""The docs name every key and part that a description can hold, as the parts themselves say it, in lines that fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.describe import MARK, PAGE, SCHEMA, described, schema, slots

from croupier.core.part import Part
from croupier.spec import Spec, _keys
from croupier.toml_read import presets

TEXT = PAGE.read_text("utf-8")
PARTS = [(name, part) for (_, name), part in Part.named.items() if part.__module__.startswith("croupier.")]
REPOSITORY = Path(__file__).parents[2]
PAGES = [*sorted(REPOSITORY.glob("docs/*.md")), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
# Of these also tables and code fit; elsewhere a row of numbers, or what a program printed, can be longer.
NARROW = ("description.md", "glossary.md", "reading.md")


@pytest.mark.parametrize("key", [key for key in _keys(Spec()) if key.split(".")[0] in ("federation", "run")])
def test_every_key_is_described(key: str) -> None:
    assert f"`{key}`" in TEXT


@pytest.mark.parametrize(("name", "part"), PARTS, ids=[name for name, _ in PARTS])
def test_every_part_is_described_with_its_fields(name: str, part: type[Part]) -> None:
    assert f"`{name}`" in TEXT
    for field in part.model_fields:
        assert f"`{field}`" in TEXT, field


@pytest.mark.parametrize(("name", "part"), PARTS, ids=[name for name, _ in PARTS])
def test_every_field_says_what_it_is(name: str, part: type[Part]) -> None:
    # The audit's own parts are described by hand.
    silent = [field for field, known in part.model_fields.items() if not known.description]
    assert silent == [] or part.__module__.startswith("croupier.audit.")


def test_the_page_is_what_the_parts_say() -> None:
    assert described(TEXT) == TEXT, "run `make docs`"
    lists = {found[2] for found in MARK.finditer(TEXT)}
    assert lists == {*slots(), "name", "task", "task.root", "federation", "run", "protocol"}


def test_the_schema_is_what_the_parts_say() -> None:
    assert json.loads(SCHEMA.read_text("utf-8")) == schema(), "run `make docs`"


def test_a_changed_list_is_seen() -> None:
    assert described(TEXT.replace("how many rounds", "how many turns")) == TEXT


def test_the_schema_knows_every_choice_and_preset() -> None:
    properties = schema()["properties"]
    assert properties["protocol"]["anyOf"][0]["enum"] == presets()
    places = properties["protocol"]["anyOf"][1]["properties"]["place"]["anyOf"]
    assert places[0]["enum"] == ["direct", "masks", "pair", "relay", "sum-servers"]
    assert places[-1]["properties"] == {}, "a table without `use` is the default part"


def test_the_glossary_is_short() -> None:
    page = (REPOSITORY / "docs" / "glossary.md").read_text("utf-8")
    words = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][1:]
    assert words == sorted(set(words))
    assert len(words) <= 40


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_lines_fit(page: Path) -> None:
    code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        loose = (code or line.startswith("|")) and page.name not in NARROW
        assert loose or len(line) <= 100, f"{page.name}:{number}"
