"""A bug report tells of versions and parts, and nothing of who asks: what is planted here never comes out."""

from __future__ import annotations

import getpass
import json
import platform
import socket
from pathlib import Path

import pytest
from tests.shell import Shell

from croupier.cli import bug_report
from croupier.cli.bug_report import parts_of
from croupier.spec import load

PLANTED = "xyzzy"
DESCRIPTION = f"""
[task]
data = "digits"
warm = "/home/{PLANTED}-user/{PLANTED}-weights.safetensors"
model = {{ use = "own", make = "{PLANTED}_net:make" }}

[protocol]
use = "rns-servers"
"""


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def report(words: list[str], shell: Shell) -> tuple[dict[str, object], str]:
    code, out, err = shell("doctor", "--report", *words)
    assert (code, err) == (0, "")
    return json.loads(out), out


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, a description, keys and an environment that all hold what must not come out."""
    folder = tmp_path / f"{PLANTED}-folder"
    folder.mkdir()
    (folder / f"{PLANTED}.key").write_text(f"{PLANTED}-private-key")
    file = folder / f"{PLANTED}.toml"
    file.write_text(DESCRIPTION)
    monkeypatch.chdir(folder)
    for name in ("CROUPIER_DATA", "HOME", "USER", "HOSTNAME", "HTTPS_PROXY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"/{PLANTED}/{name}")
    host = f"{PLANTED}-host.example.org"
    for module, name in ((socket, "gethostname"), (platform, "node"), (getpass, "getuser")):
        monkeypatch.setattr(module, name, lambda: host)
    monkeypatch.setattr(platform, "release", lambda: f"6.1.0-{PLANTED}-kernel")
    return file


def test_nothing_that_is_planted_comes_out(planted: Path, shell: Shell) -> None:
    found, out = report([str(planted)], shell)
    assert PLANTED not in out
    assert str(planted.parent) not in out
    assert found["data_folder_given"] is True
    assert found["kernel"] == "6.1"
    parts = found["parts"]
    assert isinstance(parts, dict)
    assert parts["task.model"] == "own"
    assert parts["protocol.place"] == "sum-servers"


def test_a_version_that_is_no_version_is_not_told(planted: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setattr(bug_report, "version", lambda name: f"built by {PLANTED} in /home/{PLANTED}")
    found, out = report([], shell)
    assert PLANTED not in out
    assert found["croupier"] == "not a plain version"


def test_it_says_what_who_mends_must_know(shell: Shell) -> None:
    found, _ = report(["rain"], shell)
    packages = found["packages"]
    assert isinstance(packages, dict)
    assert packages["torch"]
    assert found["parts"] == parts_of(load("rain"))
    assert found["python"] == platform.python_version()


def test_without_a_description_it_names_no_parts(shell: Shell) -> None:
    assert report([], shell)[0]["parts"] == {}
