"""Rosters: whole when they are built, the same for everybody, and one version after the other."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.enrolled import CLIENTS, HOSTS, NOW, card_of, described, keys_of, roster

from croupier.core.coins import Coins
from croupier.errors import RosterError
from croupier.service.card import Card
from croupier.service.identity import make_keys, renew_keys
from croupier.service.roster import Roster, Timetable
from croupier.service.versions import make_roster, next_roster, verify_chain
from croupier.spec import load
from croupier.toml_read import presets

EVERY = tuple(card_of(name) for name in sorted((*HOSTS, *CLIENTS)))


def test_a_roster_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "federation.roster"
    path.write_text(roster().text())
    found = Roster.read(path)
    assert found == roster()
    assert hash(found) == hash(roster())
    assert (found.cards, found.timetable, found.words) == (roster().cards, roster().timetable, roster().words)
    assert found.spec == described()
    assert found.protocol == described().protocol.digest()
    assert found.text() == path.read_text()


def test_who_is_who() -> None:
    found = roster()
    assert (found.hosts, found.clients) == (HOSTS, CLIENTS)
    assert found.address("sum2") == "localhost:7443"
    for card in EVERY:
        assert found.party_of(card.certificate_der) == card.name
        assert hashlib.sha256(card.certificate_der).digest() == card.fingerprint
    stranger = make_keys("ann", Coins.from_seed(77), NOW).card("", NOW.date())
    assert found.party_of(stranger.certificate_der) is None
    with pytest.raises(RosterError, match="clients only dial out; dial one of server, sum1"):
        found.address("ann")
    with pytest.raises(RosterError, match="'dora' has no card in version 1"):
        found.card("dora")


def test_a_roster_shows_itself_shortly() -> None:
    assert re.fullmatch(r"Roster\(version=1, clients=3, digest=[0-9a-f]{16}\.\.\.\)", repr(roster()))


def test_two_runs_of_the_same_parties_are_two() -> None:
    first, second = (make_roster(EVERY, described(), Coins.from_os()) for _ in range(2))
    assert first.run != second.run
    assert first.digest != second.digest


def test_who_made_it_and_in_which_order_does_not_matter() -> None:
    again = make_roster(reversed(EVERY), described(), Coins.from_seed(2))
    assert again.digest == roster().digest


def test_how_one_machine_runs_it_is_left_out() -> None:
    mine = load("rns-servers", {"protocol.encode.clients": 5, "run.workers": 7, "run.views": ["server"]})
    assert make_roster(EVERY, mine, Coins.from_seed(2)).digest == roster().digest
    assert "workers" not in roster().text()
    with pytest.raises(RosterError, match=r"description\.run"):
        replace(roster(), spec=mine)


def test_no_character_of_a_roster_can_be_changed() -> None:
    """Every line of it, at two places; comments and blanks mean nothing."""
    lines = roster().text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("#") or not line.strip():
            continue
        for at in {line.index("=") + 2 if "=" in line else 1, len(line) - 3}:
            other = "7" if line[at] != "7" else "8"
            text = "".join((*lines[:number], line[:at], other, line[at + 1 :], *lines[number + 1 :]))
            with pytest.raises(RosterError):
                Roster.parse(text)


CHANGES = {
    "version": ("version = 1", "version = 2", "version = 2, previous of 0 bytes"),
    "version 0": ("version = 1", "version = 0", "versions are counted from 1"),
    "previous": ('previous = ""', 'previous = "00"', "previous of 1 bytes"),
    "from_round": ("from_round = 1", "from_round = 2", "from_round = 2: rounds are counted from 1"),
    "run": ('run = "', 'run = "00', "run has 17 bytes, not 16"),
    "quorum": ("quorum = 2", "quorum = 3", "is not its digest, something was changed"),
    "quorum 0": ("quorum = 2", "quorum = 0", "quorum = 0: a round of 3 invited clients needs from"),
    "quorum 4": ("quorum = 2", "quorum = 4", "choose such a number, or enrol more clients"),
    "quorum text": ("quorum = 2", 'quorum = "2"', "quorum = '2' is no whole number"),
    "phase": ("phase = 300.0", "phase = 301.0", "is not its digest"),
    "no phase": ("phase = 300.0", "phase = nan", r"timetable\.phase = nan"),
    "phase 0": ("phase = 300.0", "phase = 0", "a number of seconds above 0"),
    "phase long": ("phase = 300.0", "phase = 1e9", "a step cannot last longer than the round"),
    "phase huge": ("phase = 300.0", "phase = 1" + "0" * 400, "is no number of ours"),
    "phase true": ("phase = 300.0", "phase = true", "is no number of ours"),
    "hold": ("hold = 15.0", "hold = 16.0\nwait = 1", "'wait': unknown field"),
    "protocol": ("servers = 3", "servers = 2", "'sum3' has no part in this protocol"),
    "more hosts": ("servers = 3", "servers = 4", "'sum4' takes part in this protocol and has no card"),
    "digits": ("digits = 4", "digits = 3", "not the digest of the protocol described"),
    "description": ("alpha = 0.5", "alpha = 0.6", "is not its digest"),
    "unknown": ("alpha = 0.5", "alfa = 0.5", "description: task.split.alfa: unknown key"),
    "rounds": ("rounds = 10", "rounds = 11", "is not its digest"),
    "cards": ("[cards.ann]", "[cards.anna]", "'anna' is the card of ann"),
    "table": ("[timetable]", "timetable = 7\n[times]", "timetable = 7 is no table"),
    "more": ("quorum = 2", "quorum = 2\nleader = 1", "'leader': unknown field"),
    "digest": ('digest = "', 'digest = "00', "is not its digest"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_named(case: str) -> None:
    old, new, says = CHANGES[case]
    assert old in roster().text()
    with pytest.raises(RosterError, match=says):
        Roster.parse(roster().text().replace(old, new, 1))


def without(name: str) -> tuple[Card, ...]:
    return tuple(card for card in EVERY if card.name != name)


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_without_a_card_is_named(name: str) -> None:
    with pytest.raises(RosterError, match=f"'{name}' takes part .* croupier keygen {name} --address HOST:PORT"):
        make_roster(without(name), described(), Coins.from_seed(2))


def test_a_host_that_has_no_part_is_named() -> None:
    with pytest.raises(RosterError, match="'relay' has no part in this protocol, whose hosts are server, sum1"):
        make_roster((*EVERY, card_of("relay")), described(), Coins.from_seed(2))


def test_clients_are_counted() -> None:
    hosts = tuple(card_of(name) for name in HOSTS)
    with pytest.raises(RosterError, match="no client has a card"):
        make_roster(hosts, described(), Coins.from_seed(2))
    many = tuple(card_of(f"c{number}") for number in range(6))
    with pytest.raises(RosterError, match=r"protocol\.encode\.clients = 5: sums of 6 invited clients could overflow"):
        make_roster((*hosts, *many), described(), Coins.from_seed(2))
    with pytest.raises(RosterError, match="quorum = 4"):
        make_roster(EVERY, described(), Coins.from_seed(2), quorum=4)
    assert make_roster(EVERY, described(), Coins.from_seed(2), quorum=3).quorum == 3


def test_a_description_that_speaks_of_a_stranger_is_refused() -> None:
    spec = load("rns-servers", {"protocol.encode.clients": 5, "federation.joins": {"dora": 3}})
    with pytest.raises(RosterError, match="no client is called 'dora'"):
        make_roster(EVERY, spec, Coins.from_seed(2))


def test_no_two_cards_share_anything() -> None:
    with pytest.raises(RosterError, match=r"2 cards have the same name \(ann, ann\)"):
        make_roster((*EVERY, card_of("ann")), described(), Coins.from_seed(2))
    with pytest.raises(RosterError, match=r"the same name \(Ann, ann\)"):
        make_roster((*EVERY, card_of("Ann")), described(), Coins.from_seed(2))
    ann, dora = keys_of("ann"), keys_of("dora")
    for keys, what in (
        (replace(dora, identity=ann.identity), "identity"),
        (replace(dora, lock=ann.lock), "box"),
    ):  # fmt: skip
        with pytest.raises(RosterError, match=rf"the same {what} \(ann, dora\)"):
            make_roster((*EVERY, keys.card("", NOW.date())), described(), Coins.from_seed(2))


@pytest.mark.parametrize("name", presets())
def test_every_preset_has_a_roster(name: str) -> None:
    spec = load(name, count=lambda _: 20)
    clients = tuple(card_of(f"c{number:02}") for number in range(20))
    spec = load(spec, {"protocol.encode.clients": 20} if "clients" in spec.protocol.encode.plain() else {})
    spec = load(spec, {"federation.cohort": None, "federation.joins": {}})
    hosts = tuple(card_of(host) for host in spec.protocol.parties(()))
    found = make_roster((*clients, *hosts), spec, Coins.from_seed(2))
    assert Roster.parse(found.text()) == found
    assert set(found.hosts) == set(spec.protocol.parties(()))


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ({"phase": 0.0}, "phase = 0.0"), ({"hold": -1.0}, "hold = -1.0"), ({"round": float("inf")}, "round = inf"),
        ({"phase": 20.0, "round": 10.0}, "a step cannot last longer"),
    ],
)  # fmt: skip
def test_times_that_cannot_be(times: dict[str, float], says: str) -> None:
    with pytest.raises(RosterError, match=says):
        Timetable(**times)


def renewed(name: str) -> Card:
    return renew_keys(keys_of(name), Coins.from_seed(8), NOW).card("", NOW.date())


def test_a_revoked_card_is_not_in_the_new_version() -> None:
    new = next_roster(roster(), 5, without=["cleo"])
    assert (new.version, new.previous, new.from_round, new.run) == (2, roster().digest, 5, roster().run)
    assert new.clients == ("ann", "bob")
    assert new.party_of(card_of("cleo").certificate_der) is None
    assert "cleo" not in new.text()
    assert Roster.parse(new.text()) == new
    assert new.words != roster().words


def test_parties_join_and_renew_their_keys() -> None:
    card = renewed("ann")
    new = next_roster(roster(), 5, [card, card_of("dora")], timetable=Timetable(phase=20), quorum=3)
    assert new.clients == ("ann", "bob", "cleo", "dora")
    assert (new.card("ann"), new.timetable.phase, new.quorum) == (card, 20, 3)
    assert new.party_of(card_of("ann").certificate_der) is None
    assert new.party_of(card.certificate_der) == "ann"


def test_a_next_version_that_cannot_be() -> None:
    with pytest.raises(RosterError, match="'dora' has no card in version 1"):
        next_roster(roster(), 5, without=["dora"])
    with pytest.raises(RosterError, match="'sum1' takes part in this protocol and has no card"):
        next_roster(roster(), 5, without=["sum1"])
    with pytest.raises(RosterError, match="2 cards are of ann; give its newest one"):
        next_roster(roster(), 5, [renewed("ann"), card_of("ann")])
    with pytest.raises(RosterError, match="from_round = 1: rounds are counted from 1"):
        next_roster(roster(), 1)
    with pytest.raises(RosterError, match="from_round"):
        next_roster(roster(), 1 << 33)


def test_nobody_takes_over_a_name() -> None:
    other = make_keys("ann", Coins.from_seed(99), NOW).card("", NOW.date())
    with pytest.raises(RosterError, match="card of ann: its identity is not that of version 1"):
        next_roster(roster(), 5, [other])


SECOND = next_roster(roster(), 5, without=["cleo"])
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "run": ({"run": bytes(16)}, "the roster before it is of run"),
    "version": ({"version": 3}, "does not follow version 1"),
    "previous": ({"previous": bytes(32)}, "accept the versions between first"),
    "description": ({"spec": load(described(), {"federation.rounds": 11})}, "a new description is a new run"),
    "protocol": ({"spec": load(described(), {"protocol.encode.digits": 3})}, "a new description is a new run"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_chain_is_named(case: str) -> None:
    change, says = BROKEN[case]
    verify_chain(roster(), SECOND)
    with pytest.raises(RosterError, match=says):
        verify_chain(roster(), replace(SECOND, **change))


def test_a_later_version_holds_from_a_later_round() -> None:
    third = next_roster(SECOND, 6)
    verify_chain(SECOND, third)
    with pytest.raises(RosterError, match="the version before holds from round 5"):
        verify_chain(SECOND, replace(third, from_round=5))
    with pytest.raises(RosterError, match="does not follow version 1"):
        verify_chain(roster(), third)
