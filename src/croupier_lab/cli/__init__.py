"""The commands `croupier reproduce` and `croupier bench`.

`croupier.cli.lab` calls `attach` where this package and what it needs are installed; the product's command line knows
no more of it.
"""

import typer

from croupier_lab.cli import bench, reproduce


def attach(app: typer.Typer) -> None:
    """Add both commands to the product's."""
    app.command("reproduce")(reproduce.command)
    app.add_typer(bench.app, name="bench")
