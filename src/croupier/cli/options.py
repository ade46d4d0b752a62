"""Options that several commands share, worded once.

A command's file says what it does; what many commands have in common (`--set`, `--seed`, `--json`, `--out`, `--data`,
`--print-config`) is declared here, with one wording, for the product's commands and the laboratory's. So is the order
in which a result is shown and then written (`give`): whatever becomes of the file, the result has been seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from croupier.core.part import Part

Sets = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads this form
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one key, as federation.rounds=10; may be repeated."),
]
Seed = Annotated[Optional[int], typer.Option(help="Reproduce everything from this number.", min=0)]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on standard output.")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the whole description as TOML, and stop.")]
Data = Annotated[Optional[Path], typer.Option(help="Data folder; CROUPIER_DATA does the same.")]  # noqa: UP045


def descriptions(incomplete: str) -> list[str]:
    """Presets, and TOML files, that begin like this: for a shell's completion."""
    from croupier.toml_read import presets

    folder = Path(incomplete).parent if incomplete else Path()
    beside = sorted(str(file) for file in folder.glob("*.toml"))
    return [name for name in (*presets(), *beside) if name.startswith(incomplete)]


def need(module: str, extra: str) -> None:
    """See that an extra is installed. Raises: SpecError that says how to install it."""
    from importlib.util import find_spec

    from croupier.errors import SpecError

    if find_spec(module) is None:
        raise SpecError(f"{module} is not installed: pip install 'croupier[{extra}]'")


def show_config(spec: Part, as_json: bool, supposed: bool = False) -> None:
    """Print the whole description, as TOML or as the one JSON object.

    With `supposed` the number of clients was not said but only supposed, and is left out.
    """
    from croupier.toml_text import to_toml

    table = spec.plain()
    if supposed:
        del table["protocol"]["encode"]["clients"]
        table["protocol"]["encode"] |= {} if as_json else {"clients": None}
    print(json.dumps(table, indent=2, sort_keys=True) if as_json else to_toml(table).rstrip())


def check_room(path: Path, option: str = "--out") -> None:
    """See that a file can be written, before the work and not after; nothing is left behind. Raises: StoreError."""
    from croupier.core.files import drop_folders, make_folder
    from croupier.errors import StoreError

    if path.is_dir():
        raise StoreError(f"{option} = {path}: is a folder; name a file in it")
    there = path.exists()
    try:
        made = make_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{option} = {path}: cannot make its folder ({error.strerror}); choose another") from None
    try:
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise StoreError(f"{option} = {path}: cannot be written ({error.strerror}); choose another") from None
    finally:
        drop_folders(made)


def caution(source: str, sets: Sequence[str]) -> None:
    """Say on standard error what is odd about a description, as it was read, before any work."""
    from croupier.cautions import at_reading

    for text in at_reading(source, sets):
        print(f"{source}: warning: {text}", file=sys.stderr)


def _roomy(path: Path | None) -> Path | None:
    if path is not None:
        check_room(path)
    return path


def _roomy_csv(path: Path | None) -> Path | None:
    """See that `--csv` can be written, before the work."""
    if path is not None:
        check_room(path, "--csv")
    return path


CsvFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--csv", help="Also write the numbers of every round into this CSV file.", callback=_roomy_csv),
]
Track = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(metavar="TO=WHERE", help="Tell each round to tensorboard=FOLDER or mlflow=ADDRESS (extra trackers)."),
]
OutFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(help="Also write the result to this file, as JSON.", callback=_roomy),
]


def stamp() -> dict[str, str]:
    """What only this moment knows: date, version and command."""
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"made": made, "version": version("croupier"), "command": " ".join(["croupier", *sys.argv[1:]])}


def give(value: Mapping[str, Any], as_json: bool, out: Path | None, show: Callable[[], None] = lambda: None) -> None:
    """Show a result, as the one JSON object or for people, and only then write it to a file, where one is named."""
    if as_json:
        print(_text(value), end="", flush=True)
    else:
        show()
        sys.stdout.flush()
    if out is not None:
        write_json(out, value)


def write_json(path: Path, value: Mapping[str, Any], option: str = "--out") -> None:
    """Put a result into a file. Raises: StoreError when that cannot be."""
    write(path, _text(value), option)


def write(path: Path, text: str, option: str = "--out") -> None:
    """Put text into a file, whole or not at all. Raises: StoreError when that cannot be."""
    from croupier.core.files import write_whole

    write_whole(path, text.encode(), f"free space, or choose another {option}")


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
