"""One round in which a server cheats, with or without clients that help it, and what came of it.

`tampering` makes a `RainTrial` for every cheat. It holds which server cheats, who helps it, where chance comes from,
and what was sent earlier that could be sent again, for the functions of `messages`, `shuffle`, `dealt_shares` and
`rosters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from croupier.core.attempt import AttemptResult
from croupier.core.coins import Stream
from croupier.core.flow import Coalition, Letter
from croupier.core.view import View
from croupier.encode.encoder import Released
from croupier.engine.failure import alarmed
from croupier.errors import CroupierError
from croupier.place.two_servers.messages import SERVERS
from croupier_lab.bench.tamper.rain.round import ROSTER, TamperedRound, TwoServerRound
from croupier_lab.bench.tamper.verdicts import Verdict


@dataclass
class RainTrial:
    """What whoever cheats can use: the round, which server it is, who helps, chance, and what was sent earlier.

    `acted` says whether anything was done at all, `hit` which of the hidden rows that it sent was touched first (the
    first server sends them in the message w, the second in q).
    """

    round: TwoServerRound
    party: str
    colluders: tuple[str, ...]
    chance: Stream
    earlier: TwoServerRound | None = None
    acted: bool = False
    hit: int | None = None

    @property
    def me(self) -> int:
        """The cheating server's number, 0 or 1."""
        return SERVERS.index(self.party)

    @property
    def peer(self) -> str:
        """The honest server."""
        return SERVERS[1 - self.me]

    def pick(self, limit: int) -> int:
        """A choice below a limit."""
        return int(self.chance.below(limit)[0])

    def two(self, limit: int) -> tuple[int, int]:
        """Two different choices."""
        one = self.pick(limit)
        return one, (one + 1 + self.pick(limit - 1)) % limit

    def heard(self, view: View, kind: str) -> Mapping[str, Tensor] | None:
        """The honest server's letter of a kind, taken in or still in the mailbox; None when it has stopped."""
        inboxes = [inbox for inbox in view.inputs if isinstance(inbox, tuple)]
        its = (one.body for inbox in inboxes for one in inbox if one.kind == kind and one.source == self.peer)
        return next(its, None)

    def run(self, tampered: TamperedRound) -> AttemptResult:
        """Play the round, in which the cheating server and its helpers send last."""

        def change(held: Mapping[str, tuple[Letter, ...]], views: Mapping[str, View]) -> dict[str, tuple[Letter, ...]]:
            found = {}
            for who, letters in held.items():
                tamper = tampered.letters if who == self.party else tampered.clients.get(who, _unchanged)
                found[who] = tamper(letters, views[who])
                self.acted |= list(map(id, found[who])) != list(map(id, letters))
            return found

        members = frozenset({self.party, *self.colluders, *tampered.clients})
        return self.round.sit(self.party, tampered, Coalition(members, change))

    def verdict(self, tampered: TamperedRound, result: AttemptResult) -> Verdict:
        """Whether anybody honest took a wrong result, and else whether the round loop would have gone on."""
        fitting = list(self.round.honest(tampered.free))

        def right(sums: Tensor, total: Tensor, distances: list[int] | None = None) -> bool:
            return any(
                torch.equal(sums, one) and torch.equal(total, two) and distances in (None, three)
                for one, two, three in fitting
            )

        honest = [who for who in ROSTER if who not in self.colluders and who not in tampered.clients]
        content = [who for who in honest if result.outcomes[who].error is None]
        for who in content:
            (letter,) = result.views[who].inputs[-1]
            if not right(letter.body["sums"], letter.body["total"]):
                return "escapes"
        try:
            # A colluder that could complain does not.
            alarmed(0, tuple(honest), result)
        except CroupierError:
            return "aborted"
        memory = result.outcomes[self.peer].memory
        if memory is None:
            return "aborted"
        released: Released = memory["released"]
        if released.sums is None:
            return "escapes"
        if not right(released.sums, released.luggage["total"], sorted(released.luggage["distances"].tolist())):
            return "escapes"
        return "harmless" if content else "aborted"

    def kinds(self) -> list[str]:
        """The kinds of letters that the honest server sent, in order."""
        return [letter.kind for letter in self.round.sent.get(self.peer, [])]

    def unknown(self) -> int | None:
        """What the cheating server does not know of the row that it touched: where it ends up, or whose it is."""
        if self.hit is None:
            return None
        first, second = self.round.orders
        return int(np.flatnonzero(second == self.hit)[0]) if self.me == 0 else int(first[second[self.hit]])


def _unchanged(letters: tuple[Letter, ...], view: View) -> tuple[Letter, ...]:
    return letters
