"""The package as `pip install .` leaves it: built into a wheel, and installed away from this tree without extras.

`install` makes an environment that holds the wheel and, by links to what is installed here, exactly what the wheel says
it depends on, and what those depend on in turn. Nothing is downloaded, and nothing that an extra brings (matplotlib,
grpcio, flwr, dp-accounting, rbcl) is there: only distributions that are named so are linked. `test_wheel.py` uses it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tools.sbom import dependencies

TREE = Path(__file__).parents[1]
SOURCES = TREE / "src"
# What the build needs of the tree; in a copy, so that no build folder is left in it or found there.
NEEDED = ("pyproject.toml", "README.md", "LICENSE")


def run_outside(words: Sequence[str | Path], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program that is told nothing of this tree."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CROUPIER"))}
    given = [str(word) for word in words]
    return subprocess.run(given, capture_output=True, text=True, timeout=1200, check=False, env=clean, cwd=cwd)


def build_wheel(tree: Path, out: Path) -> Path:
    """Build the wheel of a copy of this tree, by what is installed here."""
    for name in NEEDED:
        shutil.copy(TREE / name, tree)
    shutil.copytree(SOURCES, tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    built = run_outside([sys.executable, *words, "--wheel-dir", out, tree])
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("croupier-*.whl")
    return found


def make_environment(place: Path) -> tuple[Path, Path]:
    """Make an empty environment; its folder of programs, and its folder of packages."""
    venv.create(place, with_pip=False, symlinks=True)
    scheme = sysconfig.get_paths(scheme="venv", vars={"base": str(place), "platbase": str(place)})
    return Path(scheme["scripts"]), Path(scheme["purelib"])


def install(wheel: Path, place: Path) -> tuple[Path, Path]:
    """Install the wheel without extras; the folder of programs, and that of packages."""
    programs, packages = make_environment(place)
    words = ["-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-deps", "--no-index"]
    done = run_outside([sys.executable, *words, wheel])
    assert done.returncode == 0, done.stderr
    (own,) = metadata.distributions(path=[str(packages)])
    for distribution in dependencies(own.requires or ()):
        for entry in top_entries(distribution):
            if not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return programs, packages


def top_entries(distribution: metadata.Distribution) -> set[Path]:
    """The files and folders of a distribution's own that lie beside others' in the folder of packages."""
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    return {Path(str(distribution.locate_file(name))) for name in names if not name.endswith(".pth")}
