"""A party's public card: its name, its role, where it listens, and its public keys, signed by its identity.

Cards are all that organisations hand each other before a roster is made (`service.roster`). A card that exists is
whole: its signature, its certificate and its names are checked when it is built. `service.identity` makes cards of a
party's keys, for `croupier keygen` and `croupier rotate`; `croupier enrol` reads everybody's. What a name may be, and
which role it stands for, is decided here, too.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from croupier.core import canon
from croupier.core.envelope import NAME
from croupier.errors import RosterError, nearest
from croupier.mpc.signatures import verified
from croupier.service.fields import Fields, read_file, read_table, write_table

Role = Literal["client", "server", "relay", "sum-server", "mix-server", "second", "dealer", "host"]
ROLES: tuple[Role, ...] = get_args(Role)
# Of these roles a protocol has several parties, called by number.
_NUMBERED: dict[Role, str] = {"sum-server": r"sum[1-9][0-9]*", "mix-server": r"mix[1-9][0-9]*"}
# A certificate is for the party's name with this ending, and for no other host name.
DOMAIN = ".croupier.internal"
# Bytes of public keys, for signatures and for sealed boxes, and of a signature.
IDENTITY, BOX, SIGNATURE = 32, 32, 64
_REMEDY = "ask its owner for the .card file once more"
_HEAD = "A party's card. Nothing in it is secret: hand it to whoever makes the roster (croupier enrol)."


def role_of(name: str) -> Role:
    """The role that a name stands for: pipelines name their parties, and everybody else is a client."""
    for role, pattern in _NUMBERED.items():
        if re.fullmatch(pattern, name):
            return role
    return next((role for role in ROLES if role == name and role not in ("client", *_NUMBERED, "host")), "client")


def check_role(name: str, role: str | None) -> Role:
    """The role of a name, once it is known to be the one that was meant. Raises: RosterError.

    A `host` is a party of a protocol whose parties are not known here: it is one only if it says so.
    """
    known = role_of(name)
    if role is not None and role not in ROLES:
        raise RosterError(f"role = {role!r:.60}: no party has that role; {nearest(role, ROLES)}")
    if role == "host" and known == "client":
        return "host"
    if role not in (None, known):
        called = {
            "sum-server": "sum1, sum2, ...",
            "mix-server": "mix1, mix2, ...",
            "client": "anything else than a host",
        }
        raise RosterError(
            f"role = {role!r}: {name!r:.60} is the name of a {known}; a {role} is called {called.get(str(role), role)}"
        )
    return known


def host_role(name: str) -> Role:
    """The role of a party that is known to be a host."""
    known = role_of(name)
    return "host" if known == "client" else known


def check_name(name: str) -> None:
    """Raises: RosterError when a name fits no message header, no file and no certificate."""
    # A certificate's host name is made of it, and so are files: no dots, no slashes, no spaces.
    if not re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAME - 1}}}", name):
        raise RosterError(
            f"name = {name!r:.60}: a party's name has 1 to {NAME} letters, digits, dashes and _, the first of them a "
            "letter or a digit; choose such a name"
        )


def check_address(address: str) -> None:
    """Raises: RosterError when an address is not host:port."""
    host, _, port = address.rpartition(":")
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else ""
    if not (_is_host(host) or (inner and _is_ip(inner, 6))) or not re.fullmatch(r"[1-9][0-9]{0,4}", port):
        raise RosterError(f"address = {address!r:.60}: write host:port, for example sums.example.org:7443")
    if int(port) > 65535:
        raise RosterError(f"address = {address!r:.60}: a port is at most 65535; write host:port")


def _is_host(host: str) -> bool:
    label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    numeric = re.fullmatch(r"[0-9.]+", host)
    return _is_ip(host, 4) if numeric else len(host) <= 253 and bool(re.fullmatch(rf"{label}(\.{label})*", host))


def _is_ip(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


@dataclass(frozen=True)
class Card:
    """What a party is known by; raises RosterError when built from what does not belong together.

    identity, box: raw public keys, Ed25519 and X25519. certificate: PEM, with a P-256 key. created: a day, YYYY-MM-DD.
    address: empty for clients, who only dial out.
    """

    name: str
    role: Role
    address: str
    identity: bytes
    box: bytes
    certificate: str
    created: str
    signature: bytes

    def __post_init__(self) -> None:
        check_name(self.name)
        check_role(self.name, self.role)
        if self.is_host:
            check_address(self.address)
        elif self.address:
            raise RosterError(f"card of {self.name}: address = {self.address!r:.60}: clients only dial out; leave it")
        for field, size in {"identity": IDENTITY, "box": BOX, "signature": SIGNATURE}.items():
            if len(getattr(self, field)) != size:
                raise self._bad(f"{field} has {len(getattr(self, field))} bytes, not {size}")
        if not _is_day(self.created):
            raise self._bad(f"created = {self.created!r:.60} is no day, YYYY-MM-DD")
        self._check_certificate()
        if not verified(self.identity, _to_sign(*self._known), self.signature):
            raise self._bad("the signature is not that of its identity: something was changed after it was signed")

    def _bad(self, why: str) -> RosterError:
        return RosterError(f"card of {self.name}: {why}; {_REMEDY}")

    def _check_certificate(self) -> None:
        try:
            found = x509.load_pem_x509_certificate(self.certificate.encode())
            found.verify_directly_issued_by(found)
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            key, same = found.public_key(), found.public_bytes(Encoding.PEM).decode() == self.certificate
        except (ValueError, TypeError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.InvalidVersion):
            raise self._bad("certificate: is no self-signed certificate in PEM") from None
        except (InvalidSignature, UnsupportedAlgorithm):
            raise self._bad("certificate: is not signed by its own key") from None
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise self._bad("certificate: its key is not on the curve P-256")
        # One certificate, one text: otherwise the same card could have several signatures and digests.
        if not same:
            raise self._bad("certificate: is not the plain PEM of one certificate")
        if list(names) != [x509.DNSName(self.name + DOMAIN)]:
            raise self._bad(f"certificate: is not for {self.name + DOMAIN} alone")

    @classmethod
    def issue(
        cls, sign: Callable[[bytes], bytes], name: str, address: str, identity: bytes, box: bytes, certificate: str,
        created: str, role: Role | None = None,
    ) -> Card:  # fmt: skip
        """A new card, signed by its party. Raises: RosterError when the address does not suit the role."""
        known = (name, role or role_of(name), address, identity, box, certificate, created)
        return cls(*known, sign(_to_sign(*known)))

    @property
    def _known(self) -> tuple[str | bytes, ...]:
        known = (self.name, self.role, self.address, self.identity, self.box)
        return (*known, self.certificate, self.created)

    @property
    def is_host(self) -> bool:
        """Whether others dial it."""
        return self.role != "client"

    @cached_property
    def certificate_der(self) -> bytes:
        """The certificate as a TLS connection shows it."""
        return x509.load_pem_x509_certificate(self.certificate.encode()).public_bytes(Encoding.DER)

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the certificate: what a caller is known by."""
        return hashlib.sha256(self.certificate_der).digest()

    @cached_property
    def expires(self) -> dt.datetime:
        """When the certificate ends."""
        return x509.load_pem_x509_certificate(self.certificate.encode()).not_valid_after_utc

    def check_time(self, now: dt.datetime) -> None:
        """Raises: RosterError when the certificate has ended."""
        if now >= self.expires:
            raise RosterError(
                f"card of {self.name}: its certificate ended on {self.expires:%Y-%m-%d}; its owner makes a new one "
                f"with croupier rotate --key {self.name}.key"
            )

    def plain(self) -> dict[str, Any]:
        """The card as plain values."""
        return {
            "name": self.name, "role": self.role, "address": self.address, "identity": self.identity.hex(),
            "box": self.box.hex(), "certificate": self.certificate, "created": self.created,
            "signature": self.signature.hex(),
        }  # fmt: skip

    def text(self) -> str:
        """The card as a file."""
        return write_table(_HEAD, self.plain())

    @classmethod
    def parse(cls, fields: Fields) -> Card:
        """A card from the fields of a file. Raises: RosterError."""
        card = cls(
            fields.text("name"), fields.text("role"), fields.text("address"), fields.raw("identity"),  # type: ignore[arg-type]
            fields.raw("box"), fields.text("certificate"), fields.text("created"), fields.raw("signature"),
        )  # fmt: skip
        fields.end()
        return card

    @classmethod
    def read(cls, path: Path) -> Card:
        """A card from its file. Raises: RosterError, StoreError."""
        where = str(path)
        return cls.parse(Fields(where, read_table(read_file(path, _REMEDY), where, _REMEDY), _REMEDY))


def read_within(fields: Fields, where: str, remedy: str) -> Card:
    """A card that lies in another file. Raises: RosterError that blames that file: when it got there it was whole."""
    try:
        return Card.parse(fields)
    except RosterError as error:
        said = str(error)
        if said.startswith(where):
            raise
        said = said.removesuffix(f"; {_REMEDY}")
        raise RosterError(f"{where}: it is damaged or was changed since it was made: {said}; {remedy}") from None


def _to_sign(*known: str | bytes) -> bytes:
    """What the identity signs: every field but the signature, in order."""
    return canon.dump(("croupier card", 1, *known))


def _is_day(text: str) -> bool:
    try:
        return dt.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
