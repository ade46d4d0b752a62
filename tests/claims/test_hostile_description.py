"""A description is data: what it names is called only where its reader wrote it, never by a command that only looks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from croupier.errors import SpecError
from croupier.learn import own
from croupier.learn.own_names import FunctionName
from tests.shell import Shell

HEAD = 'name = "x"\n[task]\ndata = {{ use = "own", make = "{make}" }}\nmodel = {{ use = "own", make = "{make}" }}\n'
LOOKS = [("doctor", "{spec}"), ("explain", "{spec}"), ("run", "{spec}", "--print-config"),
         ("audit", "{spec}", "--print-config"), ("doctor", "{spec}", "--print-config"),
         ("explain", "{spec}", "--print-config")]  # fmt: skip
DOES = [("run", "{spec}"), ("audit", "{spec}", "--fast", "--seeds", "2")]
# Every one of them names code that its reader did not write.
HOSTILE = {
    "the standard library": "shutil:rmtree",
    "a module of C": "posix:rmdir",
    "what is built in": "builtins:print",
    "a package that is installed": "numpy:save",
    "a part of one": "torch.hub:set_dir",
    "Croupier itself": "croupier.cli:main",
    "an own module's import": "mine:rmtree",
    "an own module's import of a class": "mine:Path",
    "a partial": "mine:partly",
    "a cached one": "mine:cached",
    "an instance": "mine:instance",
    "a lambda of another's": "mine:built",
    "a file that takes a name of Python's": "wave:data",
    "a link out of the folder": "linked:data",
    "a package's import": "pack:rmtree",
}
MINE = """
import functools
from pathlib import Path
from shutil import rmtree
from os import rmdir as built
Path("imported").touch()
partly = functools.partial(rmtree, ignore_errors=True)
cached = functools.lru_cache(rmtree)
class Caller:
    def __call__(self, *args): rmtree(args[0])
instance = Caller()
def data(folder): Path("called").touch()
"""


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, fresh_modules: None
) -> Shell:
    here, away = tmp_path / "here", tmp_path / "away"
    for folder in (here / "pack", here / "data", away):
        folder.mkdir(parents=True)
    (here / "data" / "kept").write_text("worth keeping")
    (here / "mine.py").write_text(MINE)
    (here / "wave.py").write_text(MINE)
    (here / "pack" / "__init__.py").write_text("from shutil import rmtree\n")
    (away / "linked.py").write_text(MINE)
    (here / "linked.py").symlink_to(away / "linked.py")
    monkeypatch.chdir(here)
    monkeypatch.setenv("CROUPIER_DATA", str(here / "data"))
    return Shell(monkeypatch, capsys)


def _words(words: tuple[str, ...], make: str) -> list[str]:
    Path("bad.toml").write_text(HEAD.format(make=make))
    return [word.format(spec="bad.toml") for word in words]


@pytest.mark.parametrize("words", [*LOOKS, *DOES], ids=" ".join)
@pytest.mark.parametrize("make", HOSTILE)
def test_a_hostile_description_touches_nothing(shell: Shell, make: str, words: tuple[str, ...]) -> None:
    before = sorted(Path.cwd().rglob("*"))
    command = _words(words, HOSTILE[make])
    if words in DOES:
        said = shell.refused(*command)
        assert f"task.data.make = {HOSTILE[make]!r}: " in said
    else:
        shell(*command)
    left = set(Path.cwd().rglob("*")) - {Path.cwd() / "imported"}
    left = {path for path in left if "__pycache__" not in path.parts}
    assert left == {*before, Path.cwd() / "bad.toml"}
    assert Path("data/kept").read_text() == "worth keeping"


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_who_only_looks_runs_nothing_of_ones_own(shell: Shell, words: tuple[str, ...]) -> None:
    code, _, said = shell(*_words(words, "mine:data"))
    assert (code, said) == (0, "")
    assert not Path("imported").exists()
    assert not Path("called").exists()
    assert "mine" not in sys.modules


def test_a_module_that_is_not_here_is_not_imported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path.cwd().parent / "away" / "installed.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    monkeypatch.syspath_prepend(Path.cwd().parent / "away")
    said = shell.refused(*_words(("run", "{spec}"), "installed:data"))
    assert "there is no installed.py beside the description or in the current directory" in said
    assert not Path("imported").exists()


def test_a_package_that_is_installed_is_no_folder_of_ones_own(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the command is run from within it, or the description lies there."""
    import numpy as np

    monkeypatch.chdir(Path(np.__file__).parent.parent)
    with pytest.raises(SpecError, match="installed"):
        own.load_own("key", FunctionName("numpy.lib.format:open_memmap"))


def test_a_name_that_another_module_took_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))
    said = shell.refused(*_words(("run", "{spec}"), "mine:data"))
    assert "another module is called mine already" in said
    assert not Path("imported").exists()


@pytest.mark.parametrize("key", ["loss", "metrics"])
@pytest.mark.parametrize("make", ["shutil:rmtree", "mine:rmtree", "numpy:save", "linked:data"])
def test_a_loss_and_a_metric_are_ones_own_too(shell: Shell, key: str, make: str) -> None:
    value = f'"{make}"' if key == "loss" else f'["{make}"]'
    Path("bad.toml").write_text(f"[task]\n{key} = {value}\n[federation]\nrounds = 1\n")
    for words in LOOKS:
        shell(*(word.format(spec="bad.toml") for word in words))
    assert not Path("imported").exists()
    said = shell.refused("run", "bad.toml")
    assert f"task.{key}" in said
    assert make in said
    assert Path("data/kept").read_text() == "worth keeping"
    assert not Path("runs").exists()
