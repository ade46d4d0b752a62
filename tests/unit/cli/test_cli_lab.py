"""Without the laboratory the product still runs, and its two commands say what to install."""

from __future__ import annotations

import pytest
from tests.shell import Shell

from croupier.cli import lab


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """As though matplotlib were not installed."""
    found = lab.find_spec
    monkeypatch.setattr(lab, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    return Shell(monkeypatch, capsys)


@pytest.mark.parametrize(
    "words", [["reproduce"], ["reproduce", "rns/figure1", "--seeds", "3"], ["bench", "rns", "--json"]]
)
def test_a_command_of_the_laboratory_says_what_to_install(shell: Shell, words: list[str]) -> None:
    said = shell.refused(*words)
    assert "pip install 'croupier[lab]'" in said
    assert "matplotlib" in said


def test_help_names_them_all_the_same(shell: Shell) -> None:
    code, out, _ = shell("--help")
    assert code == 0
    assert "reproduce" in out
    assert "bench" in out
