"""Parts speak for themselves: who uses one asks it, and does not look at which one it is.

A room that asks `isinstance(encode, HiddenUnits)`, or compares `encode.use` with a name, must be changed for every new
encoder. What it wants to know is a property or a hook of the base class instead, which a new part can answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import croupier
import croupier.audit.described
import croupier.engine.job.run
from croupier.core.part import Part

ROOT = Path(croupier.__file__).parent


def below(part: type[Part]) -> Iterator[type[Part]]:
    """Every class that derives from a part."""
    for each in part.__subclasses__():
        yield each
        yield from below(each)


def parts() -> dict[str, str]:
    """Every part of the product but the base of each slot, and the room it lies in."""
    found = {part for slot in Part.__subclasses__() for part in below(slot)}
    return {part.__name__: part.__module__.split(".")[1] for part in found if part.__module__.startswith("croupier.")}


def asked(source: str) -> set[str]:
    """The classes that a program looks for with isinstance, issubclass or type()."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        kinds: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            kinds = [node.args[1]] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.Compare) and any(_called(side) == "type" for side in (node.left, *node.comparators)):
            kinds = [node.left, *node.comparators]
        found |= {name.id for kind in kinds for name in ast.walk(kind) if isinstance(name, ast.Name)}
        found |= {name.attr for kind in kinds for name in ast.walk(kind) if isinstance(name, ast.Attribute)}
    return found


def _called(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def names_compared(source: str) -> set[str]:
    """The names of parts that a program compares a part's `use` with."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(isinstance(side, ast.Attribute) and side.attr == "use" for side in sides):
                found |= {
                    str(text.value) for side in sides for text in ast.walk(side) if isinstance(text, ast.Constant)
                }
    return found


def rooms_of_names(source: str) -> dict[str, str]:
    """Names that a program takes from rooms of the product, with the room of each."""
    return {
        alias.name: node.module.split(".")[1]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("croupier.")
        for alias in node.names
    }


def looked_at(here: str, source: str) -> set[str]:
    """Concrete parts of other rooms that a program of this room asks for by class or by name."""
    homes, known = rooms_of_names(source), parts()
    classes = {name for name in asked(source) & known.keys() if homes.get(name, known[name]) == known[name] != here}
    return classes | names_compared(source)


def looking() -> dict[str, set[str]]:
    """Every file of the product that looks at which part it is, and at which."""
    wrong = {}
    for path in ROOT.rglob("*.py"):
        file = path.relative_to(ROOT)
        if found := looked_at(file.parts[0].removesuffix(".py"), path.read_text("utf-8")):
            wrong[file.as_posix()] = found
    return wrong


def test_nobody_looks_at_which_part_it_is() -> None:
    assert looking() == {}


def test_one_who_looks_is_caught() -> None:
    program = (
        "from croupier.encode.hidden import HiddenUnits\nfrom croupier.release import bucketed\n"
        "from croupier.release.sums import Sum\n"
        "def f(x):\n    return isinstance(x, HiddenUnits | Sum | bucketed.Tiered) or isinstance(x, int)\n"
    )
    assert looked_at("engine", program) == {"HiddenUnits", "Sum", "Tiered"}
    assert looked_at("place", program) == {"HiddenUnits", "Sum", "Tiered"}
    assert looked_at("encode", program) == {"Sum", "Tiered"}
    assert looked_at("place", "from croupier.release.sums import Sum\ntype(x) is Sum\n") == {"Sum"}
    assert looked_at("pipeline", "encode.use == 'signs'\n") == {"signs"}
    assert looked_at("pipeline", "rule.use in ('mean', 'median')\n") == {"mean", "median"}
    # The base of a slot says which slot it is, and nothing of who fills it.
    assert looked_at("engine", "from croupier.encode.encoder import Encoder\nisinstance(x, Encoder)\n") == set()
    # Another thing of the same name is none.
    assert looked_at("learn", "from croupier.learn.data import Sum\nisinstance(1, Sum)\n") == set()
