"""The clients' secret: every client opens the same, and nobody else opens anything."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.enrolled import CLIENTS, HOSTS, NOW, card_of, described, keys_of, roster

from croupier.core.coins import Coins
from croupier.errors import IntegrityError, RosterError
from croupier.mpc.seal import seal
from croupier.service.card import Card
from croupier.service.group import SealedGroup, _info, _to_sign, draw_group, group_check, open_group
from croupier.service.identity import renew_keys
from croupier.service.versions import make_roster, next_roster

SEALED, SECRET = draw_group(roster(), keys_of("ann"), Coins.from_seed(4))


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_opens_the_same_secret(name: str) -> None:
    read = SealedGroup.parse(SEALED.text())
    assert read == SEALED
    assert open_group(read, roster(), keys_of(name)) == SECRET
    assert len(SECRET) == 32


def test_what_is_sealed_shows_nothing() -> None:
    assert SECRET.hex() not in SEALED.text()
    assert SECRET.hex() not in repr(SEALED)
    assert repr(SECRET) not in repr(SEALED)
    assert len(set(SEALED.boxes.values())) == len(CLIENTS)


def test_two_draws_are_two_secrets() -> None:
    drawn = {draw_group(roster(), keys_of("ann"), Coins.from_os())[1] for _ in range(3)}
    assert len(drawn) == 3


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_neither_draw_nor_open_it(name: str) -> None:
    for move in (
        lambda: draw_group(roster(), keys_of(name), Coins.from_seed(4)),
        lambda: open_group(SEALED, roster(), keys_of(name)),
    ):
        with pytest.raises(RosterError, match=f"{name} is a host, and hosts must not know"):
            move()
    for box in SEALED.boxes.values():
        with pytest.raises(IntegrityError):
            keys_of(name).open(box, _info(roster(), "ann", name))


def test_a_box_is_for_one_client() -> None:
    with pytest.raises(IntegrityError):
        keys_of("bob").open(SEALED.boxes["cleo"], _info(roster(), "ann", "cleo"))


def test_strangers_and_older_keys_do_not_draw() -> None:
    with pytest.raises(RosterError, match="'dora' has no card"):
        draw_group(roster(), keys_of("dora"), Coins.from_seed(4))
    with pytest.raises(RosterError, match="name the newer file"):
        draw_group(roster(), renew_keys(keys_of("ann"), Coins.from_seed(5), NOW), Coins.from_seed(4))


OTHER = make_roster(roster().cards, described(), Coins.from_seed(3))
CHANGES: dict[str, Any] = {
    "roster": OTHER.digest, "from_round": 2, "drawn_by": "bob", "check": bytes(32),
    "boxes": {**SEALED.boxes, "bob": SEALED.boxes["cleo"]}, "signature": bytes(64),
}  # fmt: skip


@pytest.mark.parametrize("field", [field.name for field in fields(SealedGroup)])
@pytest.mark.parametrize("name", CLIENTS)
def test_no_field_can_be_changed(field: str, name: str) -> None:
    with pytest.raises(RosterError):
        open_group(replace(SEALED, **{field: CHANGES[field]}), roster(), keys_of(name))


@pytest.mark.parametrize("field", [field.name for field in fields(SealedGroup)])
def test_a_missing_field_is_named(field: str) -> None:
    pattern = rf"^{field} = .*$" if field != "boxes" else r"^\[boxes\][^$]*"
    text = re.sub(pattern, "", SEALED.text(), count=1, flags=re.MULTILINE)
    with pytest.raises(RosterError, match=f"{field} is missing"):
        SealedGroup.parse(text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"drawn_by": "server"}, "'server' is no client of this roster"),
        ({"drawn_by": "dora"}, "'dora' is no client of this roster"),
        ({"boxes": {}}, "there is not one for each client"),
        ({"boxes": {**SEALED.boxes, "dora": bytes(80)}}, "there is not one for each client"),
        ({"boxes": {**SEALED.boxes, "bob": b""}}, "there is not one for each client"),
        ({"signature": b""}, "the signature is not that of ann"),
    ],
)
def test_what_does_not_belong_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(RosterError, match=says):
        open_group(replace(SEALED, **change), roster(), keys_of("bob"))


def test_a_new_roster_takes_a_new_secret() -> None:
    new = next_roster(roster(), 5, without=["cleo"])
    with pytest.raises(RosterError, match="a new roster takes a new secret"):
        open_group(SEALED, new, keys_of("bob"))
    sealed, secret = draw_group(new, keys_of("bob"), Coins.from_seed(4))
    assert sorted(sealed.boxes) == ["ann", "bob"]
    with pytest.raises(RosterError, match="'cleo' has no card"):
        open_group(sealed, new, keys_of("cleo"))
    # Boxes of one secret under two rosters do not open for each other, even where the coins were the same.
    assert open_group(sealed, new, keys_of("ann")) == secret
    with pytest.raises(IntegrityError):
        keys_of("ann").open(sealed.boxes["ann"], _info(roster(), "bob", "ann"))


def test_a_client_that_hands_out_two_secrets_is_caught() -> None:
    boxes = dict(SEALED.boxes)
    boxes["cleo"] = seal(card_of("cleo").box, bytes(32), _info(roster(), "ann", "cleo"), Coins.from_seed(6))
    check = group_check(roster(), SECRET)
    forged = replace(SEALED, boxes=boxes, signature=keys_of("ann").sign(_to_sign(roster(), "ann", check, boxes)))
    assert open_group(forged, roster(), keys_of("bob")) == SECRET
    with pytest.raises(IntegrityError, match="the box of cleo does not hold the secret that was announced to all"):
        open_group(forged, roster(), keys_of("cleo"))


def test_a_card_whose_box_key_is_none_is_named() -> None:
    keys = keys_of("dora")
    bad = Card.issue(keys.sign, "dora", "", keys.public, bytes(32), keys.tls_cert_pem.decode(), "2026-03-01")
    found = make_roster((*roster().cards, bad), described(), Coins.from_seed(2))
    with pytest.raises(RosterError, match="card of dora: box is no public key"):
        draw_group(found, keys_of("ann"), Coins.from_seed(4))
