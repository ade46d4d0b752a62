"""`croupier accept`: look at a roster, compare its words with another party, and pin it; or see who has done so.

It is the step of the key ceremony in which a person decides: after `croupier enrol` has made a roster, and before
`croupier serve` or `croupier join` starts under it. The roster is pinned by `service.home`; what the commands of the
ceremony say alike is in `cli.rosters`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import click
import typer

from croupier.cli import options
from croupier.cli.rosters import about, changes, facts_of, more_about, now, refuse_given, tell

if TYPE_CHECKING:
    from croupier.service.home import Home
    from croupier.service.roster import Roster

Words = tuple[str, str, str, str, str, str]


# The exit status where no words were given, so that nothing was accepted.
NOT_ACCEPTED = 1


class QuotedWords(typer.core.TyperCommand):
    """The command's class, which takes the words of --yes with quotes around all six, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the quotes off, and go on as ever."""
        told: list[str] = []
        for word in args:
            last = told[-1] if told else ""
            told += word.split() if last == "--yes" and len(word.split()) > 1 else [word]
        return super().parse_args(ctx, told)


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
        typer.Option(help="File for your countersignature; NAME.accepted, or NAME.VERSION.accepted, unless given."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show a roster, compare its words with another party, and pin it: you then take part under it and no other.

    `croupier accept federation.roster --key hospital-a/hospital-a.key`

    `croupier accept federation.roster *.accepted`: who has accepted it, and who has not yet?

    Exit status: 0 accepted or shown, 1 nothing was accepted because no words were given, 2 refused.
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
    plain = f"{home.keys.name}.accepted" if found.version == 1 else f"{home.keys.name}.{found.version}.accepted"
    path = out or Path(plain)
    _check_unused(path, found)
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
        write_whole(path, made.text().encode(), "name another file with --out; the roster is pinned")
        facts["countersignature"] = str(path)
        said = [
            f"accepted: {home.keys.name} takes part under this roster from round {found.from_round} on",
            f"public: {path} (for the others: croupier accept {file} *.accepted shows who has accepted)",
            *_of_others(found, home),
            *_secret(found, home),
            "next: " + _next_step(found, home, file, key),
        ]
    options.give(facts, json, None, lambda: tell(said))
    if not told:
        raise typer.Exit(NOT_ACCEPTED)


def _check_unused(path: Path, found: Roster) -> None:
    """Raises: StoreError when a file is there already that is no countersignature of this roster."""
    from croupier.errors import CroupierError, StoreError
    from croupier.service.acceptance import Acceptance

    if not path.exists():
        return
    try:
        same = Acceptance.read(path).roster == found.digest
    except CroupierError:
        same = False
    if not same:
        raise StoreError(f"{path}: is there already and is of another roster; name another file: --out FILE.accepted")


def _of_others(found: Roster, home: Home) -> list[str]:
    """What else was accepted here: a party of several runs must say which one it starts."""
    others = [run for run in home.runs() if run != found.run]
    if not others:
        return []
    runs = "1 other run" if len(others) == 1 else f"{len(others)} other runs"
    return [f"note: {home.keys.name} has accepted rosters of {runs} before; to start, name this one by --roster"]


def _secret(found: Roster, home: Home) -> list[str]:
    """The fingerprint of the clients' secret, where it is here already."""
    from croupier.service.group import fingerprint, group_check

    if not home.has_group(found):
        return []
    check = group_check(found, home.group(found))
    return [f"clients' secret: {fingerprint(check)} (the same at every client)"]


def _next_step(found: Roster, home: Home, file: Path, key: Path) -> str:
    from croupier.service.home import sealed_name

    if home.keys.name in found.hosts:
        return f"start the host: croupier serve {home.keys.name} --key {key}"
    # Sum servers' tags are what the clients' secret is for.
    if not any(card.role == "sum-server" for card in found.cards):
        return f"start the client: croupier join --key {key}"
    if home.has_group(found):
        return f"start the client: croupier join --key {key}"
    draw = f"croupier group --key {key} --roster {file}"
    opened = f"croupier group --key {key} --open {sealed_name(found)}"
    return f"exactly one client draws the clients' secret ({draw}), and every other opens its file ({opened})"


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
    tell(more_about(found))
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

    read = {path: Acceptance.read(path) for path in files}
    others = [str(path) for path, one in read.items() if one.roster != found.digest]
    left = missing(found, [one for one in read.values() if one.roster == found.digest])
    there = [card.name for card in found.cards if card.name not in left]
    said = [f"accepted by: {', '.join(there) or 'nobody'}", f"not yet by: {', '.join(left) or 'nobody'}"]
    if others:
        said.append(f"of another roster, and not counted: {', '.join(others)}")
    facts = {**facts_of(found), "accepted_by": there, "not_yet_by": list(left), "of_another_roster": others}
    options.give(facts, json, None, lambda: tell([about(found), f"words: {' '.join(found.words)}", *said]))
