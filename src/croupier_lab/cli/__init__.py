"""The commands `croupier reproduce` and `croupier bench`."""

import typer

from croupier_lab.cli import bench, reproduce


def attach(app: typer.Typer) -> None:
    """Add both commands to the product's."""
    app.command("reproduce")(reproduce.command)
    app.add_typer(bench.app, name="bench")
