"""folders: a unit test lies in the folder of the room that it tests, so that whoever changes a room finds its tests."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
UNIT = REPOSITORY / "tests" / "unit"
# The tests of the repository's own pages and of what the package offers have no module of their own.
OF_NO_MODULE = {
    "test_docs.py",
    "test_names.py",
    "test_notebooks.py",
    "test_pages.py",
    "test_release.py",
    "test_wheel.py",
}


def room_of(folder: Path) -> Path:
    """The folder below src/ that a folder of unit tests stands for."""
    parts = folder.relative_to(UNIT).parts
    lab = parts[:1] == ("lab",)
    return REPOSITORY.joinpath("src", "croupier_lab" if lab else "croupier", *parts[lab:])


def imported(file: Path) -> set[str]:
    """The modules that a test imports, by their first two names: `croupier.audit`, `croupier_lab.bench`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            below = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {".".join(name.split(".")[:2]) for name in below}
    return found


def strays(files: list[Path]) -> list[str]:
    """Unit tests in a folder that no room has, or beside the rooms without a module of their name."""
    wrong = []
    for file in files:
        room, name = room_of(file.parent), file.stem.removeprefix("test_")
        if file.parent == UNIT:
            lies_well = file.name in OF_NO_MODULE or (room / f"{name}.py").exists()
        else:
            lies_well = room.is_dir()
        if not lies_well:
            wrong.append(file.relative_to(UNIT).as_posix())
    return wrong


def test_every_unit_test_lies_in_a_room() -> None:
    assert strays(sorted(UNIT.rglob("test_*.py"))) == []


def test_tests_of_the_laboratory_lie_with_it() -> None:
    lab = sorted((UNIT / "lab").rglob("test_*.py"))
    assert [file.name for file in lab if not any(name.startswith("croupier_lab.") for name in imported(file))] == []


def test_a_stray_is_seen() -> None:
    assert strays([UNIT / "nowhere" / "test_a.py", UNIT / "test_b.py", UNIT / "test_spec.py"]) == [
        "nowhere/test_a.py", "test_b.py",
    ]  # fmt: skip
