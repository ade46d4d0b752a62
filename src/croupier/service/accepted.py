"""The versions of a roster that a party has accepted, each with the party's keys that belong to it.

A client also gets the clients' group secret of each version, where the placement needs one. A running party asks here
which version holds in a round. So a version that its operator accepts meanwhile is found without a restart, and so are
renewed keys beside the old ones. `croupier serve` and `join` (`cli.serve`) and `flower.station` make an `Accepted`;
parties know it as `Versions` (`service.member`).
"""

from __future__ import annotations

from croupier.errors import CroupierError, RosterError, StoreError
from croupier.service.home import Home
from croupier.service.identity import Keyring
from croupier.service.member import Member, not_accepted
from croupier.service.roster import Roster


class Accepted:
    """What one party accepted of one run.

    An accepted roster lies pinned in the party's home: it is not to change there. So each is read and checked once,
    and a change after that is not seen until the party starts again.
    """

    def __init__(self, home: Home, run: bytes) -> None:
        self.home, self.run = home, run
        self._rosters: dict[int, Roster] = {}
        self._members: dict[int, Member] = {}

    def rosters(self) -> tuple[Roster, ...]:
        """Every accepted version, in order.

        Raises: RosterError when one that is read for the first time was changed after it was accepted.
        """
        for version in self.home.versions(self.run):
            if version not in self._rosters:
                self._rosters[version] = self.home.pinned_version(self.run, version)
        return tuple(self._rosters[version] for version in sorted(self._rosters))

    def at(self, number: int) -> Member:
        """The party as it takes part in a round, of which the first is 1. Raises: RosterError, StoreError."""
        held = [roster for roster in self.rosters() if roster.from_round <= number]
        if not held:
            raise RosterError(
                f"round {number}: {self.home.keys.name} has accepted no roster for it; croupier accept FILE.roster "
                f"--key {self.home.file}"
            )
        return self._member(held[-1])

    def of(self, digest: bytes) -> Member:
        """The party as it takes part under one of the rosters that it accepted. Raises: RosterError, StoreError."""
        for roster in self.rosters():
            if roster.digest == digest:
                return self._member(roster)
        raise RosterError(not_accepted(self.home.keys.name, digest))

    def first(self) -> Member:
        """The party as it starts: in the first version whose keys it still has.

        The next notice that it takes says which version holds, and turns the party to that one.
        Raises: RosterError, StoreError when there is none.
        """
        failed: CroupierError | None = None
        for roster in self.rosters():
            try:
                return self._member(roster)
            except (RosterError, StoreError) as error:
                failed = failed or error
        raise failed or RosterError(f"{self.home.keys.name} has accepted no roster of run {self.run.hex()}")

    def _member(self, roster: Roster) -> Member:
        if roster.version not in self._members:
            name, place = self.home.keys.name, roster.spec.protocol.place
            needs_group = "group" in place.needs and name in place.holders(roster.clients)
            group = self.home.group(roster) if needs_group and name in roster.clients else b""
            self._members[roster.version] = Member(name, roster, self._keys(roster), group)
        return self._members[roster.version]

    def _keys(self, roster: Roster) -> Keyring:
        """The keys that the roster has a card of: those that were named, or others of this party beside them."""
        card = roster.card(self.home.keys.name)
        for keys in self.home.keyrings():
            if keys.owns(card):
                return keys
        raise RosterError(
            f"card of {card.name}: no key file in {self.home.folder} belongs to the card in version {roster.version} "
            "of the roster; put it there, or enrol the renewed card"
        )
