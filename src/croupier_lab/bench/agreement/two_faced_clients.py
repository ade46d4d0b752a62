"""Faulty clients with two selves: a relay that helps them hands each side of the readers another self's notes.

A note is what a client says to the others in one turn, through the relay; a reader is a client that is handed notes.
The other self (`Twin`) has its client's keys, opens the same boxes and draws something else, so that each side could
end with a rule of its own if nobody compared. Which side is told what, is said by a `fault_schedules.Schedule`.

`faulty_parties` (`croupier bench agree`) uses `Twin`, `tell` and `careless` where a schedule has twins, and `Bundle`,
`body_of` and `terms_of` for other faults, too. Tests of agreements alter notes by `Bundle`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from croupier.agree.agreement import ended
from croupier.agree.board import SERVER, Turn
from croupier.agree.commit_reveal import CommittingClient
from croupier.agree.standing import Standing
from croupier.core.attempt import Attempt
from croupier.core.coins import Coins, Label
from croupier.core.flow import Exchange, Flow, Given, Letter, Memory, Party, Received, SubFlow, Wait
from croupier.core.wire import bitmap, chosen
from croupier.errors import CroupierError
from croupier.mpc.joint import Terms
from croupier_lab.bench.agreement.fault_schedules import Schedule

Body = Mapping[str, Tensor]


def body_of(letter: Letter) -> Body:
    """The arrays of a note."""
    if isinstance(letter.body, bytes):
        raise TypeError("notes are arrays")
    return letter.body


@dataclass
class Bundle:
    """What the relay hands one reader in a turn, with the note of each client by itself."""

    target: str
    kind: str
    rows: dict[str, Body]
    fields: Mapping[str, int]

    @classmethod
    def of(cls, roster: tuple[str, ...], letter: Letter) -> Bundle:
        """Take the relay's letter apart."""
        body = body_of(letter)
        names = [name for name in body if name != "present"]
        present = chosen(roster, body["present"])
        rows: dict[str, Body] = {who: {n: body[n][at] for n in names} for at, who in enumerate(present)}
        return cls(letter.target, letter.kind, rows, {name: body[name].shape[1] for name in names})

    def cut(self, note: Body, reader: str, roster: tuple[str, ...]) -> Body:
        """The part of a note that is for one reader."""
        place = roster.index(reader)
        return {name: values[place] if values.dim() == 2 else values for name, values in note.items()}

    def letter(self, roster: tuple[str, ...]) -> Letter:
        """Put the letter together again."""
        there = [who for who in roster if who in self.rows]
        body = {
            name: torch.stack([self.rows[who][name] for who in there])
            if there
            else torch.zeros((0, size), dtype=torch.uint8)
            for name, size in self.fields.items()
        }
        return Letter(self.target, self.kind, {"present": bitmap(roster, tuple(there)), **body})


@dataclass
class Twin:
    """A faulty client's other self, which runs inside the relay: it has the same keys, and other coins for the rest."""

    name: str
    roster: tuple[str, ...]
    flow: Flow
    notes: dict[str, Body] = field(default_factory=dict)
    wait: Wait | None = None

    @classmethod
    def wake(cls, attempt: Attempt, party: Party, name: str) -> Twin:
        """Start the twin at the beginning of an attempt, with its client's memory and keys."""
        given, own = attempt.givens[name], attempt.coins[name]
        coins: Any = _Beside(own, own.child("twin"))
        twin = cls(name, given.roster, party(given, attempt.memories[name], coins))
        twin._go(None)
        return twin

    def read(self, own: Bundle) -> None:
        """Take in what it is handed, if it waits for it; where a proof does not come it goes on without."""
        while self.wait is not None and self.wait.kind != own.kind and self.wait.kind.startswith("proof"):
            self._go(())
        if self.wait is not None and self.wait.kind == own.kind:
            self._go((Received(SERVER, own.kind, body_of(own.letter(self.roster))),))

    def _go(self, answer: Any) -> None:
        try:
            while True:
                ask = self.flow.send(answer)
                assert isinstance(ask, Exchange)
                self.notes.update({letter.kind: body_of(letter) for letter in ask.send})
                self.wait, answer = ask.wait, ()
                if ask.wait is not None:
                    return
        except (StopIteration, CroupierError):
            self.wait = None


class _Beside:
    """Coins of a twin: those for the keys of boxes are its client's, and everything else is drawn anew."""

    def __init__(self, own: Coins, other: Coins) -> None:
        self.own, self.other = own, other

    def child(self, *labels: Label) -> Coins:
        """A node of its client's tree or of its own."""
        return (self.own if labels[0] == "lock" else self.other).child(*labels)


def tell(twins: Sequence[Twin], bundles: dict[str, Bundle], plan: Schedule) -> None:
    """Hand readers on the schedule's `side`, and the twins themselves, what twins say in place of their clients.

    When the sides are `parted`, readers off that side hear nothing from those on it.
    """
    turn = next(iter(bundles.values())).kind.removesuffix(" all")
    notes = {twin.name: twin.notes[turn] for twin in twins if turn in twin.notes}
    hidden = {name: replace(bundle, rows=dict(bundle.rows)) for name, bundle in bundles.items()}
    for reader, bundle in bundles.items():
        if reader in plan.side:
            _other(bundle, notes, plan)
        elif plan.parted:
            bundle.rows = {who: row for who, row in bundle.rows.items() if who not in plan.side}
    for twin in twins:
        if twin.name in hidden:
            _other(hidden[twin.name], notes, plan)
            twin.read(hidden[twin.name])


def _other(bundle: Bundle, notes: Mapping[str, Body], plan: Schedule) -> None:
    """Make one reader's bundle what readers on the schedule's `side` are told.

    What faulty clients say is replaced by what their twins say, and where the sides are parted, what honest clients off
    that side say is left out.
    """
    bundle.rows |= {who: bundle.cut(note, bundle.target, plan.clients) for who, note in notes.items()}
    if plan.parted:
        bundle.rows = {who: row for who, row in bundle.rows.items() if who in plan.side | plan.faulty}


class Careless(CommittingClient):
    """A participant that goes on whatever the others say, as the faulty do to keep the rest from noticing."""

    def _alike(self, turn: Turn, purpose: str, digest: bytes) -> SubFlow:
        yield from self._turn(turn, {"digest": digest, "signature": self._sign(purpose, digest)})


def terms_of(form: str, given: Given) -> Terms:
    """What the agreements here are about: epochs from round 0 on for joint secrets, single rounds for PBFT."""
    return Terms.of(given, 0) if form == "joint" else Terms.of(given, given.round, given.round)


def careless() -> Party:
    """A client's flow without its comparisons."""

    def flow(given: Given, memory: Memory, coins: Coins) -> Flow:
        mine = Careless(given, terms_of("joint", given), memory["keys"], coins, Standing.of(memory))
        after: Memory = yield from ended(mine)
        return after

    return flow
