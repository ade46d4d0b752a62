"""Modules beside a description: what runs is their source, and they hide nothing that is installed."""

from __future__ import annotations

import hashlib
import importlib
import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from croupier.errors import SpecError
from croupier.learn import beside


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_modules: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path_hooks", list(sys.path_hooks))


def put(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def poisoned(name: str, text: str, other: str) -> None:
    """A source, and beside it bytecode of another that Python would take without a look at the source."""
    path = put(name, other)
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert Path(cache_from_source(str(path))).is_file()
    path.write_text(text)


def said(module: str) -> str:
    found: str = beside.load(beside.find(module, [Path.cwd()]), "make")()
    return found


def test_bytecode_beside_a_source_does_not_run() -> None:
    poisoned("minebc.py", "def make(): return 'source'", "def make(): return 'bytecode'")
    assert said("minebc") == "source"


def test_bytecode_of_helpers_does_not_run_either() -> None:
    put("minehelp.py", "import helperbc\nfrom packbc import inner\ndef make(): return helperbc.SAID + inner.SAID")
    put("packbc/__init__.py", "")
    for name in ("helperbc.py", "packbc/inner.py"):
        poisoned(name, "SAID = 'source '", "SAID = 'bytecode '")
    assert said("minehelp") == "source source "


def test_bytecode_without_a_source_is_no_module() -> None:
    path = put("lonebc.py", "SAID = 'bytecode'")
    py_compile.compile(str(path), cfile="lonebc.pyc")
    path.unlink()
    put("minelone.py", "import lonebc\ndef make(): return lonebc.SAID")
    with pytest.raises(ModuleNotFoundError, match="lonebc"):
        said("minelone")


def test_no_bytecode_is_written_and_the_digest_is_of_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    put("helperno.py", "SAID = 1")
    path = put("mineno.py", text := "import helperno\ndef make(): return 'one'").resolve()
    assert said("mineno") == "one"
    assert not list(Path().rglob("*.pyc"))
    path.write_text("def make(): return 'two'")
    assert said("mineno") == "one", "a module runs once"
    assert beside.digest(path) == hashlib.sha256(text.encode()).hexdigest()


def test_what_is_installed_goes_before_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "lib" / "site-packages"
    put(str(installed / "lazily.py"), "SAID = 'installed'")
    # `python -m pytest` puts the current folder first, as no installed command does.
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path), str(installed)])
    put("lazily.py", "SAID = 'beside'")
    put("minelast.py", "import lazily\ndef make(): return lazily.SAID")
    assert said("minelast") == "installed"
    assert importlib.import_module("lazily").SAID == "installed"
    monkeypatch.delitem(sys.modules, "lazily")


def test_what_is_installed_after_a_first_folder_goes_before_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("first/minefirst.py", "def make(): return 'first'")
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path)])
    beside.load(beside.find("minefirst", [Path("first")]), "make")
    installed = tmp_path / "lib" / "site-packages"
    put(str(installed / "lazilylate.py"), "SAID = 'installed'")
    sys.path.append(str(installed))
    put("lazilylate.py", "SAID = 'beside'")
    put("minelate.py", "import lazilylate\ndef make(): return lazilylate.SAID")
    assert said("minelate") == "installed"
    monkeypatch.delitem(sys.modules, "lazilylate")


def test_a_file_with_an_installed_packages_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "lib" / "site-packages"
    put(str(installed / "takenname.py"), "")
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    put("takenname.py", "def make(): return 'beside'")
    with pytest.raises(SpecError, match=r"^takenname\.py has the name of an installed package .*another name$"):
        said("takenname")


def test_of_two_folders_the_newer_ones_helper_is_found() -> None:
    for number in ("one", "two"):
        put(f"{number}/sharedhelp.py", f"SAID = {number!r}")
        put(f"{number}/mine{number}.py", "def make():\n    import sharedhelp\n    return sharedhelp.SAID")
        beside.load(beside.find(f"mine{number}", [Path(number)]), "make")
    assert beside.load(beside.find("minetwo", [Path("two")]), "make")() == "two"
