"""The clients' group secret: one client draws it and seals it to every other client's card.

Clients make and check the tags of sums with it, and no host may know it. A joint draw would add nothing: any client
could tell it on anyway. It is bound to one roster and the round that it begins with, so a new roster takes a new
secret: who has left does not know it. `croupier group` draws and opens it, `service.home` keeps what was opened, and
`service.heard` and `croupier accept` compare its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import IntegrityError, RosterError, WireError
from croupier.mpc.seal import EXTRA, seal
from croupier.mpc.signatures import verified
from croupier.service.card import SIGNATURE
from croupier.service.fields import Fields, read_file, read_table, write_table
from croupier.service.home import SECRET
from croupier.service.identity import Keyring
from croupier.service.roster import Roster

_REMEDY = "ask the client that drew the secret for its file once more"
_HEAD = """A secret of all clients, sealed to each of them. Hand this file to every client; hosts read nothing in it.
Each client opens it with: croupier group --open FILE --key NAME.key"""


@dataclass(frozen=True)
class SealedGroup:
    """The secret in one box a client; `check` lets each of them see that all were given the same one."""

    roster: bytes
    from_round: int
    drawn_by: str
    check: bytes
    boxes: Mapping[str, bytes]
    signature: bytes

    def text(self) -> str:
        """As a file."""
        table = {
            "roster": self.roster.hex(), "from_round": self.from_round, "drawn_by": self.drawn_by,
            "check": self.check.hex(), "signature": self.signature.hex(),
            "boxes": {name: box.hex() for name, box in self.boxes.items()},
        }  # fmt: skip
        return write_table(_HEAD, table)

    @classmethod
    def parse(cls, text: str, where: str = "sealed group secret") -> SealedGroup:
        """From the text of a file. Raises: RosterError."""
        top = Fields(where, read_table(text, where, _REMEDY), _REMEDY)
        boxes = top.fields("boxes")
        found = cls(
            top.raw("roster"), top.whole("from_round"), top.text("drawn_by"), top.raw("check"),
            {name: boxes.raw(name) for name in top.table("boxes")}, top.raw("signature"),
        )  # fmt: skip
        top.end()
        return found

    @classmethod
    def read(cls, path: Path) -> SealedGroup:
        """From its file. Raises: RosterError, StoreError."""
        return cls.parse(read_file(path, _REMEDY), str(path))


def draw_group(roster: Roster, keys: Keyring, coins: Coins) -> tuple[SealedGroup, bytes]:
    """Draw the clients' secret for a roster, and seal it to each of them. Raises: RosterError when not a client."""
    _check_client(roster, keys)
    secret = coins.child("secret").export()
    boxes = {}
    for name in roster.clients:
        try:
            boxes[name] = seal(roster.card(name).box, secret, _info(roster, keys.name, name), coins.child("box", name))
        except WireError:
            raise RosterError(f"card of {name}: box is no public key; {name} must make new keys") from None
    check = group_check(roster, secret)
    signature = keys.sign(_to_sign(roster, keys.name, check, boxes))
    return SealedGroup(roster.digest, roster.from_round, keys.name, check, boxes, signature), secret


def open_group(sealed: SealedGroup, roster: Roster, keys: Keyring) -> bytes:
    """A client's own look into the sealed file. Raises: RosterError, or IntegrityError when its box was altered."""
    _check_client(roster, keys)
    if (sealed.roster, sealed.from_round) != (roster.digest, roster.from_round):
        raise RosterError(
            f"sealed group secret: it is for the roster {sealed.roster.hex():.16}... from round {sealed.from_round}, "
            f"not for {roster.digest.hex()[:16]}... from round {roster.from_round}; a new roster takes a new secret"
        )
    if sealed.drawn_by not in roster.clients:
        raise RosterError(f"sealed group secret: drawn_by = {sealed.drawn_by!r:.60} is no client of this roster; "
                          "a client draws it anew: croupier group")  # fmt: skip
    if tuple(sorted(sealed.boxes)) != roster.clients or {len(box) for box in sealed.boxes.values()} != {SECRET + EXTRA}:
        raise RosterError(f"sealed group secret: boxes: there is not one for each client of the roster; {_REMEDY}")
    signed = _to_sign(roster, sealed.drawn_by, sealed.check, sealed.boxes)
    public = roster.card(sealed.drawn_by).identity
    if len(sealed.signature) != SIGNATURE or not verified(public, signed, sealed.signature):
        raise RosterError(f"sealed group secret: the signature is not that of {sealed.drawn_by}; {_REMEDY}")
    secret = keys.open(sealed.boxes[keys.name], _info(roster, sealed.drawn_by, keys.name))
    if group_check(roster, secret) != sealed.check:
        raise IntegrityError(
            f"sealed group secret: the box of {keys.name} does not hold the secret that was announced to all; another "
            "client draws it anew: croupier group"
        )
    return secret


def fingerprint(check: bytes) -> str:
    """The first 16 hexadecimal digits of a check, in fours, as people compare them."""
    return " ".join(check[at : at + 2].hex() for at in range(0, 8, 2))


def _check_client(roster: Roster, keys: Keyring) -> None:
    if not keys.owns(roster.card(keys.name)):
        raise RosterError(f"card of {keys.name}: the roster has other keys than this key file; name the newer file")
    if keys.name not in roster.clients:
        raise RosterError(f"{keys.name} is a host, and hosts must not know the clients' secret; a client draws it")


def _info(roster: Roster, source: str, target: str) -> bytes:
    """What a box is bound to: opened under another roster, round or name, it stays closed."""
    return canon.dump(("croupier group box", 1, roster.run, roster.digest, roster.from_round, source, target))


def group_check(roster: Roster, secret: bytes) -> bytes:
    """A digest of a secret and its roster: it tells nothing of the secret, so that everybody may know it."""
    return canon.digest(("croupier group secret", 1, roster.digest, secret))


def _to_sign(roster: Roster, source: str, check: bytes, boxes: Mapping[str, bytes]) -> bytes:
    return canon.dump(("croupier group", 1, roster.run, roster.digest, roster.from_round, source, check, boxes))
