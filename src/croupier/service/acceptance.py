"""A party's countersignature of a roster: a signed statement that it takes part under this roster and no other.

With `croupier accept` a person first compares six words of the roster's digest with another party by telephone
(`service.words`); the signature proves the acceptance, not the comparison. `service.home` makes one when it pins a
roster, that is keeps it as the accepted one, and checks it whenever that roster is read again. `croupier accept` writes
it out for the others, who can see from it who has accepted what. Countersignatures are no part of the roster: its
digest must not change when somebody accepts it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from croupier.core import canon
from croupier.errors import RosterError
from croupier.mpc.signatures import verified
from croupier.service.card import SIGNATURE
from croupier.service.fields import Fields, read_file, read_table, write_table
from croupier.service.identity import Keyring
from croupier.service.roster import Roster

_REMEDY = "ask its owner to run croupier accept once more, and for the .accepted file that it writes"
_HEAD = "A party's countersignature of a roster. Nothing in it is secret."


@dataclass(frozen=True)
class Acceptance:
    """Who accepted the roster with this digest, on which day."""

    name: str
    roster: bytes
    day: str
    signature: bytes

    @classmethod
    def make(cls, keys: Keyring, roster: Roster, day: dt.date) -> Acceptance:
        """The acceptance of the party that holds these keys."""
        said = day.isoformat()
        return cls(keys.name, roster.digest, said, keys.sign(_to_sign(keys.name, roster.digest, said)))

    def check(self, roster: Roster) -> None:
        """Raises: RosterError when it is of another roster, or not signed by the party's identity in this one."""
        if self.roster != roster.digest:
            raise RosterError(
                f"acceptance of {self.name!r:.60}: it is of a roster with digest {self.roster.hex():.16}..., not "
                f"{roster.digest.hex()[:16]}...; see that you both hold the same file"
            )
        signed = _to_sign(self.name, self.roster, self.day)
        good = len(self.signature) == SIGNATURE and verified(roster.card(self.name).identity, signed, self.signature)
        if not good:
            raise RosterError(f"acceptance of {self.name}: the signature is not that of its identity; {_REMEDY}")

    def text(self) -> str:
        """The countersignature as a file."""
        table = {"name": self.name, "roster": self.roster.hex(), "day": self.day, "signature": self.signature.hex()}
        return write_table(_HEAD, table)

    @classmethod
    def read(cls, path: Path) -> Acceptance:
        """From its file. Raises: RosterError, StoreError."""
        where = str(path)
        fields = Fields(where, read_table(read_file(path, _REMEDY), where, _REMEDY), _REMEDY)
        found = cls(fields.text("name"), fields.raw("roster"), fields.text("day"), fields.raw("signature"))
        fields.end()
        return found


def missing(roster: Roster, accepted: Iterable[Acceptance]) -> tuple[str, ...]:
    """Who has not accepted a roster yet. Raises: RosterError when a countersignature is not good."""
    there = set()
    for one in accepted:
        one.check(roster)
        there.add(one.name)
    return tuple(card.name for card in roster.cards if card.name not in there)


def _to_sign(name: str, roster: bytes, day: str) -> bytes:
    return canon.dump(("croupier acceptance", 1, name, roster, day))
