"""Cards: what a party is known by, and that nothing of it can be changed."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.enrolled import CLIENTS, HOSTS, NOW, card_of, keys_of

from croupier.core.coins import Coins
from croupier.core.envelope import Header
from croupier.errors import RosterError, StoreError
from croupier.service.card import ROLES, Card, check_address, check_name, check_role, role_of
from croupier.service.fields import LONGEST, Fields, read_table
from croupier.service.identity import make_keys, renew_keys
from croupier.spec import load
from croupier.toml_read import presets


def parsed(text: str) -> Card:
    return Card.parse(Fields("a.card", read_table(text, "a.card", "remedy"), "remedy"))


@pytest.mark.parametrize("name", [*HOSTS, *CLIENTS])
def test_a_card_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.card"
    path.write_text(card_of(name).text())
    found = Card.read(path)
    assert found == card_of(name)
    assert found.text() == path.read_text()
    assert keys_of(name).owns(found)


def changed(card: Card, field: str) -> dict[str, Any]:
    """Another good value of the same kind."""
    other = card_of("sum2")
    known: dict[str, Any] = {
        "name": "sum4", "role": "dealer", "address": "localhost:7444", "identity": other.identity, "box": other.box,
        "certificate": renew_keys(keys_of("sum1"), Coins.from_seed(9), NOW).tls_cert_pem.decode(),
        "created": "2026-03-02", "signature": bytes(64),
    }  # fmt: skip
    assert getattr(card, field) != known[field]
    return {field: known[field]}


@pytest.mark.parametrize("field", [field.name for field in fields(Card)])
def test_no_field_of_a_card_can_be_changed(field: str) -> None:
    with pytest.raises(RosterError):
        replace(card_of("sum1"), **changed(card_of("sum1"), field))


@pytest.mark.parametrize("field", ["address", "identity", "box", "certificate", "created", "signature"])
def test_what_is_changed_is_seen_by_the_signature(field: str) -> None:
    with pytest.raises(RosterError, match="signature is not that of its identity"):
        replace(card_of("sum1"), **changed(card_of("sum1"), field))


def test_every_single_character_of_a_card_counts() -> None:
    """Whatever is put in place of one: the card is refused, or the change was in a comment or in blanks."""
    text = card_of("ann").text()
    body = text.index("name =")
    for at in range(body, len(text), 7):
        if text[at].isspace():
            continue
        other = "0" if text[at] != "0" else "1"
        with pytest.raises(RosterError):
            parsed(text[:at] + other + text[at + 1 :])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (r'^address = .*$', "address is missing; remedy"),
        (r'^box = .*$', "box is missing"),
    ],
)  # fmt: skip
def test_a_missing_field_is_named(line: str, says: str) -> None:
    with pytest.raises(RosterError, match=says):
        parsed(re.sub(line, "", card_of("ann").text(), flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "ann"', "name = 7", "name = 7 is no text"),
        ('box = "', 'box = "xx', "not written as hexadecimal"),
        ('box = "', 'box = "00', "box has 33 bytes, not 32"),
        ('created = "2026-03-01"', 'created = "yesterday"', "created = 'yesterday' is no day"),
        ('created = "', 'secret = 1\ncreated = "', "'secret': unknown field"),
        ("name =", "name", "not valid TOML"),
        ("name =", "number = " + "9" * 5000 + "\nname =", "not valid TOML"),
    ],
)
def test_a_field_that_is_none_is_named(old: str, new: str, says: str) -> None:
    assert old in card_of("ann").text()
    with pytest.raises(RosterError, match=says):
        parsed(card_of("ann").text().replace(old, new, 1))


@pytest.mark.parametrize("name", ["", "a" * 33, "a.b", "a/b", "../a", "a b", "-a", "ä", "a\n", "a\0"])
def test_names_that_fit_nowhere_are_refused(name: str) -> None:
    with pytest.raises(RosterError, match=r"name = .*choose such a name"):
        check_name(name)


def test_a_name_of_32_letters_fits_a_header() -> None:
    check_name("a" * 32)
    assert Header.unpack(Header(bytes(32), bytes(16), 0, 0, "up", "a" * 32, "server", 0, 0).pack()).source == "a" * 32


@pytest.mark.parametrize("address", ["h:1", "sums.example.org:7443", "127.0.0.1:65535", "[::1]:7000"])
def test_addresses(address: str) -> None:
    check_address(address)


WRONG = ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h h:1", "h_:1", "::1:1", "[::1", "[h]:1", "1.2.3:4", "h:1\n"]


@pytest.mark.parametrize("address", WRONG)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(RosterError, match="write host:port"):
        check_address(address)


def test_hosts_listen_and_clients_do_not() -> None:
    with pytest.raises(RosterError, match="write host:port"):
        keys_of("sum1").card("", NOW.date())
    with pytest.raises(RosterError, match="clients only dial out"):
        keys_of("ann").card("localhost:1", NOW.date())
    assert keys_of("ann").card("localhost:1", NOW.date(), "host").is_host


def test_every_party_of_every_preset_has_a_role() -> None:
    for name in presets():
        for host in load(name, count=lambda _: 10).protocol.parties(()):
            assert role_of(host) != "client", (name, host)
    assert {role_of(name) for name in ("c", "server", "relay", "sum1", "mix1", "second", "dealer")} == {*ROLES} - {
        "host"
    }
    assert [role_of(name) for name in ("sum", "sum0", "sum01", "sum-server", "client", "mix", "sum12", "mix3")] == [
        *["client"] * 6, "sum-server", "mix-server",
    ]  # fmt: skip


def test_a_role_belongs_to_its_name() -> None:
    assert check_role("sum1", None) == check_role("sum1", "sum-server") == "sum-server"
    with pytest.raises(RosterError, match="a sum-server is called sum1, sum2"):
        check_role("hospital", "sum-server")
    with pytest.raises(RosterError, match="did you mean 'relay'"):
        check_role("relay", "rely")


def test_a_certificate_ends() -> None:
    card = card_of("ann")
    card.check_time(NOW + dt.timedelta(days=397))
    with pytest.raises(RosterError, match="ended on 2027-04-03; its owner makes a new one with croupier rotate"):
        card.check_time(NOW + dt.timedelta(days=398))


def certificate(key: Any, signer: Any, host: str | None = "ann.croupier.internal") -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(1).not_valid_before(NOW).not_valid_after(NOW + dt.timedelta(days=1))
    )  # fmt: skip
    if host is not None:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    return made.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def strange() -> dict[str, tuple[str, str]]:
    """Certificates that do not do, each with what is said of it."""
    mine, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    wide, old = ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)
    good = certificate(mine, mine)
    return {
        "none": ("", "no self-signed certificate"),
        "by another": (certificate(mine, other), "not signed by its own key"),
        "a wider curve": (certificate(wide, wide), "not on the curve P-256"),
        "rsa": (certificate(old, old), "not on the curve P-256"),
        "no host": (certificate(mine, mine, None), "no self-signed certificate"),
        "another host": (certificate(mine, mine, "bob.croupier.internal"), "is not for ann.croupier.internal alone"),
        "two of them": (good + good, "is not the plain PEM"),
        "a remark": ("remark\n" + good, "is not the plain PEM"),
    }


@pytest.mark.parametrize("case", sorted(strange()))
def test_a_certificate_that_does_not_do_is_refused_although_it_is_signed(case: str) -> None:
    pem, says = strange()[case]
    keys = keys_of("ann")
    with pytest.raises(RosterError, match=says):
        Card.issue(keys.sign, "ann", "", keys.public, keys.lock.public, pem, "2026-03-01")


def test_a_good_certificate_of_that_kind_does() -> None:
    keys, mine = keys_of("ann"), ec.generate_private_key(ec.SECP256R1())
    Card.issue(keys.sign, "ann", "", keys.public, keys.lock.public, certificate(mine, mine), "2026-03-01")


def test_a_certificate_vouches_for_no_other() -> None:
    found = x509.load_pem_x509_certificate(make_keys("ann", Coins.from_seed(3), NOW).tls_cert_pem)
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.card"
    with pytest.raises(StoreError, match="cannot be read"):
        Card.read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(StoreError, match="no UTF-8 text"):
        Card.read(path)
    with path.open("wb") as file:
        file.truncate(LONGEST + 1)
    with pytest.raises(StoreError, match="longer than 64 MiB"):
        Card.read(path)
