"""The layers: every module imports only downward, so that each room can be read without the ones above it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import croupier

ROOT = Path(croupier.__file__).parent
# From the ground up; rooms on one floor may not import each other unless ASIDE says so.
FLOORS = [
    {"errors"},
    {"kernels", "lines", "columns"},
    {"core"},
    {"privacy", "encode", "release", "aggregate", "mpc", "agree"},
    {"place"},
    {"pipeline"},
    {"engine", "statement"},
    {"systems", "learn", "accounts"},
    {"toml_text", "toml_read"},
    {"spec"},
    {"audit", "cautions"},
    {"engine.job"},
    {"service"},
    {"flower"},
    {"outlook", "starter", "advice", "trackers"},
    {"cli"},
    {"__main__"},
]
ASIDE = {("aggregate", "encode"), ("agree", "mpc"), ("encode", "agree")}


def room(module: str) -> str:
    """The first name below the package; whole described runs are a room of their own within the engine."""
    parts = module.split(".")
    if parts[1:3] == ["engine", "job"]:
        return "engine.job"
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> set[str]:
    """The rooms that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "croupier":
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "croupier" else [node.module]
            )
            found |= {room(name) for name in names}
        elif isinstance(node, ast.Import):
            found |= {room(alias.name) for alias in node.names if alias.name.split(".")[0] == "croupier"}
    return found


def wrong(files: dict[Path, set[str]]) -> list[str]:
    """Every import that goes up or sideways."""
    floor = {name: height for height, names in enumerate(FLOORS) for name in names}
    bad = []
    for path, targets in files.items():
        here = room(".".join(("croupier", *path.relative_to(ROOT).with_suffix("").parts)))
        if here == "__init__":
            continue
        for target in targets - {here}:
            allowed = floor[target] < floor[here] or (here, target) in ASIDE
            bad += [] if allowed else [f"{path.relative_to(ROOT)} imports {target}"]
    return bad


def test_imports_go_down() -> None:
    files = {path: imports(path) for path in ROOT.rglob("*.py")}
    assert wrong(files) == []


def drives(source: str) -> bool:
    """Whether a program names what drives rounds or keeps parts in a folder."""
    return bool(re.search(r"^from croupier\.engine\.(local|shelf|store|post|journal|job)\b", source, re.MULTILINE))


def test_only_an_audits_own_front_knows_what_drives_it() -> None:
    """Questions, attacks and the harness are handed what drives rounds and keeps parts."""
    front = {ROOT / "audit" / "described.py"}
    assert {path for path in (ROOT / "audit").rglob("*.py") if drives(path.read_text("utf-8"))} == front


def lab_imports(source: str) -> set[str]:
    """What a program imports of the laboratory."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name for name in names if name.split(".")[0] == "croupier_lab"}
    return found


def test_the_product_never_imports_the_laboratory() -> None:
    assert {path: found for path in ROOT.rglob("*.py") if (found := lab_imports(path.read_text("utf-8")))} == {}
    assert lab_imports("def f():\n    from croupier_lab.papers import cost\nimport croupier_lab as c\n") == {
        "croupier_lab", "croupier_lab.papers",
    }  # fmt: skip


def test_an_import_that_goes_up_is_caught() -> None:
    assert wrong({ROOT / "core" / "coins.py": {"cli"}}) == ["core/coins.py imports cli"]
    assert wrong({ROOT / "encode" / "fixed.py": {"release"}}) == ["encode/fixed.py imports release"]


def test_mechanisms_touch_no_file_and_no_socket() -> None:
    outside = {"socket", "pathlib", "subprocess", "multiprocessing", "threading", "asyncio", "os", "tempfile"}
    for name in ("privacy", "encode", "release", "aggregate", "place"):
        for path in (ROOT / name).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert not names & outside, path
