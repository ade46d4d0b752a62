"""The private keys of one party, and how they are made, kept and renewed.

An Ed25519 identity stays for life: it signs what the party answers for, such as its card, its countersignatures of
rosters, notices and receipts. The box key (X25519, for sealed secrets) and the TLS certificate (P-256, which gRPC's TLS
needs) are renewed under the same identity. `croupier keygen` and `croupier rotate` make and renew keys here; hosts and
clients load a `Keyring` when they start (`service.home`).
"""

from __future__ import annotations

import datetime as dt
import stat
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from croupier.core.coins import Coins
from croupier.errors import RosterError, StoreError
from croupier.mpc.seal import Lock, unseal
from croupier.mpc.signatures import signed
from croupier.service.card import DOMAIN, Card, Role, check_name
from croupier.service.fields import Fields, read_file, read_table, write_table

# A little over a year: the longest that browsers would take, too.
DAYS = 398
MOST_DAYS = 3650
# Clocks differ: a certificate is good from a little before it was made.
_EARLIER = dt.timedelta(minutes=5)
_REMEDY = "take the .key file from your backup, or make new keys (croupier keygen) and a new roster"
_HEAD = "SECRET: the private keys of one party. Never hand them to anybody; the .card beside it is for others."


@dataclass(frozen=True)
class Keyring:
    """The private keys of one party. Prints show its name only, and it is not pickled."""

    name: str
    identity: bytes = field(repr=False)
    lock: Lock = field(repr=False)
    tls_key_pem: bytes = field(repr=False)
    tls_cert_pem: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        try:
            key = load_pem_private_key(self.tls_key_pem, None)
            certificate = x509.load_pem_x509_certificate(self.tls_cert_pem)
            Ed25519PrivateKey.from_private_bytes(self.identity)
            same = key.public_key() == certificate.public_key()
        except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
            raise RosterError(f"keys of {self.name}: a key or the certificate cannot be read; {_REMEDY}") from None
        if not same:
            raise RosterError(f"keys of {self.name}: the certificate belongs to another key; {_REMEDY}")

    @cached_property
    def public(self) -> bytes:
        """The identity's public key."""
        return Ed25519PrivateKey.from_private_bytes(self.identity).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """A signature of the identity."""
        return signed(self.identity, message)

    def open(self, box: bytes, info: bytes) -> bytes:
        """What lies in a box for this party. Raises: IntegrityError when it was altered, or is for somebody else."""
        return unseal(self.lock, box, info)

    def owns(self, card: Card) -> bool:
        """Whether a card is that of exactly these keys."""
        mine = (self.name, self.public, self.lock.public, self.tls_cert_pem.decode())
        return mine == (card.name, card.identity, card.box, card.certificate)

    def card(self, address: str, day: dt.date, role: Role | None = None) -> Card:
        """A card of these keys, signed. Raises: RosterError when the address does not suit the role."""
        mine = (self.public, self.lock.public, self.tls_cert_pem.decode())
        return Card.issue(self.sign, self.name, address, *mine, day.isoformat(), role)

    def text(self) -> str:
        """The keys as a file, to be kept where only their owner may read it."""
        table = {
            "name": self.name, "identity": self.identity.hex(), "box": self.lock.private.private_bytes_raw().hex(),
            "tls_key": self.tls_key_pem.decode(), "certificate": self.tls_cert_pem.decode(),
        }  # fmt: skip
        return write_table(_HEAD, table)

    @classmethod
    def read(cls, path: Path) -> Keyring:
        """The keys in a file. Raises: StoreError when others may read it; RosterError when it is not what it was."""
        check_private(path)
        where = str(path)
        fields = Fields(where, read_table(read_file(path, _REMEDY), where, _REMEDY), _REMEDY, secret=True)
        name, identity, box = fields.text("name"), fields.raw("identity"), fields.raw("box")
        try:
            private = X25519PrivateKey.from_private_bytes(box)
        except ValueError:
            raise RosterError(f"{where}: box has {len(box)} bytes, not 32; {_REMEDY}") from None
        lock = Lock(private.public_key().public_bytes_raw(), private)
        found = cls(name, identity, lock, fields.text("tls_key").encode(), fields.text("certificate").encode())
        fields.end()
        return found

    def __reduce__(self) -> NoReturn:
        raise TypeError("private keys are not pickled: they must not leave their party by accident")


def make_keys(name: str, coins: Coins, now: dt.datetime, days: int = DAYS) -> Keyring:
    """Fresh keys for a party. Raises: RosterError when the name or the days cannot be."""
    check_name(name)
    return _keys(name, coins.child("identity").export(), coins, now, days)


def renew_keys(old: Keyring, coins: Coins, now: dt.datetime, days: int = DAYS) -> Keyring:
    """A new box key and a new certificate under the same identity."""
    return _keys(old.name, old.identity, coins, now, days)


def _keys(name: str, identity: bytes, coins: Coins, now: dt.datetime, days: int) -> Keyring:
    if not 1 <= days <= MOST_DAYS:
        raise RosterError(f"days = {days}: a certificate is good for 1 to {MOST_DAYS} days; choose a number of them")
    key, certificate = _certificate(name, now, days)
    return Keyring(name, identity, Lock.make(coins.child("box")), key, certificate)


def _certificate(name: str, now: dt.datetime, days: int) -> tuple[bytes, bytes]:
    """A private key and a self-signed certificate, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    public = key.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    use: Any = dict.fromkeys(
        (
            "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
            "crl_sign", "encipher_only", "decipher_only",
        ),
        False,
    )  # fmt: skip
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name + DOMAIN)]), critical=False)
        # Trusted as it is, and for itself only: it may not vouch for other certificates.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **use), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, made.public_bytes(Encoding.PEM)


def check_private(path: Path) -> None:
    """Raises: StoreError when a file is not there, or others than its owner may read it."""
    try:
        found = path.stat()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); name a .key file of croupier keygen") from None
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise StoreError(f"{path}: others may read these private keys; chmod 600 {path}, and think of new keys")
