"""The command line. Commands load what they need when they run, so that help is quick."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from croupier.cli import bench, doctor, explain, run
from croupier.errors import CroupierError

app = typer.Typer(
    name="croupier",
    help="Federated learning behind a shuffler, and a plain account of what each party learns.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("run")(run.command)
app.command("explain")(explain.command)
app.command("doctor")(doctor.command)
app.add_typer(bench.app, name="bench")


def main() -> NoReturn:
    """Run the command line; an error that Croupier raises on purpose is one line and a status, never a traceback."""
    try:
        app()
    except CroupierError as error:
        print(f"croupier: error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
