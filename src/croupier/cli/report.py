"""`croupier report`: what audits wrote, read again.

Its one command, `compare`, sets the JSON files of two audits side by side, for instance before and after a change of
the protocol; `audit.report.compare` finds the differences.
"""

from __future__ import annotations

import json as as_json
from pathlib import Path
from typing import Annotated, Any

import typer

from croupier.cli import options

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def group() -> None:
    """Read again what audits wrote."""


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(help="The JSON of an audit.")],
    second: Annotated[Path, typer.Argument(help="The JSON of a later one.")],
    out: options.OutFile = None,
    json: options.Json = False,
) -> None:
    """What changed from one audit to another: gains, statuses, accuracy and bytes, and settings that differ.

    `croupier report compare audits/monday.json audits/friday.json`
    """
    from croupier.audit.report.compare import compare as compared
    from croupier.audit.report.compare import lines
    from croupier.cli.fit import wrapped

    found = compared(_read(first), _read(second))
    options.give(found, json, out, lambda: print("\n".join(wrapped(one, "") for one in lines(found))))


def _read(path: Path) -> Any:
    """Raises: StoreError where there is no such file; SpecError where it is no JSON."""
    from croupier.errors import SpecError, StoreError

    try:
        return as_json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); give the JSON beside an audit's page") from None
    except ValueError:
        raise SpecError(f"{path}: is no JSON; give the .json that lies beside an audit's page") from None
