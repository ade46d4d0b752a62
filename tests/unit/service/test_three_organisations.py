"""The example of three organisations: its scripts work, and every file names commands and options that there are."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from croupier.cli import app

FOLDER = Path(__file__).parents[3] / "examples" / "three-organisations"
PARTIES = {"north-hospital", "south-hospital", "laboratory", "server", "sum1", "sum2", "sum3"}
UNITS = sorted(FOLDER.glob("*.service"))


def check_command(words: list[str]) -> None:
    """Let the command line itself read the words, up to where it would run them."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    command = root.commands[words[0]]
    command.make_context(words[0], words[1:])


def commands(text: str) -> Iterator[list[str]]:
    """Every `croupier ...` of a page's code."""
    code = False
    for line in text.splitlines():
        code ^= line.strip().startswith("```")
        if code and line.strip().startswith("croupier "):
            yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize(
    "page", [FOLDER / "README.md", FOLDER.parents[1] / "docs" / "deploy.md"], ids=lambda one: one.name
)
def test_every_command_of_the_pages_is_one(page: Path) -> None:
    text = page.read_text("utf-8")
    inline = re.findall(r"`(croupier [a-z]+ [^`]*--key [^`]*)`", text)
    found = [*commands(text), *(shlex.split(one)[1:] for one in inline)]
    assert len(found) >= 4
    for words in found:
        check_command(words)


def test_a_command_that_is_none_is_found() -> None:
    with pytest.raises(click.ClickException):
        check_command(["join", "--key", "a.key", "--colour", "red"])
    with pytest.raises(KeyError):
        check_command(["conjure"])


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_units_parse_and_start_a_command_that_there_is(unit: Path) -> None:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string(unit.read_text("utf-8"))
    service = found["Service"]
    command, *words = shlex.split(service["ExecStart"])
    assert Path(command).name == "croupier"
    check_command([word.replace("%i", "sum1") for word in words])
    assert (service["KillSignal"], service["RestartPreventExitStatus"]) == ("SIGTERM", "2 3")


def test_containers_parse_and_run_every_party() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))["services"]
    assert set(services) == PARTIES
    for name, service in services.items():
        check_command(service["command"])
        assert f"keys/{name}/{name}.key" in service["command"]
        assert ("expose" in service) == (service["command"][0] == "serve")
    lines = [line for line in (FOLDER / "Containerfile").read_text("utf-8").splitlines() if line[:1].isupper()]
    assert {line.split()[0] for line in lines} == {
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "WORKDIR",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert json.loads(next(line for line in lines if line.startswith("ENTRYPOINT")).split(maxsplit=1)[1]) == [
        "croupier"
    ]


def test_scripts_parse() -> None:
    for script in FOLDER.glob("*.sh"):
        subprocess.run(["sh", "-n", str(script)], check=True)


@pytest.mark.long
def test_the_ceremony_and_a_run_on_one_machine(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    environment = {
        **os.environ, "CROUPIER": f"{sys.executable} -m croupier", "PORT": str(min(port, 60000)),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    for script in ("ceremony.sh", "run.sh"):
        done = subprocess.run(
            ["sh", str(FOLDER / script), str(tmp_path / "three")], env=environment, capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout[done.stdout.index("{") :])
    assert (summary["rounds"], summary["final"]["present"]) == (3, 3)
    assert (tmp_path / "three" / "laboratory" / "results" / "model.safetensors").exists()
    said = "".join(path.read_text() for path in (tmp_path / "three").glob("*/*.log"))
    assert said.count('"event": "over"') == len(PARTIES)
    assert '"event": "refused"' not in said
