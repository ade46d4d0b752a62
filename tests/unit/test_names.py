"""What the package offers by name, and what it costs to ask."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import click
import pytest
import typer
from tests.forks import in_forks
from typer.main import get_command

import croupier
from croupier.audit import described as auditing
from croupier.cli import app

NAMES = [
    "CroupierError", "CroupierWarning", "Forecast", "Pipeline", "Report", "Result", "Spec", "Statement", "audit",
    "explain", "intra", "intra_sum", "load", "moduli", "naive", "plain", "plan", "presets", "rain", "resume", "rns",
    "run", "sum_servers", "tazza", "total",
]  # fmt: skip


def test_the_names_are_these() -> None:
    assert list(croupier.__all__) == NAMES
    assert dir(croupier) == NAMES


# `croupier.audit` is a folder too: importing from it must leave it callable, whatever came first.
AUDITED = (
    "import croupier\n{first}\nfrom croupier.audit.attacks import source\nimport croupier.core.intervals\n"
    "try:\n    croupier.audit('digits', seeds=1)\nexcept croupier.CroupierError as error:\n    print(error)\n"
)
REFUSED = "seeds = 1: intervals are over runs; ask for at least 2\n"
# What programs print that import names in a fresh process.
PROGRAMS = {
    f"from croupier import {', '.join(NAMES)}\nprint([n for n in {NAMES} if not callable(globals()[n])])": "[]\n",
    "import croupier\nfor _ in range(2): print(callable(croupier.run), callable(croupier.explain))": "True True\n" * 2,
    **{
        AUDITED.format(first=first): REFUSED
        for first in ("", "croupier.audit", "from croupier import audit", "croupier.explain")
    },
}


def test_every_name_can_be_imported_by_a_program_and_stays_what_it_is() -> None:
    assert dict(zip(PROGRAMS, in_forks([*PROGRAMS]), strict=True)) == PROGRAMS


@pytest.mark.parametrize("name", [name for name in NAMES if name != "audit"])
def test_no_module_has_the_name_of_a_thing(name: str) -> None:
    """Importing a module of that name would put it in the place of the function; a folder of data is none."""
    found = importlib.util.find_spec(f"croupier.{name}")
    assert found is None or found.origin is None


def test_the_version_is_the_packages() -> None:
    assert croupier.__version__ == version("croupier")


FUNCTIONS = [name for name in NAMES if name[0].islower() and name != "presets"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_documented(name: str) -> None:
    function = auditing.audit if name == "audit" else getattr(croupier, name)
    said = inspect.getdoc(function) or ""
    listed = {word.strip() for line in said.splitlines() if ":" in line for word in line.partition(":")[0].split(",")}
    assert set(inspect.signature(function).parameters) <= listed, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        croupier.rum  # noqa: B018


def test_help_needs_no_torch() -> None:
    program = (
        "import sys, croupier, croupier.cli\n"
        "sys.argv = ['croupier', 'run', '--help']\n"
        "try:\n    croupier.cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print([name for name in ('torch', 'numpy', 'numba', 'sklearn', 'cryptography') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


UNUSED = (
    "sympy", "scipy", "sklearn", "numba", "ray", "croupier_lab", "croupier.cli.serve", "croupier.agree.board",
    "croupier.encode.symmetry", "croupier.learn.on_ray",
)  # fmt: skip


def test_a_plain_run_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    program = (
        "import sys, croupier.cli\n"
        f"sys.argv = ['croupier', 'run', 'digits', '--set', 'federation.rounds=1', '--out', '{tmp_path / 'run'}']\n"
        "try:\n    croupier.cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print([name for name in {UNUSED} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_ships_its_types_and_presets() -> None:
    assert (resources.files("croupier") / "py.typed").is_file()
    assert (resources.files("croupier") / "presets" / "digits.toml").is_file()


@cache
def _commands() -> dict[str, typer.core.TyperCommand]:
    found: dict[str, typer.core.TyperCommand] = {}

    def walk(name: str, command: object) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            assert isinstance(command, typer.core.TyperCommand)
            found[name] = command
        for key, value in (inner or {}).items():
            walk(f"{name} {key}".strip(), value)

    walk("", get_command(app))
    return found


def _params(command: click.Command) -> list[click.Parameter]:
    """All of them: a bench takes its own from its module only when they are asked for."""
    return command.get_params(click.Context(command))


COMMANDS = [
    "accept", "audit", "bench accuse", "bench agree", "bench attack", "bench clients", "bench clusters",
    "bench coverage", "bench disaggregate", "bench faults", "bench flower", "bench fuzz", "bench gates",
    "bench intra", "bench large", "bench mix", "bench opened", "bench permutation", "bench rain", "bench reveal",
    "bench rns", "bench scale", "bench serve", "bench shuffles", "bench simulate", "bench start", "bench sum",
    "bench tamper", "bench tazza", "compare", "doctor", "enrol", "explain", "flower-guard approve",
    "flower-guard install", "group", "init", "join", "keygen", "plan dp", "plan run", "recommend", "report compare",
    "reproduce", "rotate", "run", "serve", "up",
]  # fmt: skip
COMMON = {"--print-config", "--seed", "--out", "--json"}
# A reproduction is many descriptions at once, so there is not one to print; a plan comes before any, and draws nothing.
LACKS = {
    "reproduce": {"--print-config"}, "plan dp": {"--print-config", "--seed"},
    "compare": {"--print-config", "--seed"},
    "report compare": {"--print-config", "--seed"}, "init": {"--print-config", "--seed"},
    "recommend": {"--seed"},
    # A list of digests is a file that is named otherwise.
    **{f"flower-guard {name}": {"--print-config", "--seed", "--out"} for name in ("approve", "install")},
    # Keys and rosters are secret or belong to everybody: no seed may repeat them.
    **{name: {"--print-config", "--seed"} for name in ("accept", "enrol", "group", "keygen")},
    "rotate": {"--print-config", "--seed", "--out"},
    # Parties go by a roster that others made too, and draw from the system; what `up` makes is gone at its end.
    "join": {"--print-config", "--seed", "--out"}, "serve": {"--print-config", "--seed"},
    "up": {"--print-config", "--out"},
}  # fmt: skip


def test_the_commands_are_these() -> None:
    assert sorted(_commands()) == COMMANDS


def test_the_questions_are_these_and_all_are_told_of() -> None:
    from croupier.audit.question import Question

    assert set(Question.choices()) == set(auditing.ORDER)
    assert all(f"({one})" in str(_commands()["audit"].help) for one in auditing.ORDER)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_common_options_and_says_what_they_do(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from croupier.cli import main

    monkeypatch.setattr(sys, "argv", ["croupier", *name.split(), "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr().out
    options = [option for option in _params(_commands()[name]) if option.param_type_name == "option"]
    names = {word for option in options for word in option.opts}
    assert names & COMMON == COMMON - LACKS.get(name, set())
    assert all(word in said for word in names)
    assert all(getattr(option, "help", None) for option in options if option.name != "help")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_bracket_of_a_help_text_is_taken_for_markup(name: str) -> None:
    from rich.text import Text

    command = _commands()[name]
    for said in (command.help or "", *(getattr(option, "help", None) or "" for option in _params(command))):
        assert Text.from_markup(said).plain == said.replace("\\[", "[")
