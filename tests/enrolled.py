"""A small federation with keys: three clients, three sum servers and a server, made once for all tests that look."""

from __future__ import annotations

import datetime as dt
from functools import cache
from pathlib import Path

from croupier.core.coins import Coins
from croupier.service.card import Card, role_of
from croupier.service.home import Home, save_keys
from croupier.service.identity import Keyring, make_keys
from croupier.service.roster import Roster
from croupier.service.versions import make_roster
from croupier.spec import Spec, load

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOSTS = ("server", "sum1", "sum2", "sum3")
CLIENTS = ("ann", "bob", "cleo")


@cache
def keys_of(name: str) -> Keyring:
    """A party's keys; the same ones whenever a test asks."""
    return make_keys(name, Coins.from_seed(1).child(name), NOW)


@cache
def card_of(name: str) -> Card:
    """A party's card."""
    return keys_of(name).card("" if role_of(name) == "client" else "localhost:7443", NOW.date())


@cache
def described() -> Spec:
    """What they run."""
    return load("rns-servers", {"protocol.encode.clients": 5})


@cache
def roster() -> Roster:
    """Their first roster."""
    return make_roster([card_of(name) for name in (*HOSTS, *CLIENTS)], described(), Coins.from_seed(2))


def home_of(name: str, folder: Path) -> Home:
    """A party's own folder."""
    secret, _ = save_keys(folder / name, keys_of(name), card_of(name), name)
    return Home.open(secret)
