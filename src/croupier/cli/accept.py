"""`croupier accept`: look at a roster, compare its words with another party, and pin it; or see who has done so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import click
import typer

from croupier.cli import options
from croupier.cli.rosters import about, changes, facts_of, now, refuse_given, tell

if TYPE_CHECKING:
    from croupier.service.home import Home
    from croupier.service.roster import Roster

Words = tuple[str, str, str, str, str, str]


def command(
    roster: Annotated[Path, typer.Argument(metavar="FILE.roster", help="The roster.")],
    accepted: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(metavar="[NAME.accepted...]", help="Others' countersignatures: who has accepted, who has not?"),
    ] = None,
    key: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--key", metavar="NAME.key", help="Your key file: accept the roster yourself."),
    ] = None,
    yes: Annotated[
        Optional[Words],  # noqa: UP045
        typer.Option(metavar="SIX WORDS", help="The words that another party read to you; asked for unless given."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File for your countersignature; NAME.accepted unless given."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show a roster, compare its words with another party, and pin it: you then take part under it and no other.

    `croupier accept federation.roster --key hospital-a/hospital-a.key`

    `croupier accept federation.roster *.accepted`: who has accepted it, and who has not yet?
    """
    from croupier.errors import RosterError
    from croupier.service.roster import Roster

    found = Roster.read(roster)
    if key is None:
        refuse_given({"--yes": yes, "--out": out}, "belongs to --key; name your key file")
        _collected(found, accepted or [], json)
        return
    if accepted:
        raise RosterError(f"{accepted[0]}: look at others' countersignatures without --key")
    _accept(found, roster, key, yes, out, json)


def _accept(found: Roster, file: Path, key: Path, yes: Words | None, out: Path | None, json: bool) -> None:
    from croupier.core.files import write_whole
    from croupier.service.home import Home
    from croupier.service.words import check_words

    home, today = Home.open(key), now()
    home.check_next(found)
    for card in found.cards:
        card.check_time(today)
    if not json:
        _show(found, home)
    told = tuple(yes) if yes is not None else _asked(json)
    if told:
        check_words(told, found.words)
    facts = {"file": str(file), "name": home.keys.name, "accepted": bool(told), **facts_of(found)}
    said = [f"nothing was accepted yet; once the words agree: croupier accept {file} --key {key} --yes THE SIX WORDS"]
    if told:
        made = home.pin(found, today.date())
        path = out or Path(f"{home.keys.name}.accepted")
        write_whole(path, made.text().encode(), "name another file with --out; the roster is pinned")
        facts["countersignature"] = str(path)
        said = [
            f"accepted: {home.keys.name} takes part under this roster from round {found.from_round} on",
            f"public: {path} (for the others: croupier accept {file} *.accepted shows who has accepted)",
            "next: " + _next_step(found, home, file, key),
        ]
    options.give(facts, json, None, lambda: tell(said))


def _next_step(found: Roster, home: Home, file: Path, key: Path) -> str:
    if home.keys.name in found.hosts:
        return "start the host"
    # Sum servers' tags are what the clients' secret is for.
    if not any(card.role == "sum-server" for card in found.cards):
        return "start the client"
    draw = f"croupier group --key {key} --roster {file}"
    return f"one client draws the clients' secret ({draw}) and the others open its file; then start the client"


def _show(found: Roster, home: Home) -> None:
    from rich.markup import escape
    from rich.table import Table

    from croupier.cli.fit import line, show

    print(line(f"{found.spec.name}: {about(found)}"))
    table = Table("party", "role", "address", "identity", "certificate until")
    for card in found.cards:
        me = " (you)" if card.name == home.keys.name else ""
        # An address may hold brackets, which a table would take for markup.
        shown = (card.name + me, card.role, escape(card.address), card.identity.hex()[:16])
        table.add_row(*shown, f"{card.expires:%Y-%m-%d}")
    show(table)
    tell(changes(next(iter(home.pinned(found.run)[-1:]), None), found))
    print(f"words:  {' '.join(found.words)}")
    print(f"digest: {found.digest.hex()}")
    print(line("Call at least one other organisation, on a number that you knew before, and compare the six words."))


def _asked(json: bool) -> tuple[str, ...]:
    """The words that somebody types; none where nobody can be asked."""
    if json or not _at_a_terminal():
        return ()
    try:
        return tuple(str(typer.prompt("The six words that the other party read to you")).split())
    except click.Abort:
        # Ctrl-C or the end of the input: nothing is accepted, and that is said.
        print()
        return ()


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _collected(found: Roster, files: list[Path], json: bool) -> None:
    from croupier.service.acceptance import Acceptance, missing

    left = missing(found, [Acceptance.read(path) for path in files])
    there = [card.name for card in found.cards if card.name not in left]
    said = [f"accepted by: {', '.join(there) or 'nobody'}", f"not yet by: {', '.join(left) or 'nobody'}"]
    facts = {**facts_of(found), "accepted_by": there, "not_yet_by": list(left)}
    options.give(facts, json, None, lambda: tell([about(found), f"words: {' '.join(found.words)}", *said]))
