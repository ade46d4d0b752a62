"""The certificates as TLS meets them: both sides trust the other's own certificate, and no other."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest

from croupier.core.coins import Coins
from croupier.service.identity import Keyring, make_keys
from croupier.service.roster import Roster
from croupier.service.versions import make_roster
from croupier.spec import load


@pytest.fixture(scope="module")
def keys() -> dict[str, Keyring]:
    """Made today: TLS looks at the clock."""
    now = dt.datetime.now(dt.UTC)
    return {name: make_keys(name, Coins.from_os(), now) for name in ("server", "ann", "bob")}


@pytest.fixture(scope="module")
def found(keys: dict[str, Keyring]) -> Roster:
    day = dt.datetime.now(dt.UTC).date()
    cards = [one.card("localhost:7443" if name == "server" else "", day) for name, one in keys.items()]
    return make_roster(cards, load("digits"), Coins.from_os())


def side(own: Keyring, trusted: str, folder: Path, *, server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    # As strict as Python can be, which later versions are by themselves.
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=trusted)
    pem = folder / f"{own.name}.pem"
    pem.write_bytes(own.tls_key_pem + own.tls_cert_pem)
    context.load_cert_chain(pem)
    return context


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bytes:
    """Both sides of a handshake in this process; the certificate that the server saw. Raises: ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller, called = client.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)
    for _ in range(8):
        for one in (caller, called):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen = called.getpeercert(binary_form=True)
    assert seen is not None
    return seen


def test_who_calls_is_known_by_its_certificate(keys: dict[str, Keyring], found: Roster, tmp_path: Path) -> None:
    trusted = "".join(found.card(name).certificate for name in found.clients)
    host = side(keys["server"], trusted, tmp_path, server=True)
    for name in found.clients:
        own = side(keys[name], found.card("server").certificate, tmp_path, server=False)
        assert found.party_of(shake(host, own, "server.croupier.internal")) == name


def test_a_stranger_is_turned_away(keys: dict[str, Keyring], found: Roster, tmp_path: Path) -> None:
    host = side(keys["server"], found.card("ann").certificate, tmp_path, server=True)
    own = side(keys["bob"], found.card("server").certificate, tmp_path, server=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(host, own, "server.croupier.internal")


def test_another_host_is_not_taken_for_the_server(keys: dict[str, Keyring], found: Roster, tmp_path: Path) -> None:
    host = side(keys["bob"], found.card("ann").certificate, tmp_path, server=True)
    own = side(keys["ann"], found.card("server").certificate, tmp_path, server=False)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(host, own, "server.croupier.internal")
    trusting = side(keys["ann"], found.card("bob").certificate, tmp_path, server=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(host, trusting, "server.croupier.internal")
