"""The wheel: it holds every module and every file that these read, and works as installed, away from the tree.

A light test looks into the wheel. A long one installs it into an environment of its own, without extras, and runs the
commands there. That environment borrows what the wheel depends on from the one that runs the tests, by links, so that
nothing is downloaded; what only the extra `lab` brings (matplotlib) is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
SOURCES = TREE / "src"
# What the build needs of the tree; in a copy, so that no build folder is left in it or found there.
NEEDED = ("pyproject.toml", "README.md", "LICENSE")
SHIPPED = {".py", ".toml", ".jinja", ".css", ".html", ".js", ".typed"}
# What the borrowed environment must not have: the package itself, and what only the extra `lab` brings.
NOT_BORROWED = ("croupier", "__editable__", "matplotlib", "mpl_toolkits")
HERE = tuple(dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib")))


def _run(words: Sequence[str | Path], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program that is told nothing of this tree."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CROUPIER"))}
    given = [str(word) for word in words]
    return subprocess.run(given, capture_output=True, text=True, timeout=600, check=False, env=clean, cwd=cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built by what is installed here."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in NEEDED:
        shutil.copy(TREE / name, tree)
    shutil.copytree(SOURCES, tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    built = _run([sys.executable, *words, "--wheel-dir", out, tree])
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("croupier-*.whl")
    return found


def test_the_wheel_holds_every_file_of_both_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packaged = {name for name in names if ".dist-info/" not in name}
    files = (path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(SOURCES).as_posix() for path in files if ".egg-info" not in path.parent.name}
    assert packaged == wanted
    assert {Path(name).suffix for name in wanted} == SHIPPED, "a new kind of file: name it in package-data and here"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.fixture(scope="module")
def croupier(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command as installed from the wheel, without extras."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, with_pip=False, symlinks=True)
    scheme = sysconfig.get_paths(scheme="venv", vars={"base": str(place), "platbase": str(place)})
    words = ["-m", "pip", "--python", scheme["scripts"] + "/python", "install", "--quiet", "--no-deps", "--no-index"]
    done = _run([sys.executable, *words, wheel])
    assert done.returncode == 0, done.stderr
    borrowed = place / "borrowed"
    borrowed.mkdir()
    for entry in {path.name: path for folder in HERE for path in Path(folder).iterdir()}.values():
        if not entry.name.startswith(NOT_BORROWED) and entry.suffix != ".pth":
            (borrowed / entry.name).symlink_to(entry)
    (Path(scheme["purelib"]) / "borrowed.pth").write_text(f"{borrowed}\n", "utf-8")
    return Path(scheme["scripts"]) / "croupier"


@pytest.mark.long
def test_it_runs_from_where_it_is_installed(croupier: Path, tmp_path: Path) -> None:
    done = _run([croupier.parent / "python", "-c", "import croupier; print(croupier.__file__)"], cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(croupier.parents[1]), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["doctor"],
        ["explain", "rns-servers"],
        ["plan", "digits-small"],
        ["run", "digits-small", "--set", "federation.rounds=1"],
        ["audit", "digits-small", "--fast", "-q", "source", "--against", "nothing", "--seeds", "2"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_gives_one_object(croupier: Path, words: list[str], tmp_path: Path) -> None:
    done = _run([croupier, *words, "--json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)


@pytest.mark.long
@pytest.mark.parametrize("words", [["reproduce"], ["reproduce", "rns/figure1"], ["bench", "rns"]])
def test_the_laboratory_says_in_one_line_what_to_install(croupier: Path, words: list[str], tmp_path: Path) -> None:
    done = _run([croupier, *words], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("(matplotlib): pip install 'croupier[lab]'\n")


@pytest.mark.long
def test_with_its_extra_the_laboratory_lists_what_it_can_reproduce(croupier: Path, tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path += {HERE}; from croupier.cli import main; "
        "sys.argv = ['croupier', 'reproduce', '--json']; main()"
    )
    done = _run([croupier.parent / "python", "-c", program], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rns/figure1" in json.loads(done.stdout)["entries"]
