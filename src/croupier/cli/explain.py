"""`croupier explain`: who learns what, who must not collude, and what is not claimed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.statement import Statement


def command(
    spec: Annotated[str, typer.Argument(help="A preset or TOML file.")] = "digits",
    sets: options.Sets = None,
    seed: options.Seed = None,
    out: options.OutFile = None,
    print_config: options.PrintConfig = False,
    json: options.Json = False,
) -> None:
    """State what each party learns in a run, composed from what its parts reveal.

    `croupier explain digits-shuffled`

    `croupier explain digits --set protocol.place=relay --json`
    """
    from croupier.federate import check
    from croupier.spec import load
    from croupier.statement import explain

    described = load(spec, sets or ())
    if print_config:
        options.show_config(described, json)
        return
    # A statement about a run that would be refused is worth nothing; natural clients are counted when they are loaded.
    clients = getattr(described.task.split, "clients", None)
    if clients is not None:
        check(described.protocol, clients, described.federation)
    statement = explain(described.protocol)
    options.emit({"name": described.name, "seed": seed, **statement.plain()}, json, out)
    if not json:
        _show(described.name, statement)


def _show(name: str, statement: Statement) -> None:
    print(f"{name}: {statement.backend}\n")
    for who, what in statement.learns.items():
        _line(f"{who} learns", what)
    _line(
        "must not collude",
        "; ".join(" with ".join(pair) for pair in statement.must_not_collude) or "nobody is kept apart",
    )
    rest: dict[str, Any] = statement.plain()
    for key in ("privacy_threshold", "integrity_threshold", "liveness_threshold"):
        _line(key.replace("_", " "), rest[key])
    for line in statement.encoding:
        _line("encoding", line)
    for key in ("differential_privacy", "robustness", "anonymity"):
        _line(key.replace("_", " "), rest[key])


def _line(head: str, text: str) -> None:
    print(textwrap.fill(text, 100, initial_indent=f"{head + ':':<22} ", subsequent_indent=" " * 23))
