"""The limits of the house: no function, list of parameters or file is longer than a reader takes in at once."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.count import LONGEST_FILE, Module, modules_of, over_limits

REPOSITORY = Path(__file__).parents[2]


def planted(source: str) -> list[str]:
    """What is over a limit in a program."""
    return [said for _, said in over_limits(Module("croupier", Path("croupier/a/one.py"), source, ast.parse(source)))]


def test_nothing_is_over_a_limit() -> None:
    assert [f"{module.path}: {said}" for module in modules_of(REPOSITORY) for _, said in over_limits(module)] == []


def test_what_is_over_a_limit_is_seen() -> None:
    assert planted("def f():\n" + "    pass\n" * 60) == ["f is too long"]
    assert planted("def f(a, b, c, d, e, f, g, h, i): ...") == ["f has too many parameters"]
    assert planted("x = 1\n" * (LONGEST_FILE + 1)) == [f"{LONGEST_FILE + 1} lines"]


def test_options_are_no_list_to_remember() -> None:
    many = "a, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1"
    assert planted(f"def command({many}): ...") == []
    assert planted(f"@rule('conv2d')\ndef conv({many}): ...") == []
    assert planted("def run(a, *, b=1, c=1, d=1, e=1, f=1, g=1, h=1, i=1): ...") == []
    # By position it is such a list all the same.
    assert planted(f"def run({many}): ...") == ["run has too many parameters"]
