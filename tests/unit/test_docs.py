"""The docs name every key and part that a description can hold, as the parts themselves say it, in lines that fit."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from tests.laws.test_rooms import SLOTS
from tools.describe import MARK, PAGE, SCHEMA, chosen_by, described, schema, slots

from croupier.core.part import Part
from croupier.spec import Spec, _keys
from croupier.toml_read import presets

TEXT = PAGE.read_text("utf-8")
PARTS = [(name, part) for kind in SLOTS for name, part in chosen_by(kind).items()]
REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("examples/*.md")])
# The changelog also names what is gone.
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
SOURCES = REPOSITORY / "src"
# Folders of the two packages: what pages name below them must exist.
ROOMS = {path.name for path in SOURCES.glob("croupier*/*") if path.is_dir() and path.name != "__pycache__"}
PACKAGES = {"croupier", "croupier_lab"}
# CONTRIBUTING adds these files itself, and a test runs them from that page.
ADDED = re.compile(r"\*\*One file\*\*, `src/(\S+)`")
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
    assert places[0]["enum"] == ["chain", "direct", "masks", "pair", "relay", "sum-servers"]
    assert places[-1]["properties"] == {}, "a table without `use` is the default part"


def test_the_glossary_is_short() -> None:
    page = (REPOSITORY / "docs" / "glossary.md").read_text("utf-8")
    words = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][1:]
    assert words == sorted(set(words))
    assert len(words) <= 40
    source = " ".join(file.read_text("utf-8").lower() for file in (REPOSITORY / "src").rglob("*.py"))
    assert [word for word in words if len(re.findall(rf"\b{word}s?\b", source)) < 5] == []


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(REPOSITORY).as_posix() for page in PAGES])
def test_lines_fit(page: Path) -> None:
    code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        loose = (code or line.startswith("|")) and page.name not in NARROW
        assert loose or len(line) <= 100, f"{page.name}:{number}"


def named_modules(text: str) -> set[str]:
    """Modules and folders that a page names in backticks: `engine/loop`, `audit/report/`, `croupier.audit.poison`."""
    quoted = re.findall(r"`([\w./-]+)(?:\(\))?`", text)
    paths = (word.removeprefix("src/").rstrip("/") for word in quoted if "/" in word)
    known = {path for path in paths if path.split("/")[0] in ROOMS | PACKAGES}
    # A dotted name may end in a function: its module is what is asked for.
    dotted = (word.split(".") for word in quoted if re.match(r"croupier(_lab)?\.\w+\.", word))
    return known | {"/".join(words) for words in dotted}


def exists(name: str) -> bool:
    """Whether a module, a folder or another file of that name lies below src/, or a module that can define it."""
    for package in ("", "croupier", "croupier_lab"):
        path = SOURCES / package / name
        if path.exists() or path.with_suffix(".py").is_file() or path.parent.with_suffix(".py").is_file():
            return True
    return False


@pytest.mark.parametrize("page", PRESENT, ids=[page.relative_to(REPOSITORY).as_posix() for page in PRESENT])
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    added = set(ADDED.findall(text))
    assert sorted(name for name in named_modules(text) - added if not exists(name)) == []


def test_a_module_that_is_gone_is_seen() -> None:
    text = "`audit/habits` and `engine/loop`, `audit/questions/`, `croupier.audit.craft.made`, `croupier.audit.poison`"
    assert {name for name in named_modules(text) if not exists(name)} == {"audit/habits", "croupier/audit/craft/made"}


def said_in(source: str) -> str:
    """All docstrings of a module."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def named_in_code(text: str) -> set[str]:
    """Modules that docstrings name, with a dot or a slash: `engine.loop`, `audit/poison`, `mpc.trust.secret_rule`."""
    words = (re.split(r"[./]", word) for word in re.findall(r"`([a-z_]+(?:[./]\w+)+)/?`", text))
    return {"/".join(names) for names in words if names[0] in ROOMS or (names[0] in PACKAGES and len(names) > 2)}


def test_what_a_docstring_names_exists() -> None:
    gone = {}
    for path in SOURCES.rglob("*.py"):
        near = path.parent
        for name in named_in_code(said_in(path.read_text("utf-8"))):
            # A name may end in a class, and in something of it; and may begin in the room that the file lies in.
            parts = name.split("/")
            tries = ["/".join(parts[:size]) for size in range(len(parts), max(1, len(parts) - 2), -1)]
            if not any(exists(one) or (near / one).with_suffix(".py").is_file() for one in tries):
                gone[path.relative_to(SOURCES).as_posix()] = name
    assert gone == {}


def test_a_docstring_that_names_what_is_gone_is_seen() -> None:
    text = '"""Used by `audit.habits`, `engine.loop.rounds` and `croupier.audit.craft`."""'
    assert {name for name in named_in_code(said_in(text)) if not exists(name)} == {
        "audit/habits", "croupier/audit/craft",
    }  # fmt: skip
