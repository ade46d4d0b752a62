"""Parts speak for themselves: who uses one asks it, and does not look at which one it is.

A room that asks `isinstance(encode, HiddenUnits)` must be changed for every new encoder. What it wants to know is a
property or a hook of the base class instead, which a new part can answer.
"""

from __future__ import annotations

import ast
from pathlib import Path

import croupier
import croupier.pipeline
from croupier.core.part import Part

ROOT = Path(croupier.__file__).parent
ROOMS = ("privacy", "encode", "release", "aggregate", "place")
# A placement computes what a release is, and an attack is written for a protocol: both know what they work on.
MAY = {"place", "audit"}


def parts() -> dict[str, str]:
    """Every part of a pipeline that has a name, and the room it lies in."""
    found = {part.__name__: part.__module__.split(".")[1] for part in Part.named.values() if _ours(part)}
    return {name: room for name, room in found.items() if room in ROOMS}


def _ours(part: type[Part]) -> bool:
    return part.__module__.startswith("croupier.")


def asked(source: str) -> set[str]:
    """The classes that a program looks for with isinstance."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            found |= {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    return found


def imported(source: str) -> dict[str, str]:
    """Names that a program takes from rooms of the product, with the room of each."""
    return {
        alias.name: node.module.split(".")[1]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("croupier.")
        for alias in node.names
    }


def looked_at(here: str, source: str) -> set[str]:
    """Concrete parts of other rooms that a program of this room asks for by name."""
    homes, known = imported(source), parts()
    return {name for name in asked(source) & known.keys() if homes.get(name) == known[name] != here}


def test_nobody_looks_at_which_part_it_is() -> None:
    wrong = {}
    for path in ROOT.rglob("*.py"):
        here = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if here not in MAY and (found := looked_at(here, path.read_text("utf-8"))):
            wrong[str(path.relative_to(ROOT))] = found
    assert wrong == {}


def test_one_who_looks_is_caught() -> None:
    program = (
        "from croupier.encode.hidden import HiddenUnits\nfrom croupier.release.sums import Sum\n"
        "def f(x):\n    return isinstance(x, HiddenUnits | Sum) or isinstance(x, int)\n"
    )
    assert looked_at("engine", program) == {"HiddenUnits", "Sum"}
    assert looked_at("encode", program) == {"Sum"}
    # Another thing of the same name is none: records are `Rows` too.
    assert looked_at("learn", "from croupier.learn.data import Rows\nisinstance(1, Rows)\n") == set()
