"""Without the laboratory the product still runs, and its two commands say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

HIDE = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "matplotlib" else found(name, package)
from croupier.cli import main
sys.argv = ["croupier", *{words!r}]
main()
"""


@pytest.mark.parametrize(
    "words", [["reproduce"], ["reproduce", "rns/figure1", "--seeds", "3"], ["bench", "rns", "--json"]]
)
def test_a_command_of_the_laboratory_says_what_to_install(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(words=words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "pip install 'croupier[lab]'" in done.stderr
    assert "matplotlib" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_them_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(words=["--help"])], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert "reproduce" in done.stdout
    assert "bench" in done.stdout
