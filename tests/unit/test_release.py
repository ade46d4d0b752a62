"""What is released: the same bytes whoever builds it, one version, and a bill of what it brings."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.release import TREE, build
from tools.sbom import bill, dependencies, licence

import croupier

PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text("utf-8"))
EPOCH = 1_700_000_000
SMALL = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "small"
version = "1"

[tool.setuptools.packages.find]
where = ["src"]
"""


def small_tree(place: Path, mode: int, when: int) -> Path:
    """A project of two modules, as somebody else's checkout might have it."""
    package = place / "src" / "small"
    package.mkdir(parents=True)
    (place / "pyproject.toml").write_text(SMALL)
    (place / "README.md").write_text("small\n")
    for name in ("__init__.py", "other.py"):
        file = package / name
        file.write_text(f"# {name}\n")
        file.chmod(mode)
        os.utime(file, (when, when))
    return place


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    first = build(small_tree(tmp_path / "a", 0o600, 1_000_000_000), tmp_path / "one", EPOCH)
    second = build(small_tree(tmp_path / "b", 0o664, 1_600_000_000), tmp_path / "two", EPOCH)
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.suffix for path in first] == [".gz", ".whl"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


def test_another_time_or_text_makes_other_bytes(tmp_path: Path) -> None:
    tree = small_tree(tmp_path / "a", 0o644, EPOCH)
    first = build(tree, tmp_path / "one", EPOCH)
    later = build(tree, tmp_path / "two", EPOCH + 86_400)
    assert all(one.read_bytes() != two.read_bytes() for one, two in zip(first, later, strict=True))


@pytest.mark.long
def test_two_builds_of_this_tree_have_the_same_bytes(tmp_path: Path) -> None:
    made = [build(TREE, tmp_path / name, EPOCH) for name in ("one", "two")]
    for one, two in zip(*made, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
    shutil.unpack_archive(made[0][0], tmp_path / "source")
    (folder,) = (tmp_path / "source").iterdir()
    assert (folder / "constraints-lowest.txt").is_file()
    assert (folder / "src" / "croupier" / "presets" / "rns.toml").is_file()


def test_the_version_is_said_in_one_place() -> None:
    version = PROJECT["project"]["version"]
    assert croupier.__version__ == metadata.version("croupier") == version
    assert f"version: {version}" in (TREE / "CITATION.cff").read_text("utf-8")
    named = [
        path.relative_to(TREE).as_posix()
        for path in (TREE / "src").rglob("*.py")
        if re.search(rf"version\w* = [\"']{re.escape(version)}[\"']", path.read_text("utf-8"), re.IGNORECASE)
    ]
    assert named == []


def test_the_bill_names_what_is_needed_and_its_licence() -> None:
    found = bill()
    names = {part["name"] for part in found["components"]}
    wanted = {canonicalize_name(one.name) for one in dependencies(PROJECT["project"]["dependencies"])}
    assert {canonicalize_name(name) for name in names} == wanted
    assert "torch" in names
    assert "pytest" not in names
    references = {part["bom-ref"] for part in found["components"]}
    below = {ref for entry in found["dependencies"] for ref in entry["dependsOn"]}
    assert below == references, "each is there because something asks for it"
    assert licence(metadata.distribution("cryptography")) == "Apache-2.0 OR BSD-3-Clause"
    assert str(TREE) not in repr(found)


def pins(name: str) -> dict[str, str]:
    """What a file of constraints pins."""
    lines = (TREE / name).read_text("utf-8").splitlines()
    words = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(one): version for one, version in words}


def test_lowest_and_highest_are_what_pyproject_allows() -> None:
    required = {canonicalize_name(one.name): one for one in map(Requirement, PROJECT["project"]["dependencies"])}
    lowest, highest = pins("constraints-lowest.txt"), pins("constraints.txt")
    assert lowest.keys() == required.keys() - {"torch"}
    for name, one in required.items():
        assert one.specifier.contains(highest[name]), name
        if name in lowest:
            assert one.specifier.contains(lowest[name])
            (least,) = (each.version for each in one.specifier if each.operator == ">=")
            assert (lowest[name] + ".").startswith(f"{least}."), f"{name}: the lowest that is declared is tried"


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = (TREE / "Containerfile").read_text("utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    assert not any("ADD http" in line or "curl" in line for line in lines)
