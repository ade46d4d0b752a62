"""A party that tells others what it knows: an adversary is one such party, or several.

An audit's adversary is made of these (`audit.seen`). A witness is read off a view, with what the party was given and
every letter that reached it; no key and no other party's coins are in it. `Placement.pooled` gets the witnesses of a
coalition and says what they can read together, and whether with names. So audits attack exactly what a coalition of
parties holds, and not what a simulation happens to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Ask, Body, Exchange, Given, Inbox, SubFlow
from croupier.errors import ProtocolError


@dataclass(frozen=True)
class Witness:
    """What a party was given, every letter that reached it, and what else it brings.

    `coins` are its own, of the round; `payload` is what a client sent, as it was before it was hidden.
    """

    given: Given
    letters: Inbox = field(repr=False)
    coins: Coins | None = None
    payload: Tensor | None = field(default=None, repr=False)

    def received(self, kind: str) -> dict[str, Body]:
        """The letters of a kind, by who sent them."""
        return {letter.source: letter.body for letter in self.letters if letter.kind == kind}

    def received_one(self, kind: str) -> Body:
        """The letter of a kind that one party sends. Raises: ProtocolError when it did not come."""
        for letter in self.letters:
            if letter.kind == kind:
                return letter.body
        raise ProtocolError(f"no letter {kind!r} reached {self.given.me}")

    def replayed(self, flow: SubFlow) -> Any:
        """What a part of its flow returns, played again with the letters that reached it."""
        answer: Inbox | None = None
        while True:
            try:
                ask = flow.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = self._answer(ask)

    def sent(self, flow: SubFlow, kind: str) -> Body:
        """What it sent of a kind, by playing its flow again. Raises: ProtocolError when it sent none."""
        answer: Inbox | None = None
        with suppress(StopIteration):
            while True:
                ask = flow.send(answer)
                for letter in ask.send if isinstance(ask, Exchange) else ():
                    if letter.kind == kind and isinstance(letter.body, Mapping):
                        return letter.body
                answer = self._answer(ask)
        raise ProtocolError(f"{self.given.me} sent no {kind!r}")

    def _answer(self, ask: Ask) -> Inbox:
        if not isinstance(ask, Exchange):
            raise ProtocolError(f"{self.given.me} asked for {ask.name!r}, which no letter answers")
        if ask.wait is None:
            return ()
        found = {letter.source: letter for letter in self.letters if letter.kind == ask.wait.kind}
        return tuple(found[source] for source in ask.wait.sources if source in found)

    @property
    def own(self) -> Coins:
        """Its coins. Raises: ProtocolError when it does not bring them."""
        if self.coins is None:
            raise ProtocolError(f"{self.given.me} does not say what its coins were")
        return self.coins


# By name.
Witnesses = Mapping[str, Witness]
