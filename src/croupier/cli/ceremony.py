"""`croupier keygen`, `enrol`, `accept`, `group` and `rotate`: how organisations come to know each other's keys.

Each prints what it made, what of it is secret, who gets what, and what comes next; private keys and secrets go into
files only. The values are in `service`.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from croupier.cli import options

if TYPE_CHECKING:
    from croupier.service.home import Home
    from croupier.service.roster import Roster, Timetable

Words = tuple[str, str, str, str, str, str]
Key = Annotated[Path, typer.Option("--key", metavar="NAME.key", help="Your key file.")]
Days = Annotated[int, typer.Option(help="Days for which the certificate is good.")]
DAYS = 398


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _tell(lines: list[str]) -> None:
    from croupier.cli.fit import line

    for one in lines:
        print(line(one))


def keygen(
    name: Annotated[str, typer.Argument(help="The party's name: server, relay, sum1, ..., or any name of a client.")],
    role: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="client, server, relay, sum-server, second or dealer; follows from the name."),
    ] = None,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where others dial it; not for clients.")] = "",
    days: Days = DAYS,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder for the keys, which only you may enter; called like the party unless given."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make the keys of one party: private ones for yourself, and a signed card for the others.

    `croupier keygen hospital-a`

    `croupier keygen sum1 --role sum-server --address sums.example.org:7443`
    """
    from croupier.core.coins import Coins
    from croupier.service.card import check_role
    from croupier.service.home import save_keys
    from croupier.service.identity import make_keys

    found, now = check_role(name, role), _now()
    keys = make_keys(name, Coins.from_os(), now, days)
    card = keys.card(address, now.date())
    secret, public = save_keys(out or Path(name), keys, card, name)
    at = f" at {address}" if address else ""
    facts = {"name": name, "role": found, "address": address, "key": str(secret), "card": str(public),
             "identity": card.identity.hex(), "expires": f"{card.expires:%Y-%m-%d}"}  # fmt: skip
    said = [
        f"made the keys of {name}, a {found}{at}; its certificate is good until {facts['expires']}",
        f"secret: {secret} (keep it, back it up, hand it to nobody)",
        f"public: {public} (hand it to whoever makes the roster)",
        "next: one party makes the roster with croupier enrol, then everybody runs croupier accept",
    ]
    options.give(facts, json, None, lambda: _tell(said))


def rotate(
    key: Key,
    address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="HOST:PORT", help="Where others dial it from now on; as before unless given."),
    ] = None,
    days: Days = DAYS,
    json: options.Json = False,
) -> None:
    """Renew a party's certificate and box key under its old identity; the old files stay as they are.

    `croupier rotate --key sum1/sum1.key`
    """
    from croupier.core.coins import Coins
    from croupier.service.card import Card
    from croupier.service.home import Home, next_stem, save_keys
    from croupier.service.identity import renew_keys

    home, now = Home.open(key), _now()
    where = Card.read(key.with_suffix(".card")).address if address is None else address
    keys = renew_keys(home.keys, Coins.from_os(), now, days)
    card = keys.card(where, now.date())
    secret, public = save_keys(home.folder, keys, card, next_stem(home.folder, keys.name))
    facts = {"name": keys.name, "address": where, "key": str(secret), "card": str(public),
             "identity": card.identity.hex(), "expires": f"{card.expires:%Y-%m-%d}"}  # fmt: skip
    said = [
        f"renewed the keys of {keys.name} under the same identity; the certificate is good until {facts['expires']}",
        f"secret: {secret} (the old {key} still serves until the new roster holds; then delete it)",
        f"public: {public} (hand it to whoever makes the next roster)",
        f"next: croupier enrol {public} --after OLD.roster --from-round N, then everybody runs croupier accept",
    ]
    options.give(facts, json, None, lambda: _tell(said))


def enrol(
    cards: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(metavar="CARD...", help="Every party's card; after another roster, only new or renewed ones."),
    ] = None,
    spec: Annotated[Optional[str], typer.Option(help="A preset or TOML file: what is run.")] = None,  # noqa: UP045
    sets: options.Sets = None,
    after: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="OLD.roster", help="Make the version after this roster; its description stays."),
    ] = None,
    without: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="NAME", help="Leave this party of the old roster out; may be repeated."),
    ] = None,
    from_round: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="The first round that the new version holds for; rounds are counted from 1."),
    ] = None,
    quorum: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Clients that a round needs; the description's share of the invited unless given."),
    ] = None,
    phase: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Seconds of one step of a round: longer than training takes (300 unless given)."),
    ] = None,
    round_limit: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Seconds after which a round has failed (3600 unless given)."),
    ] = None,
    hold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Seconds that a host keeps a caller waiting (15 unless given)."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The roster's file; federation.roster, or federation.VERSION.roster, unless given."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make a roster from everybody's cards: who takes part, in which protocol, by which timetable.

    Anybody may make it: everybody compares it with the others before it counts (`croupier accept`).

    `croupier enrol *.card --spec rns-servers`

    `croupier enrol new.card --after federation.roster --without hospital-b --from-round 12`
    """
    from croupier.service.card import Card
    from croupier.service.fields import write_new
    from croupier.service.roster import Roster, next_roster

    given, now = [Card.read(path) for path in cards or ()], _now()
    times = {"phase": phase, "round": round_limit, "hold": hold}
    old = None
    if after is None:
        made = _first(given, spec, sets, quorum, {key: value for key, value in times.items() if value is not None})
        _refuse_given({"--without": without, "--from-round": from_round}, "belongs to --after OLD.roster; give both")
    else:
        _refuse_given({"--spec": spec, "--set": sets}, "with --after the description of the old roster stays")
        old = Roster.read(after)
        made = next_roster(old, _round(old, from_round), given, without or (), quorum, _timed(old.timetable, times))
    for card in made.cards:
        card.check_time(now)
    plain = "federation.roster" if made.version == 1 else f"federation.{made.version}.roster"
    path = write_new(out or Path(plain), made.text(), "name another file with --out")
    said = [
        f"made {path}: {_about(made)}",
        *_changes(old, made),
        f"words: {' '.join(made.words)}",
        f"hand {path} to every party; nothing in it is secret",
        f"next: everybody runs croupier accept {path.name} --key NAME.key and compares the words by telephone",
    ]
    options.give({"file": str(path), **_facts(made)}, json, None, lambda: _tell(said))


def _first(given: Any, spec: str | None, sets: Any, quorum: int | None, times: dict[str, float]) -> Roster:
    from croupier.core.coins import Coins
    from croupier.errors import RosterError
    from croupier.service.roster import Timetable, make_roster
    from croupier.spec import load

    if spec is None:
        raise RosterError(
            "--spec is missing: a roster holds the description of what is run; name a preset or TOML file"
        )
    clients = sum(not card.is_host for card in given)
    described = load(spec, sets or (), count=lambda _: max(1, clients))
    return make_roster(given, described, Coins.from_os(), quorum, Timetable(**times))


def _timed(old: Timetable, times: dict[str, float | None]) -> Timetable:
    from dataclasses import replace

    return replace(old, **{key: value for key, value in times.items() if value is not None})


def _round(old: Roster, from_round: int | None) -> int:
    from croupier.errors import RosterError

    if from_round is None:
        raise RosterError(
            "--from-round is missing: from which round on does the new version hold? name one after "
            f"{old.from_round}, late enough for everybody to accept it"
        )
    return from_round


def _refuse_given(given: dict[str, Any], why: str) -> None:
    from croupier.errors import RosterError

    for name, value in given.items():
        if value is not None:
            raise RosterError(f"{name} = {value}: {why}")


def _about(roster: Roster) -> str:
    return (
        f"version {roster.version} of run {roster.run.hex()}, from round {roster.from_round}, "
        f"{len(roster.clients)} clients of which a round needs {roster.quorum}, hosts {', '.join(roster.hosts)}"
    )


def _changes(old: Roster | None, new: Roster) -> list[str]:
    """Who joined, left or renewed its keys."""
    if old is None:
        return []
    before, after = ({card.name: card for card in one.cards} for one in (old, new))
    found = {
        "joined": [name for name in after if name not in before],
        "left": [name for name in before if name not in after],
        "changed": [name for name in after if name in before and before[name] != after[name]],
    }
    return [f"{what}: {', '.join(names)}" for what, names in found.items() if names]


def _facts(roster: Roster) -> dict[str, Any]:
    return {
        "version": roster.version, "run": roster.run.hex(), "from_round": roster.from_round, "quorum": roster.quorum,
        "hosts": {name: roster.address(name) for name in roster.hosts}, "clients": list(roster.clients),
        "protocol": roster.protocol.hex(), "digest": roster.digest.hex(), "words": list(roster.words),
    }  # fmt: skip


def accept(
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
        _refuse_given({"--yes": yes, "--out": out}, "belongs to --key; name your key file")
        _collected(found, accepted or [], json)
        return
    if accepted:
        raise RosterError(f"{accepted[0]}: look at others' countersignatures without --key")
    _accept(found, roster, key, yes, out, json)


def _accept(found: Roster, file: Path, key: Path, yes: Words | None, out: Path | None, json: bool) -> None:
    from croupier.core.files import write_whole
    from croupier.service.home import Home
    from croupier.service.words import check_words

    home, now = Home.open(key), _now()
    home.check_next(found)
    for card in found.cards:
        card.check_time(now)
    if not json:
        _show(found, home)
    told = tuple(yes) if yes is not None else _asked(json)
    if told:
        check_words(told, found.digest)
    facts = {"file": str(file), "name": home.keys.name, "accepted": bool(told), **_facts(found)}
    said = [f"nothing was accepted yet; once the words agree: croupier accept {file} --key {key} --yes THE SIX WORDS"]
    if told:
        made = home.pin(found, now.date())
        path = out or Path(f"{home.keys.name}.accepted")
        write_whole(path, made.text().encode(), "name another file with --out; the roster is pinned")
        facts["countersignature"] = str(path)
        said = [
            f"accepted: {home.keys.name} takes part under this roster from round {found.from_round} on",
            f"public: {path} (for the others: croupier accept {file} *.accepted shows who has accepted)",
            "next: " + _next_step(found, home, file, key),
        ]
    options.give(facts, json, None, lambda: _tell(said))


def _next_step(found: Roster, home: Home, file: Path, key: Path) -> str:
    if home.keys.name in found.hosts:
        return "start the host"
    draw = f"croupier group --key {key} --roster {file}"
    return f"one client draws the clients' secret ({draw}) and the others open its file; then start the client"


def _show(found: Roster, home: Home) -> None:
    from rich.table import Table

    from croupier.cli.fit import line, show

    print(line(f"{found.spec.name}: {_about(found)}"))
    table = Table("party", "role", "address", "identity", "certificate until")
    for card in found.cards:
        me = " (you)" if card.name == home.keys.name else ""
        table.add_row(
            card.name + me, card.role, card.address, card.identity.hex()[:16], f"{card.expires:%Y-%m-%d}"
        )  # fmt: skip
    show(table)
    _tell(_changes(next(iter(home.pinned(found.run)[-1:]), None), found))
    print(f"words:  {' '.join(found.words)}")
    print(f"digest: {found.digest.hex()}")
    print(line("Call at least one other organisation, on a number that you knew before, and compare the six words."))


def _asked(json: bool) -> tuple[str, ...]:
    """The words that somebody types; none where nobody can be asked."""
    if json or not sys.stdin.isatty():
        return ()
    return tuple(str(typer.prompt("The six words that the other party read to you")).split())


def _collected(found: Roster, files: list[Path], json: bool) -> None:
    from croupier.service.acceptance import Acceptance, missing

    left = missing(found, [Acceptance.read(path) for path in files])
    there = [card.name for card in found.cards if card.name not in left]
    said = [f"accepted by: {', '.join(there) or 'nobody'}", f"not yet by: {', '.join(left) or 'nobody'}"]
    facts = {**_facts(found), "accepted_by": there, "not_yet_by": list(left)}
    options.give(facts, json, None, lambda: _tell([_about(found), f"words: {' '.join(found.words)}", *said]))


def group(
    key: Key,
    roster: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE.roster", help="Draw the secret for this roster, which you have accepted."),
    ] = None,
    sealed: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--open", metavar="group.sealed", help="Open the file that another client made."),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File for the sealed secret; group.sealed, or group.VERSION.sealed, unless given."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Give all clients of a roster one secret that no host knows: one client draws it, the others open its file.

    `croupier group --key hospital-a/hospital-a.key --roster federation.roster`

    `croupier group --key hospital-b/hospital-b.key --open group.sealed`
    """
    from croupier.errors import RosterError
    from croupier.service.home import Home
    from croupier.service.roster import Roster

    home = Home.open(key)
    if (roster is None) == (sealed is None):
        raise RosterError("give --roster to draw the secret, or --open to take it from another client's file")
    if sealed is None:
        _draw(home, Roster.read(Path(str(roster))), out, json)
        return
    _refuse_given({"--out": out}, "opening writes into your own folder only; leave it")
    _open(home, sealed, json)


def _draw(home: Home, found: Roster, out: Path | None, json: bool) -> None:
    from croupier.core.coins import Coins
    from croupier.errors import StoreError
    from croupier.service.fields import write_new
    from croupier.service.group import draw_group

    if home.has_group(home.pinned_as(found)):
        raise StoreError(
            f"{home.keys.name} has a group secret under version {found.version} already; one client draws it for all, "
            "and another secret takes a new roster"
        )
    made, secret = draw_group(found, home.keys, Coins.from_os())
    plain = "group.sealed" if found.version == 1 else f"group.{found.version}.sealed"
    # The sealed file first: whoever drew the secret can open it too, and nobody else can seal this secret again.
    path = write_new(out or Path(plain), made.text(), "name another file with --out")
    kept = home.keep_group(found, secret)
    facts = {"file": str(path), "name": home.keys.name, "kept": str(kept), "clients": list(found.clients),
             "roster": found.digest.hex()}  # fmt: skip
    said = [
        f"drew the secret of {len(found.clients)} clients for version {found.version} of the roster",
        f"secret: {kept} (yours; it stays in your folder)",
        f"sealed: {path} (hand this one file to every client; whoever else reads it learns nothing)",
        f"next: the other clients run croupier group --open {path.name} --key NAME.key",
    ]
    options.give(facts, json, None, lambda: _tell(said))


def _open(home: Home, path: Path, json: bool) -> None:
    from croupier.service.group import SealedGroup, open_group

    sealed = SealedGroup.read(path)
    found = home.pinned_by(sealed.roster)
    kept = home.keep_group(found, open_group(sealed, found, home.keys))
    facts = {"file": str(path), "name": home.keys.name, "kept": str(kept), "drawn_by": sealed.drawn_by,
             "roster": found.digest.hex()}  # fmt: skip
    said = [
        f"opened the clients' secret that {sealed.drawn_by} drew for version {found.version} of the roster",
        f"secret: {kept} (it stays in your folder)",
        "next: start the client",
    ]
    options.give(facts, json, None, lambda: _tell(said))
