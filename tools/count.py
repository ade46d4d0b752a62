"""How large the code is, and how much of it breaks the house's own limits: `python tools/count.py [TREE]`.

Prints one table, the product and the laboratory apart. Any tree of this project can be given, also an old one whose
laboratory still lay inside the product. `tests/laws/test_class_names.py` and
`tests/laws/test_limits.py` hold what it finds at nothing.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST_FUNCTION, MOST_PARAMETERS, LONGEST_FILE = 60, 8, 300
LABORATORY_ROOMS = ("papers", "bench")  # where the laboratory lay when it was a part of the product
# The audit's files by their names now, and by those they had before it became one; templates and styles are part of it.
AUDIT_ROOMS = ("audit", "report", "auditing", "recorded", "inquiry", "profiling", "soundness", "disclosure")
AUDIT_COMMANDS = ("audit", "report", "findings", "integrity", "profile", "secrecy")
AUDIT_ASSETS = (".css", ".html", ".js")
PUBLIC = ("audit", "explain", "plan", "resume", "run")  # croupier.run(...) and so on
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of Python: where it lies, its text and its syntax tree."""

    package: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder below the package, or the file's own name where it lies in none."""
        return self.path.parts[1].removesuffix(".py")

    @property
    def in_laboratory(self) -> bool:
        """Whether it belongs to the laboratory and not to the product."""
        return self.package == "croupier_lab" or self.room in LABORATORY_ROOMS

    @property
    def in_audit(self) -> bool:
        """Whether it belongs to the audit or to its two commands."""
        command = self.room == "cli" and self.path.stem in AUDIT_COMMANDS
        return self.package == "croupier" and (self.room in AUDIT_ROOMS or command)

    @property
    def lines(self) -> int:
        """Lines of text."""
        return len(self.text.splitlines())

    def functions(self) -> Iterator[Function]:
        """Every function and method, also inner ones."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        """The classes that other modules can import."""
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))


def modules_of(tree: Path) -> Iterator[Module]:
    """All modules below `src/` of a tree, one after the other: their syntax trees together are large."""
    for package in ("croupier", "croupier_lab"):
        for file in sorted((tree / "src" / package).rglob("*.py")):
            text = file.read_text("utf-8")
            yield Module(package, file.relative_to(tree / "src"), text, ast.parse(text))


def asset_lines(tree: Path) -> int:
    """Lines of the audit that are no Python: what its page is made of."""
    files = (file for file in (tree / "src" / "croupier" / "audit").rglob("*") if file.suffix in AUDIT_ASSETS)
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


def code_lines(module: Module) -> set[int]:
    """The lines that hold code: neither blank, nor comment, nor docstring."""
    source = iter(module.text.splitlines(keepends=True))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    used: set[int] = set()
    for token in tokenize.generate_tokens(lambda: next(source, "")):
        if token.type not in skipped:
            used.update(range(token.start[0], token.end[0] + 1))
    return used - docstring_lines(module)


def docstring_lines(module: Module) -> set[int]:
    """The lines of all docstrings."""
    found: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            found.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def comment_lines(module: Module) -> int:
    """Lines that hold a comment and nothing else."""
    quoted = docstring_lines(module)
    lines = enumerate(module.text.splitlines(), 1)
    return sum(line.lstrip().startswith("#") and number not in quoted for number, line in lines)


def too_long(function: Function) -> bool:
    """Whether a function, its docstring included, is longer than the limit."""
    return (function.end_lineno or 0) - function.lineno + 1 > LONGEST_FUNCTION


def takes_options(function: Function) -> bool:
    """Whether its parameters are options that are named one by one, and so no list that must be remembered.

    These are a command's, where each is an option of the command line; those of the functions that users call from
    Python (`PUBLIC`), all but the first by keyword; and those of a rule in `learn/axes`, which are the ones of the
    torch function that it stands for.
    """
    marks = {ast.unparse(mark).split("(")[0] for mark in function.decorator_list}
    if function.name == "command" or marks & {"app.command", "rule"}:
        return True
    return function.name in PUBLIC and len(function.args.posonlyargs + function.args.args) == 1


def too_many_parameters(function: Function) -> bool:
    """Whether a function takes more than the limit, `self` and `cls` not counted; options are none."""
    if takes_options(function):
        return False
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return sum(parameter.arg not in ("self", "cls") for parameter in named) > MOST_PARAMETERS


def loose_dictionaries(function: Function) -> int:
    """How many of a function's annotations hold `dict[str, Any]`."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    notes = [*(parameter.annotation for parameter in named), function.returns]
    return sum("dict[str, Any]" in ast.unparse(note) for note in notes if note is not None)


def part_rooms(modules: Iterable[Module]) -> dict[str, set[str]]:
    """The rooms that define each part, by its name; the base of a slot, which derives from `Part` itself, is none."""
    defined = [(node, module.room) for module in modules for node in module.classes()]
    parts, before = {"Part"}, 0
    while len(parts) != before:
        before = len(parts)
        parts |= {node.name for node, _ in defined if parts & {ast.unparse(base).split("[")[0] for base in node.bases}}
    rooms: dict[str, set[str]] = defaultdict(set)
    for node, room in defined:
        if node.name in parts - {"Part"} and "Part" not in map(ast.unparse, node.bases):
            rooms[node.name].add(room)
    return rooms


def foreign_checks(module: Module, parts: dict[str, set[str]]) -> int:
    """How often `isinstance` asks for a part class of another room than the module's own."""
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call) and len(node.args) == 2]
    asked = [node.args[1] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "isinstance"]
    names = ({name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)} for kinds in asked)
    return sum(any(name in parts and module.room not in parts[name] for name in each) for each in names)


def repeated_classes(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Public class names that more than one module defines, with these modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.classes():
            if not node.name.startswith("_"):
                places[node.name].append(module.path.as_posix())
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def measures(modules: list[Module], parts: dict[str, set[str]]) -> dict[str, str]:
    """What is printed of the product, or of the laboratory."""
    functions = [function for module in modules for function in module.functions()]
    code = sum(len(code_lines(module)) for module in modules)
    words = sum(len(docstring_lines(module)) + comment_lines(module) for module in modules)
    return {
        "files": f"{len(modules)}",
        "lines": f"{sum(module.lines for module in modules)}",
        "code lines": f"{code}",
        "docstring and comment lines": f"{words}",
        "... per code line": f"{words / max(code, 1):.2f}",
        f"functions over {LONGEST_FUNCTION} lines": f"{sum(map(too_long, functions))}",
        f"functions of over {MOST_PARAMETERS} parameters": f"{sum(map(too_many_parameters, functions))}",
        f"files over {LONGEST_FILE} lines": f"{sum(module.lines > LONGEST_FILE for module in modules)}",
        "isinstance on other rooms' parts": f"{sum(foreign_checks(module, parts) for module in modules)}",
        "public class names defined twice": f"{len(repeated_classes(modules))}",
        "`dict[str, Any]` in signatures": f"{sum(map(loose_dictionaries, functions))}",
        "lines of the audit, in Python": f"{sum(module.lines for module in modules if module.in_audit)}",
    }


def main(arguments: list[str]) -> None:
    """Print the table of one tree; `--names` lists what breaks a limit."""
    names = "--names" in arguments
    tree = Path(next((word for word in arguments if not word.startswith("-")), Path(__file__).parents[1]))
    modules = list(modules_of(tree))
    parts = part_rooms(modules)
    product = measures([module for module in modules if not module.in_laboratory], parts)
    laboratory = measures([module for module in modules if module.in_laboratory], parts)
    print(f"{'':36}{'product':>10}{'laboratory':>12}")
    for label, value in product.items():
        print(f"{label:36}{value:>10}{laboratory[label]:>12}")
    print(f"{'lines of the audit, other':36}{asset_lines(tree):>10}")
    print(f"{'class names defined twice, together':36}{len(repeated_classes(modules)):>10}")
    if names:
        _list_offenders(modules)


def over_limits(module: Module) -> Iterator[tuple[int, str]]:
    """What a module has over a limit: the line, and what it is."""
    if module.lines > LONGEST_FILE:
        yield 1, f"{module.lines} lines"
    for function in module.functions():
        if too_long(function):
            yield function.lineno, f"{function.name} is too long"
        if too_many_parameters(function):
            yield function.lineno, f"{function.name} has too many parameters"


def _list_offenders(modules: list[Module]) -> None:
    for module in modules:
        for line, what in over_limits(module):
            print(f"{module.path}:{line}: {what}")
    for name, where in repeated_classes(modules).items():
        print(f"class {name}: {', '.join(where)}")


if __name__ == "__main__":
    main(sys.argv[1:])
