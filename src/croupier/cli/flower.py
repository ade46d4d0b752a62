"""`croupier flower-guard`: which apps a Flower node may run.

A node's operator approves bundles of apps that they have read (`approve`), and puts commands before Flower's own that
run no others (`install`). Both are done by `flower.guard`; here is what they print.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from croupier.cli import options

app = typer.Typer(
    help="Let a Flower node run only apps that you have approved.", no_args_is_help=True, rich_markup_mode="rich"
)
Listed = Annotated[Path, typer.Option("--list", metavar="FILE", help="The list of approved bundles.")]
LISTED = Path("approved.txt")


@app.command("approve")
def approve(
    bundle: Annotated[Path, typer.Argument(metavar="APP", help="A .fab file, or the folder of an app you have read.")],
    listed: Listed = LISTED,
    json: options.Json = False,
) -> None:
    """Put an app's bundle on the list, by its SHA-256.

    `croupier flower-guard approve digitsapp.fab --list /srv/ann/approved.txt`

    Read the app first: it must have croupier.flower.shield among its mods. A bundle that differs in one byte, because a
    file or its version differs, is another bundle.
    """
    from croupier.flower.guard import approve as put

    digest = put(bundle, listed)
    options.give(
        {"bundle": str(bundle), "sha256": digest, "list": str(listed)}, json, None,
        lambda: print(f"approved {bundle.name}: {digest}\nnext: croupier flower-guard install FOLDER --list {listed}"),
    )  # fmt: skip


@app.command("install")
def install(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that will stand first on PATH.")],
    listed: Listed = LISTED,
    json: options.Json = False,
) -> None:
    """Write the commands that stand before Flower's own: approved bundles run, and nothing else does.

    `croupier flower-guard install /srv/ann/guard --list /srv/ann/approved.txt`

    Then start the SuperNode with that folder first: `PATH=/srv/ann/guard:$PATH flower-supernode ...` Its user must be
    able to write there: bundles are unpacked in it. Install again when Flower is upgraded.
    """
    from croupier.flower.guard import install as write

    path = write(folder, listed)
    options.give(
        {"command": str(path), "list": str(listed)}, json, None,
        lambda: print(f"wrote {path}\nnext: PATH={folder.resolve()}:$PATH flower-supernode ..."),
    )  # fmt: skip
