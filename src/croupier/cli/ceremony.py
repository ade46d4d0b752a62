"""`croupier keygen`, `rotate` and `group`: a party's own keys, and the secret that all clients share.

Each prints what it made, what of it is secret, who gets what, and what comes next; private keys and secrets go into
files only. The keys are made by `service.identity`, the clients' secret by `service.group`, and both are kept by
`service.home`.

Every party runs `keygen`. One party then puts all cards into a roster (`croupier enrol`), which everybody accepts
(`croupier accept`). Where there are sum servers, one client now draws the clients' secret with `group` and the others
open it: with it they make and check the tags of sums, and no party that is not a client may know it. `rotate` renews a
party's keys, and a new roster follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from croupier.cli import options
from croupier.cli.rosters import now, refuse_given, tell

if TYPE_CHECKING:
    from croupier.service.home import Home
    from croupier.service.roster import Roster

Key = Annotated[Path, typer.Option("--key", metavar="NAME.key", help="Your key file.")]
Days = Annotated[int, typer.Option(help="Days for which the certificate is good.")]
# The same number as `service.identity.DAYS`. It is written again here because that module is slow to import, and
# `--help` should be quick.
DAYS = 398


def keygen(
    name: Annotated[str, typer.Argument(help="The party's name: server, relay, sum1, ..., or any name of a client.")],
    role: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="follows from the name; host for one of a protocol of your own."),
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

    found, today = check_role(name, role), now()
    keys = make_keys(name, Coins.from_os(), today, days)
    card = keys.card(address, today.date(), found)
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
    options.give(facts, json, None, lambda: tell(said))


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

    home, today = Home.open(key), now()
    where = Card.read(key.with_suffix(".card")).address if address is None else address
    # Besides the certificate the box key is new: the one to which others encrypt what only this party may read.
    keys = renew_keys(home.keys, Coins.from_os(), today, days)
    card = keys.card(where, today.date())
    secret, public = save_keys(home.folder, keys, card, next_stem(home.folder, keys.name))
    facts = {"name": keys.name, "address": where, "key": str(secret), "card": str(public),
             "identity": card.identity.hex(), "expires": f"{card.expires:%Y-%m-%d}"}  # fmt: skip
    said = [
        f"renewed the keys of {keys.name} under the same identity; the certificate is good until {facts['expires']}",
        f"secret: {secret} (the old {key} still serves until the new roster holds; then delete it)",
        f"public: {public} (hand it to whoever makes the next roster)",
        f"next: croupier enrol {public} --after OLD.roster --from-round N, then everybody runs croupier accept",
    ]
    options.give(facts, json, None, lambda: tell(said))


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
    refuse_given({"--out": out}, "opening writes into your own folder only; leave it")
    _open(home, sealed, json)


def _draw(home: Home, found: Roster, out: Path | None, json: bool) -> None:
    from croupier.core.coins import Coins
    from croupier.errors import StoreError
    from croupier.service.fields import write_new
    from croupier.service.group import draw_group, fingerprint, group_check
    from croupier.service.home import sealed_name

    if home.has_group(home.pinned_as(found)):
        check = group_check(found, home.group(found))
        raise StoreError(
            f"{home.keys.name} has a group secret under version {found.version} already ({fingerprint(check)}); one "
            "client draws it for all, and another secret takes a new roster"
        )
    made, secret = draw_group(found, home.keys, Coins.from_os())
    # The sealed file first: whoever drew the secret can open it too, and nobody else can seal this secret again.
    path = write_new(out or Path(sealed_name(found)), made.text(), "name another file with --out")
    kept = home.keep_group(found, secret)
    facts = {"file": str(path), "name": home.keys.name, "kept": str(kept), "clients": list(found.clients),
             "roster": found.digest.hex(), "fingerprint": fingerprint(made.check)}  # fmt: skip
    said = [
        f"drew the secret of {len(found.clients)} clients for version {found.version} of the roster",
        f"secret: {kept} (yours; it stays in your folder)",
        f"sealed: {path} (hand this one file to every client; whoever else reads it learns nothing)",
        f"fingerprint: {facts['fingerprint']} (the same at every client; no other client draws one)",
        f"next: the other clients run croupier group --open {path.name} --key NAME.key",
    ]
    options.give(facts, json, None, lambda: tell(said))


def _open(home: Home, path: Path, json: bool) -> None:
    from croupier.service.group import SealedGroup, fingerprint, open_group

    sealed = SealedGroup.read(path)
    found = home.pinned_by(sealed.roster)
    kept = home.keep_group(found, open_group(sealed, found, home.keys))
    facts = {"file": str(path), "name": home.keys.name, "kept": str(kept), "drawn_by": sealed.drawn_by,
             "roster": found.digest.hex(), "fingerprint": fingerprint(sealed.check)}  # fmt: skip
    said = [
        f"opened the clients' secret that {sealed.drawn_by} drew for version {found.version} of the roster",
        f"secret: {kept} (it stays in your folder)",
        f"fingerprint: {facts['fingerprint']} (the same at every client)",
        f"next: start the client: croupier join --key {home.file}",
    ]
    options.give(facts, json, None, lambda: tell(said))
