"""How a roster is made, how the next version follows from it, and whether it truly follows.

A federation outlives its first roster: parties join, leave and renew keys, and nobody may be slipped in on the way.
`croupier enrol` makes versions (`make_roster`, `next_roster`); `service.home` checks that one follows the other before
it pins it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.engine.federation import least
from croupier.errors import RosterError
from croupier.service.card import Card
from croupier.service.roster import NOTHING_LAID_OUT, RUN, Roster, Timetable
from croupier.spec import Machine, Spec


@dataclass(frozen=True)
class Shapes:
    """Which tensor lies where in an update, and the shape of a record: what hosts must know and cannot measure."""

    layout: Layout = NOTHING_LAID_OUT
    inputs: tuple[int, ...] = ()


# For a roster that says nothing of shapes.
UNKNOWN = Shapes()


def make_roster(
    cards: Iterable[Card], spec: Spec, coins: Coins, quorum: int | None = None, timetable: Timetable | None = None,
    shapes: Shapes = UNKNOWN,
) -> Roster:  # fmt: skip
    """The first version of a roster, for a new run. Without a quorum, the description's share of the invited."""
    every = _sorted(cards)
    clients = sum(not card.is_host for card in every)
    described = spec.model_copy(update={"run": Machine()})
    needed = _quorum(described, clients) if quorum is None else quorum
    run = bytes(coins.child("run").secure().bytes(RUN))
    times = timetable or Timetable()
    return Roster(every, described, run, needed, times, layout=shapes.layout, inputs=shapes.inputs)


def next_roster(
    old: Roster,
    from_round: int,
    cards: Iterable[Card] = (),
    without: Iterable[str] = (),
    quorum: int | None = None,
    timetable: Timetable | None = None,
) -> Roster:
    """The version after `old`: with new or renewed cards, without those who leave. Raises: RosterError."""
    kept = {card.name: card for card in old.cards}
    for name in without:
        kept.pop(old.card(name).name)
    every = _sorted({**kept, **_each(cards)}.values())
    clients = sum(not card.is_host for card in every)
    needed = _quorum(old.spec, clients) if quorum is None else quorum
    times = timetable or old.timetable
    new = Roster(
        every, old.spec, old.run, needed, times, old.version + 1, old.digest, from_round, old.layout, old.inputs
    )
    verify_chain(old, new)
    return new


def _each(cards: Iterable[Card]) -> dict[str, Card]:
    every = tuple(cards)
    for name, count in Counter(card.name for card in every).items():
        if count > 1:
            raise RosterError(f"cards: {count} cards are of {name}; give its newest one")
    return {card.name: card for card in every}


def _sorted(cards: Iterable[Card]) -> tuple[Card, ...]:
    return tuple(sorted(cards, key=lambda card: card.name))


def _quorum(spec: Spec, clients: int) -> int:
    return max(least(spec.federation, spec.federation.cohort or clients), spec.protocol.release.least)


def verify_chain(old: Roster, new: Roster) -> None:
    """Raises: RosterError when `new` is not the version after `old`.

    It names the version before by its digest, belongs to the same run, has the same description, layout and inputs,
    holds from a later round, and everybody who stays has the same identity.
    """
    if new.run != old.run:
        raise RosterError(
            f"run = {new.run.hex()}: the roster before it is of run {old.run.hex()}; ask for the right file"
        )
    if new.version != old.version + 1 or new.previous != old.digest:
        raise RosterError(
            f"version = {new.version}, previous = {new.previous.hex()[:16]}...: it does not follow version "
            f"{old.version}, whose digest is {old.digest.hex()[:16]}...; accept the versions between first"
        )
    if new.from_round <= old.from_round:
        raise RosterError(
            f"from_round = {new.from_round}: the version before holds from round {old.from_round}; choose a later one"
        )
    if new.spec.digest() != old.spec.digest():
        raise RosterError("description: it is another one than in the version before; a new description is a new run")
    if (new.layout, new.inputs) != (old.layout, old.inputs):
        raise RosterError("layout: updates have other shapes than in the version before; another network is a new run")
    verify_identities(old, new)


def verify_identities(old: Roster, new: Roster) -> None:
    """Raises: RosterError when somebody else has taken a name."""
    known = {card.name: card.identity for card in old.cards}
    for card in new.cards:
        if known.get(card.name, card.identity) != card.identity:
            raise RosterError(
                f"card of {card.name}: its identity is not that of version {old.version}; whoever lost an identity "
                "key joins under a new name, and for a new host a new run is started"
            )
