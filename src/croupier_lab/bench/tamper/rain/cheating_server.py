"""A server of two that cheats from within: it alters what it sends and goes on as if that were right.

It ignores its own checks of the shuffle and of opened shares, so that what they would notice ends a round only where
the honest server or a client notices it. Its other checks (of forwarded rows, of signatures, of how many clients are
present) may still end a round. `round` seats a `CheatingServer` in the cheater's place, and `shuffle`, `dealt_shares`
and `rosters` say by a `Deviation` what it alters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from croupier.core.flow import Exchange, SubFlow
from croupier.errors import IntegrityError
from croupier.kernels.field import Bytes
from croupier.mpc.authentic import TaggedShares, TagHolder
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.tallies import Tally
from croupier.place.two_servers.server_flow import ServerFlow
from croupier_lab.bench.tamper.verdicts import body_of

Bodies = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class Deviation:
    """What the cheating server does otherwise; each function gets what would be used if it were honest.

    `material` changes what it was dealt, `got` the uploads, `rows` the shuffle's rows that it sends (letters w and q),
    `own` the rows that it goes on with, and `share` the shares that it opens. `own` also gets the rows that were sent,
    as altered.
    """

    material: Callable[[ShuffleShare], ShuffleShare] = lambda material: material
    got: Callable[[Bodies], Bodies] = lambda got: got
    rows: Callable[[ShuffleShare, Bytes], Bytes] = lambda material, rows: rows
    own: Callable[[ShuffleShare, Bytes, Bytes], Bytes] = lambda material, sent, own: own
    share: Callable[[TagHolder, str, TaggedShares], TaggedShares] = lambda side, kind, held: held


@dataclass
class AlteringHolder(TagHolder):
    """A holder of tagged shares that alters shares before it opens them, and ignores its own checks."""

    tamper: Deviation = field(default_factory=Deviation)

    def open(self, kind: str, held: TaggedShares) -> SubFlow:
        """Open shares as altered, with tags as `share` left them, and go on as if these were its own."""
        return (yield from super().open(kind, self.tamper.share(self, kind, held)))

    def check(self, step: str) -> SubFlow:
        """Play the check to its end, whatever comes out."""
        try:
            yield from super().check(step)
        except IntegrityError:
            return


@dataclass
class CheatingServer(ServerFlow):
    """RAIN's server with a deviation, which goes on when its own checks of shuffle and shares fail."""

    tamper: Deviation = field(default_factory=Deviation)

    def _dealt(self) -> SubFlow:
        material, gates = yield from super()._dealt()
        return self.tamper.material(material), gates

    def _agreed(self, got: Bodies, late: Mapping[str, Tensor] | None) -> SubFlow:
        return (yield from super()._agreed(self.tamper.got(got), late))

    def _shuffled(self, material: ShuffleShare, rows: Bytes) -> SubFlow:
        flow, sent = super()._shuffled(material, rows), rows
        answer = None
        while True:
            try:
                ask = flow.send(answer)
            except StopIteration as stop:
                return self.tamper.own(material, sent, stop.value)
            if isinstance(ask, Exchange) and ask.send:
                (letter,) = ask.send
                sent = self.tamper.rows(material, body_of(letter)["rows"].numpy().copy())
                ask = Exchange((replace(letter, body={"rows": torch.from_numpy(sent)}),), ask.wait)
            answer = yield ask

    def _sound(self, material: ShuffleShare, tally: Tally, rows: Bytes, hidden: Bytes) -> SubFlow:
        try:
            yield from super()._sound(material, tally, rows, hidden)
        except IntegrityError:
            return

    def _side(self, material: ShuffleShare, shares: bool = False) -> TagHolder:
        return AlteringHolder(**vars(super()._side(material, shares)), tamper=self.tamper)
