"""Builds the wheel and the source archive with bytes that depend on the tree alone: `python -m tools.release OUT`.

Times in the archives are SOURCE_DATE_EPOCH's (by default the last commit's), owners and modes are the same for
everybody, and names are in order. What is built is a copy, so that nothing of an earlier build is found or left.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TREE = Path(__file__).parents[1]
# What the build reads.
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src")
# The archive holds these too: whoever has the source has its rules and its changes.
BESIDE = ("CHANGELOG.md", "SECURITY.md", "constraints.txt", "constraints-lowest.txt")
# By the backend that pyproject.toml names, without a network.
BUILD = """
import sys
from setuptools import build_meta

out = sys.argv[1]  # the backend puts words of its own there
print(build_meta.build_sdist(out), build_meta.build_wheel(out))
"""


def build(tree: Path, out: Path, epoch: int) -> tuple[Path, Path]:
    """The source archive and the wheel of a tree, in a folder that is made. Raises: RuntimeError when it fails."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        copy = _copied(tree, Path(place) / "tree")
        settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        made = subprocess.run(
            [sys.executable, "-c", BUILD, str(out.resolve())],
            cwd=copy, env=settings | {"SOURCE_DATE_EPOCH": str(epoch)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(made.stderr)
        source, wheel = (out / name for name in made.stdout.split()[-2:])
    source.write_bytes(normal(source.read_bytes(), epoch))
    return source, wheel


def _copied(tree: Path, place: Path) -> Path:
    """What the build needs, with one mode for every file: a wheel keeps modes."""
    place.mkdir()
    for name in (*NEEDED, *BESIDE):
        if (tree / name).is_dir():
            shutil.copytree(tree / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif (tree / name).is_file():
            shutil.copyfile(tree / name, place / name)
    (place / "MANIFEST.in").write_text("".join(f"include {name}\n" for name in BESIDE), "utf-8")
    for path in place.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return place


def normal(archive: bytes, epoch: int) -> bytes:
    """The same archive, with its members in order, of one time and of nobody in particular."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(packed.getvalue(), 9, mtime=epoch)


def _epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    said = (
        given
        or subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=TREE, capture_output=True, text=True, check=True
        ).stdout
    )
    return int(said)


def main() -> None:
    """Build into the folder that is named, or dist/."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else TREE / "dist"
    for path in build(TREE, out, _epoch()):
        print(path)


if __name__ == "__main__":
    main()
