"""Options that every command shares, worded once."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from croupier.core.part import Part

Sets = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this form
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one key of the description; may be repeated."),
]
Seed = Annotated[Optional[int], typer.Option(help="Reproduce everything from this number.", min=0)]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the whole description as TOML, and stop.")]
Data = Annotated[Optional[Path], typer.Option(help="Data folder; CROUPIER_DATA does the same.")]  # noqa: UP045
OutFile = Annotated[Optional[Path], typer.Option(help="Also write the result to this file, as JSON.")]  # noqa: UP045


def show_config(spec: Part, as_json: bool) -> None:
    """Print the whole description, as TOML or as the one JSON object."""
    from croupier.spec import to_toml

    print(json.dumps(spec.plain(), indent=2, sort_keys=True) if as_json else to_toml(spec).rstrip())


def make_room(path: Path, option: str = "--out") -> None:
    """Make the folder of a file that will be written. Raises: StoreError when that cannot be."""
    from croupier.errors import StoreError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{option} = {path}: cannot make its folder ({error.strerror}); choose another") from None
    if path.is_dir():
        raise StoreError(f"{option} = {path}: is a folder; name a file in it")
    there = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise StoreError(f"{option} = {path}: cannot be written ({error.strerror}); choose another") from None
    if not there:
        path.unlink()


def watch(said: str) -> None:
    """A line on the way, for people who look."""
    if sys.stderr.isatty():
        print(said, file=sys.stderr)


def stamp() -> dict[str, str]:
    """What only this moment knows: date, version and command."""
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"made": made, "version": version("croupier"), "command": " ".join(["croupier", *sys.argv[1:]])}


def emit(value: Mapping[str, Any], as_json: bool, out: Path | None) -> None:
    """Print a result as the one JSON object, and write it to a file, where asked."""
    from croupier.errors import StoreError

    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False)
    if out is not None:
        try:
            out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None
    if as_json:
        print(text)
