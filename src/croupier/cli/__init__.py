"""The command line. Commands load what they need when they run, so that help is quick."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from croupier.cli import audit, bench, doctor, explain, plan, reproduce, run
from croupier.errors import CroupierError

app = typer.Typer(
    name="croupier",
    help="Federated learning behind a shuffler, and a plain account of what each party learns.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.command)
app.command("audit")(audit.command)
app.command("reproduce")(reproduce.command)
app.command("explain")(explain.command)
app.command("doctor")(doctor.command)
app.add_typer(bench.app, name="bench")
app.add_typer(plan.app, name="plan")


def _version(asked: bool) -> None:
    if asked:
        print(f"croupier {version('croupier')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    """Federated learning behind a shuffler, and a plain account of what each party learns."""


def main() -> NoReturn:
    """Run the command line; an error that Croupier raises on purpose is one line and a status, never a traceback."""
    try:
        app()
    except CroupierError as error:
        print(f"croupier: error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
