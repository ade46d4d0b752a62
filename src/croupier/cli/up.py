"""`croupier up`: every party of a description as a process of its own on this machine, for trying a deployment out.

`service.up` starts the parties and hears from them; here is what is shown meanwhile, a live table on a terminal and
lines anywhere else, and the table of what each party sent and used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from croupier.service.up import UpResult, Watch


def command(
    spec: Annotated[str, typer.Argument(metavar="[SPEC]", help="A preset or TOML file.")] = "rns-servers",
    sets: options.Sets = None,
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Draw everything from this number, as `croupier run --seed` does.", min=0),
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """Run every party as a process of its own: fresh keys, mutual TLS, a store each; all is gone at the end.

    `croupier up rns-servers`: ten clients, three sum servers and the server, on this machine.

    It shows what a deployment does, and protects nobody: one machine holds everybody's keys.
    """
    from croupier.spec import counted, load

    options.need("grpc", "serve")
    from croupier.service.up import up

    described = load(spec, sets or (), count=counted(data))
    live = not json and sys.stderr.isatty()
    with _watching(described.name, quiet=json, live=live) as watch:
        found = up(described, seed=seed, data=data, watch=watch)
    options.give({"name": described.name, **found.plain()}, json, None, lambda: _show(found, told=not live))


@contextmanager
def _watching(name: str, quiet: bool, live: bool) -> Iterator[Watch]:
    """A live table on a terminal; a line for each round, once it has ended, anywhere else."""
    if not live:
        yield lambda event, facts: None if quiet else _line(event, facts)
        return
    from rich.console import Console
    from rich.live import Live

    parties: dict[str, str] = {}
    with Live(console=Console(stderr=True), refresh_per_second=8, transient=True) as table:

        def watch(event: str, facts: Mapping[str, Any]) -> None:
            parties[str(facts.get("party", ""))] = _said(event, facts)
            table.update(_live(name, parties))

        yield watch


def _line(event: str, facts: Mapping[str, Any]) -> None:
    """Rounds are results and go to standard output; troubles go to standard error."""
    if event == "round":
        print(_said(event, facts), flush=True)
    elif event in ("restarted", "failed", "error"):
        print(f"{facts.get('party', '')}: {_said(event, facts)}", file=sys.stderr)


def _said(event: str, facts: Mapping[str, Any]) -> str:
    if event == "round":
        # A server that cannot read its models has nothing to tell of them.
        measured = f"{_measured(facts)}, " if _measured(facts) else ""
        return f"round {facts['round']}: {measured}{facts['present']} of {facts['invited']} clients"
    return f"{event}: {facts['why']}" if "why" in facts else str(event)


def _measured(facts: Mapping[str, Any]) -> str:
    return next((f"{key} {facts[key]:.4g}" for key in ("accuracy", "mae", "loss") if key in facts), "")


def _live(name: str, parties: Mapping[str, str]) -> Table:
    from rich.table import Table

    table = Table(title=f"{name}, each party a process", title_justify="left")
    table.add_column("party")
    table.add_column("now")
    for party in sorted(parties):
        table.add_row(party, parties[party])
    return table


def _show(found: UpResult, told: bool) -> None:
    """What came out; rounds only where they were not told one by one."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for line in () if told else found.rounds:
        console.print(_said("round", line), highlight=False)
    if found.only_clients_read:
        console.print(f"The last model, measured as a client would: {_measured(found.rounds[-1])}.", highlight=False)
    table = Table(title="Bytes of messages, processor seconds and memory of each party", title_justify="left")
    for head in ("party", "in", "out", "seconds", "MB"):
        table.add_column(head, justify="left" if head == "party" else "right")
    for name, facts in sorted(found.parties.items()):
        table.add_row(
            name, f"{facts['bytes_in']:,}", f"{facts['bytes_out']:,}", f"{facts['seconds']:.2f}",
            f"{facts['peak_bytes'] / 1e6:.0f}",
        )  # fmt: skip
    console.print(table)
    console.print(f"{found.seconds:.1f} s in all. One machine held every key: this protects nobody.", highlight=False)
