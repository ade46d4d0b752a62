"""The wheel: it holds every module and every file that these read, and works as installed, away from the tree.

It is built, and installed without extras into an environment that has what it depends on and nothing else
(`tests/installed.py`); the commands run there. A long test lets pip find and download everything itself.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from tests.installed import SOURCES, TREE, build_wheel, install, make_environment, run_outside
from tools.sbom import dependencies

SHIPPED = {".py", ".toml", ".jinja", ".css", ".html", ".js", ".typed"}
PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text("utf-8"))["project"]
# What each extra brings, by the name that it is imported by.
EXTRAS = {
    "docs": "material",
    "dp": "dp_accounting",
    "serve": "grpc",
    "flower": "flwr",
    "lab": "matplotlib",
    "lpips": "lpips",
    "opacus": "opacus",
    "proofs": "coincurve",
    "ray": "ray",
    "trackers": "tensorboard",
    "transfer": "rbcl",
}
COMMANDS = {
    "doctor": ["doctor"],
    "explain": ["explain", "rns-servers"],
    "plan": ["plan", "digits-small"],
    "run": ["run", "digits-small", "--set", "federation.rounds=1"],
    "audit": [
        "audit",
        "digits-small",
        "--fast",
        "-q",
        "source",
        "--against",
        "nothing",
        "--seeds",
        "2",
        "--set",
        "federation.rounds=1",
        "--set",
        "run.workers=1",
    ],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return build_wheel(tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The programs and packages of an environment with the wheel and what it depends on, without extras."""
    return install(wheel, tmp_path_factory.mktemp("installed"))


def test_the_wheel_holds_every_file_of_both_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packaged = {name for name in names if ".dist-info/" not in name}
    files = (path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {path.relative_to(SOURCES).as_posix() for path in files if ".egg-info" not in path.parent.name}
    assert packaged == wanted
    assert {Path(name).suffix for name in wanted} == SHIPPED, "a new kind of file: name it in package-data and here"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_environment_has_what_the_wheel_depends_on_and_nothing_else(installed: tuple[Path, Path]) -> None:
    """Otherwise the commands below might work by what only an extra, or only this tree, brings."""
    programs, packages = installed
    there = {each.name.lower() for each in metadata.distributions(path=[str(packages)])}
    assert there == {"croupier"} | {each.name.lower() for each in dependencies(PROJECT["dependencies"])}
    program = (
        "import json, croupier; from importlib.util import find_spec as find;"
        f"print(json.dumps([croupier.__file__, [name for name in {sorted(EXTRAS.values())} if find(name)]]))"
    )
    done = run_outside([programs / "python", "-c", program], cwd=programs)
    where, of_extras = json.loads(done.stdout)
    assert Path(where).is_relative_to(packages)
    assert of_extras == []


def test_every_extra_is_looked_for() -> None:
    assert EXTRAS.keys() == PROJECT["optional-dependencies"].keys() - {"dev"}


# Each command in turn, in one process: to start five would take most of the time.
IN_TURN = """
import contextlib, io, json, sys
from croupier.cli import main

ended = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["croupier", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as end:
            ended.append([end.code, out.getvalue(), err.getvalue()])
json.dump(ended, sys.stdout)
"""


def _run_in_turn(python: Path, commands: Sequence[Sequence[str]], cwd: Path) -> list[tuple[int, str, str]]:
    """Run commands by a Python; the status, the output and the errors of each."""
    done = run_outside([python, "-c", IN_TURN, json.dumps(commands)], cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def test_without_extras_each_command_gives_one_object(installed: tuple[Path, Path], tmp_path: Path) -> None:
    ended = _run_in_turn(installed[0] / "python", [[*words, "--json"] for words in COMMANDS.values()], tmp_path)
    for words, (code, out, err) in zip(COMMANDS.values(), ended, strict=True):
        assert code == 0, (words, err)
        assert isinstance(json.loads(out), dict)


def test_the_laboratory_says_in_one_line_what_to_install(installed: tuple[Path, Path], tmp_path: Path) -> None:
    done = run_outside([installed[0] / "croupier", "reproduce"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("(matplotlib): pip install 'croupier[lab]'\n")


def test_what_needs_an_extra_says_in_one_line_what_to_install(installed: tuple[Path, Path], tmp_path: Path) -> None:
    needs = [
        ("lab", ["reproduce", "rns/figure1"]),
        ("lab", ["bench", "rns"]),
        ("serve", ["up", "rns-servers"]),
        ("ray", ["run", "digits-small", "--set", "run.engine=ray"]),
    ]
    ended = _run_in_turn(installed[0] / "python", [words for _, words in needs], tmp_path)
    for (extra, _), (code, out, err) in zip(needs, ended, strict=True):
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert f"pip install 'croupier[{extra}]'" in err


def test_flower_says_what_to_install(installed: tuple[Path, Path], tmp_path: Path) -> None:
    program = """
for name in ("protect", "shield"):
    try:
        exec(f"from croupier.flower import {name}")
    except Exception as error:
        print(error)
"""
    done = run_outside([installed[0] / "python", "-c", program], cwd=tmp_path)
    assert [line.endswith("pip install 'croupier[flower]'") for line in done.stdout.splitlines()] == [True, True]


def test_with_its_extra_the_laboratory_lists_what_it_can_reproduce(
    installed: tuple[Path, Path], tmp_path: Path
) -> None:
    """What the extra brings is put behind what is installed, so that the laboratory itself is the wheel's."""
    here = list(dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib")))
    program = (
        f"import sys; sys.path += {here}; sys.argv[1:] = ['reproduce', '--json']; from croupier.cli import main; main()"
    )
    done = run_outside([installed[0] / "python", "-c", program], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rns/figure1" in json.loads(done.stdout)["entries"]


@pytest.mark.long
def test_as_pip_installs_it_each_command_gives_one_object(wheel: Path, tmp_path: Path) -> None:
    """Everything that the wheel depends on comes from where pip takes packages here: this needs its network."""
    programs, packages = make_environment(tmp_path / "empty")
    words = [
        "-m",
        "pip",
        "--python",
        str(programs / "python"),
        "install",
        "--quiet",
        "-c",
        str(TREE / "constraints.txt"),
    ]
    done = run_outside([sys.executable, *words, wheel])
    assert done.returncode == 0, done.stderr
    there = {each.name.lower() for each in metadata.distributions(path=[str(packages)])}
    assert not there & {name.replace("_", "-") for name in (*EXTRAS.values(), "grpcio", "dp-accounting")}
    for each in COMMANDS.values():
        done = run_outside([programs / "croupier", *each, "--json"], cwd=tmp_path)
        assert done.returncode == 0, (each, done.stderr)
        assert isinstance(json.loads(done.stdout), dict)
