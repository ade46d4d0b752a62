"""A public class name means one thing: no two modules of the tree define it.

Two names of the audit are still defined twice. They are listed, so that no new one joins them; who mends one takes it
off the list.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tools.count import Module, modules_of, repeated_classes

TWICE = {"Look", "Sum"}
MODULES = modules_of(Path(__file__).parents[2])


def test_no_new_name_is_defined_twice() -> None:
    repeated = repeated_classes(MODULES)
    assert {name: where for name, where in repeated.items() if name not in TWICE} == {}
    # A list that names what is mended already would let it come back.
    assert repeated.keys() >= TWICE


def test_a_second_definition_is_seen() -> None:
    tree = ast.parse("class Twice: ...\nclass _Private: ...")
    planted = [Module("croupier", Path(name), "", tree) for name in ("croupier/a/one.py", "croupier/b/two.py")]
    assert repeated_classes(planted) == {"Twice": ["croupier/a/one.py", "croupier/b/two.py"]}
