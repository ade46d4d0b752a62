"""A public class name means one thing: no two modules of the tree define it."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.count import Module, modules_of, repeated_classes

REPOSITORY = Path(__file__).parents[2]


def test_no_name_is_defined_twice() -> None:
    assert repeated_classes(modules_of(REPOSITORY)) == {}


def test_a_second_definition_is_seen() -> None:
    tree = ast.parse("class Twice: ...\nclass _Private: ...")
    planted = [Module("croupier", Path(name), "", tree) for name in ("croupier/a/one.py", "croupier/b/two.py")]
    assert repeated_classes(planted) == {"Twice": ["croupier/a/one.py", "croupier/b/two.py"]}
