"""The roster of a federation: who takes part, in which protocol, by which timetable. Everybody holds the same one.

Any party may make it from the others' cards (`croupier enrol`); the server is no directory. Each organisation compares
six words of its digest with the others before it pins it (`croupier accept`, `service.home`), so that whoever made it
cannot show two of them different ones. A later version names the digest of the one before and holds from a round on: so
parties join, leave and renew keys (`service.versions`). Parties start from it (`cli.serve`, `flower.station`).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from croupier.core import canon
from croupier.core.update import Layout, Slice
from croupier.engine.federation import check, check_names
from croupier.errors import RosterError, SpecError
from croupier.service.card import Card, read_within
from croupier.service.fields import Fields, read_file, read_table, write_table
from croupier.service.words import words_of
from croupier.spec import Machine, Spec, load

RUN, DIGEST = 16, 32
# As many as a message's header can number.
MOST_ROUNDS = 1 << 32
_REMEDY = "ask whoever made the roster for the file once more"
_HEAD = """The roster of a federation: who takes part, in which protocol, by which timetable. Nothing in it is secret.
Before you trust it, compare its words with the others: croupier accept FILE --key YOUR.key
What is changed here no longer has the digest that was accepted."""
# What a task can offer a protocol is known where its data are, and checked there.
_OFFERS = frozenset({"answers", "forward", "root", "samples", "symmetry"})
NOTHING_LAID_OUT = Layout(())


@dataclass(frozen=True)
class Timetable:
    """Durations in seconds, counted by each party from when it hears of a round.

    phase: a step of a round, longer than training takes. round: after which a round has failed. hold: how long a host
    keeps a caller waiting for what is not there yet.
    """

    phase: float = 300.0
    round: float = 3600.0
    hold: float = 15.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise RosterError(f"timetable.{field.name} = {value}: a duration is a number of seconds above 0")
        if not self.phase <= self.round:
            raise RosterError(
                f"timetable.phase = {self.phase:g}: a step cannot last longer than the round, {self.round:g} seconds; "
                "choose a shorter phase or a longer round"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Roster:
    """One version of a federation; raises RosterError when built from what does not belong together.

    spec: the whole description, but for how one machine runs it. run: 16 random bytes. quorum: how many clients a
    round needs. previous: the digest of the version before, empty in the first. from_round: the first round that it
    holds for; rounds are counted from 1. layout, inputs: which tensor lies where in an update, and the shape of a
    record: so that hosts, who have no data, know how long every message is.
    """

    cards: tuple[Card, ...]
    spec: Spec
    run: bytes
    quorum: int
    timetable: Timetable = Timetable()
    version: int = 1
    previous: bytes = b""
    from_round: int = 1
    layout: Layout = NOTHING_LAID_OUT
    inputs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.run) != RUN:
            raise RosterError(f"run has {len(self.run)} bytes, not {RUN}; {_REMEDY}")
        first = self.version == 1
        if self.version < 1 or len(self.previous) != (0 if first else DIGEST):
            raise RosterError(
                f"version = {self.version}, previous of {len(self.previous)} bytes: versions are counted from 1, and "
                f"all but the first name the {DIGEST} bytes of the version before; {_REMEDY}"
            )
        if not (self.from_round == 1 if first else 1 < self.from_round <= MOST_ROUNDS):
            raise RosterError(
                f"from_round = {self.from_round!s:.60}: rounds are counted from 1, where the first version begins; "
                f"name a later one, up to {MOST_ROUNDS}, for a later version only"
            )
        if self.spec.run != Machine():
            raise RosterError("description.run: how one machine runs it is no part of a roster; leave it out")
        self._check_cards()
        self._check_hosts()
        self._check_clients()

    def _check_cards(self) -> None:
        names = [card.name for card in self.cards]
        if names != sorted(names):
            raise RosterError("cards: they lie in the order of their names; sort them")
        # Certificates of one name in other letters would be good for each other.
        for what, values in {
            "name": [name.lower() for name in names],
            "identity": [card.identity.hex() for card in self.cards],
            "box": [card.box.hex() for card in self.cards],
            "certificate": [card.fingerprint.hex() for card in self.cards],
        }.items():
            value, count = Counter(values).most_common(1)[0] if values else ("", 0)
            if count > 1:
                whose = ", ".join(card.name for card, one in zip(self.cards, values, strict=True) if one == value)
                raise RosterError(f"cards: {count} cards have the same {what} ({whose}); give one card for each party")

    def _check_hosts(self) -> None:
        wanted = set(self.spec.protocol.parties(()))
        there = set(self.hosts)
        for name in sorted(wanted - there):
            raise RosterError(
                f"cards: {name!r} takes part in this protocol and has no card; croupier keygen {name} --address "
                "HOST:PORT makes one"
            )
        for name in sorted(there - wanted):
            raise RosterError(
                f"cards: {name!r} has no part in this protocol, whose hosts are {', '.join(sorted(wanted))}; leave its "
                "card out, or change the description"
            )

    def _check_clients(self) -> None:
        plan, protocol, count = self.spec.federation, self.spec.protocol, len(self.clients)
        if not count:
            raise RosterError("cards: no client has a card; croupier keygen NAME makes one for each client")
        try:
            check(protocol, count, plan, _OFFERS)
            check_names(protocol, self.clients, plan)
            # A roster that does not say how large updates are leaves that to the hosts.
            if self.layout.size:
                protocol.place.check_size(protocol, self.layout, plan.cohort or count)
        except SpecError as error:
            raise RosterError(f"{count} clients have cards, and the description does not suit them: {error}") from None
        fewest, most = protocol.release.least, plan.cohort or count
        if not max(1, fewest) <= self.quorum <= most:
            raise RosterError(
                f"quorum = {self.quorum}: a round of {most} invited clients needs from {max(1, fewest)} to {most} of "
                "them; choose such a number, or enrol more clients"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Roster(version={self.version}, clients={len(self.clients)}, digest={self.digest.hex()[:16]}...)"

    @cached_property
    def digest(self) -> bytes:
        """The digest of all that the roster says."""
        return canon.digest(("croupier roster", 1, _plain(self)))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Six words of the digest, to be compared by telephone."""
        return words_of(self.digest)

    @property
    def protocol(self) -> bytes:
        """The protocol's digest."""
        return self.spec.protocol.digest()

    @cached_property
    def _by_name(self) -> Mapping[str, Card]:
        return {card.name: card for card in self.cards}

    @cached_property
    def _by_print(self) -> Mapping[bytes, str]:
        return {card.fingerprint: card.name for card in self.cards}

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients."""
        return tuple(card.name for card in self.cards if not card.is_host)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The names of the parties that others dial."""
        return tuple(card.name for card in self.cards if card.is_host)

    def card(self, name: str) -> Card:
        """A party's card. Raises: RosterError when it has none."""
        if name not in self._by_name:
            raise RosterError(f"{name!r:.60} has no card in version {self.version} of the roster; enrol it first")
        return self._by_name[name]

    def address(self, name: str) -> str:
        """Where a host listens. Raises: RosterError for a client or a stranger."""
        if not (card := self.card(name)).is_host:
            raise RosterError(f"{name!r} is a client, and clients only dial out; dial one of {', '.join(self.hosts)}")
        return card.address

    def party_of(self, certificate_der: bytes) -> str | None:
        """Whose certificate it is; None for a stranger's."""
        return self._by_print.get(hashlib.sha256(certificate_der).digest())

    def text(self) -> str:
        """The roster as a file."""
        return write_table(_HEAD, {"digest": self.digest.hex(), **_plain(self)})

    @classmethod
    def parse(cls, text: str, where: str = "roster") -> Roster:
        """A roster from the text of its file. Raises: RosterError when it is not the one that its digest stands for."""
        top = Fields(where, read_table(text, where, _REMEDY), _REMEDY)
        times, cards = top.fields("timetable"), top.table("cards")
        named = {name: read_within(top.fields("cards").fields(name), where, _REMEDY) for name in sorted(cards)}
        for name, card in named.items():
            if name != card.name:
                raise RosterError(f"{where}: cards.{name!r:.60} is the card of {card.name}; {_REMEDY}")
        try:
            spec = load(top.table("description"))
        except SpecError as error:
            raise RosterError(f"{where}: description: {error}") from None
        found = cls(
            tuple(named.values()), spec, top.raw("run"), top.whole("quorum"),
            Timetable(*(times.number(field.name) for field in fields(Timetable))),
            top.whole("version"), top.raw("previous"), top.whole("from_round"),
            Layout(tuple(_read_slice(str(one), where) for one in top.items("layout"))),
            tuple(int(side) for side in top.items("inputs")),
        )  # fmt: skip
        times.end()
        if top.raw("protocol") != found.protocol:
            raise RosterError(
                f"{where}: protocol = {top.text('protocol'):.60} is not the digest of the protocol described; use the "
                f"version of Croupier that made the roster, or {_REMEDY}"
            )
        if top.raw("digest") != found.digest:
            raise RosterError(
                f"{where}: digest = {top.text('digest'):.60} is not its digest, something was changed; {_REMEDY}"
            )
        top.end()
        return found

    @classmethod
    def read(cls, path: Path) -> Roster:
        """A roster from its file. Raises: RosterError, StoreError."""
        text = read_file(path, _REMEDY)
        try:
            return _parsed(text)
        except RosterError:
            return cls.parse(text, str(path))  # once more, for the file's name


@lru_cache(maxsize=4)
def _parsed(text: str) -> Roster:
    return Roster.parse(text)  # for parties that share a process, as in a rehearsal: a roster takes long to check


def _plain(roster: Roster) -> dict[str, Any]:
    """What a roster's digest binds and its file shows."""
    described = roster.spec.plain()
    del described["run"]
    return {
        "version": roster.version, "previous": roster.previous.hex(), "from_round": roster.from_round,
        "run": roster.run.hex(), "protocol": roster.protocol.hex(), "quorum": roster.quorum,
        "timetable": {field.name: getattr(roster.timetable, field.name) for field in fields(Timetable)},
        "inputs": list(roster.inputs),
        "layout": [_slice_text(part) for part in roster.layout.slices],
        "cards": {card.name: card.plain() for card in roster.cards},
        "description": described,
    }  # fmt: skip


def _slice_text(part: Slice) -> str:
    """One tensor of the layout: its name, its sides and its role."""
    return f"{part.name} {'x'.join(map(str, part.shape)) or 'scalar'} {part.role}"


def _read_slice(text: str, where: str) -> Slice:
    name, _, rest = text.rpartition(" ")[0].rpartition(" ") if text.count(" ") >= 2 else ("", "", "")
    role = text.rpartition(" ")[2]
    try:
        shape = () if rest == "scalar" else tuple(int(side) for side in rest.split("x"))
        found = Slice(name, shape, role)  # type: ignore[arg-type]
    except ValueError:
        found = Slice("", ())
    if not name or role not in ("weight", "statistic", "counter") or _slice_text(found) != text:
        raise RosterError(f"{where}: layout = {text!r:.60}: write NAME SIDExSIDE ROLE; {_REMEDY}")
    return found
