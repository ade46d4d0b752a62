"""One server's way through a chain of boxes in escrow: hops that come, that are passed on, or that are done without.

`escrowed` says what it is for and plays it: a `MixStanding` is what one server holds from hop to hop, and `hop` is one
layer of all boxes, taken off by the server whose it is, or by the others where that one is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Letter, Received, SubFlow, Wait, roster_digest
from croupier.errors import IntegrityError, ProtocolError
from croupier.mpc import escrow
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.mix import Rows
from croupier.mpc.seal import Lock, refuse_repeats
from croupier.mpc.signatures import signed, verified
from croupier.place.chain.boxes import opened_box
from croupier.place.placement import Keys

SIGNATURE = 64
# How patient a server is (`core.flow.Wait`) with a hop, and with the others' word whether it came: whoever still waits
# for a hop must have said so before the others go on without its word.
_HOP, _WORD = 2, 3


# Not printed: it holds shares of keys.
@dataclass(repr=False)
class MixStanding:
    """Where one server stands: who is not gone, what it holds, and what it has of the others' keys."""

    given: Given
    names: tuple[str, ...]
    threshold: int
    keys: Keys
    live: list[str]
    boxes: list[bytes]
    present: torch.Tensor
    publics: Mapping[str, bytes]
    shares: Mapping[str, bytes]

    @property
    def me(self) -> str:
        """The name of this server."""
        return self.given.me

    @property
    def others(self) -> tuple[str, ...]:
        """All servers that are not gone, but this one."""
        return tuple(name for name in self.live if name != self.me)

    def hop(self, at: int, shuffled: Callable[[Rows], Rows], lock: Lock) -> SubFlow:
        """One layer less: by the server whose it is, or by all others when that one is gone."""
        acting, after = self.names[at], None
        before = canon.digest(tuple(self.boxes))
        if acting == self.me:
            opened = [opened_box(lock, box, self.given, acting) for box in self.boxes]
            refuse_repeats(opened)
            after = shuffled(np.frombuffer(b"".join(opened), np.uint8).reshape(len(opened), -1))
            body = {"present": self.present, "boxes": torch.from_numpy(after)}
            yield Exchange(tuple(Letter(name, f"hop{at}", body) for name in self.others))
        else:
            inbox = yield Exchange(wait=Wait(f"hop{at}", (acting,), 0, _HOP))
            after = self._come(inbox[0]) if inbox else None
        lacking = yield from self._told(at, before, after is not None)
        if len(lacking) >= self.threshold:
            yield from self._without(at)
            return
        if after is None:
            having = tuple(name for name in self.others if name not in lacking and name != acting)
            if not having:
                few = f"{len(lacking)} of the {self.threshold} needed signed that it is gone"
                raise ProtocolError(f"{self.me}: nothing came from {acting}, and {few}; the round is lost")
            inbox = yield Exchange(wait=Wait(f"again{at}", having, 1, _WORD))
            after = self._come(inbox[0])
        elif lacking and acting != self.me:
            body = {"present": self.present, "boxes": torch.from_numpy(after)}
            yield Exchange(tuple(Letter(name, f"again{at}", body) for name in lacking))
        self.boxes = [bytes(box) for box in after]

    def _come(self, letter: Received) -> Rows:
        """The boxes of a hop. Raises: ProtocolError when they are of other clients."""
        if not torch.equal(letter.body["present"], self.present):
            raise ProtocolError(f"{letter.source} and {self.me} mix different clients; the round is lost")
        found: Rows = letter.body["boxes"].numpy()
        return found

    def _told(self, at: int, before: bytes, came: bool) -> SubFlow:
        """Who lacks a hop, by what each server says and signs.

        Raises: ProtocolError when servers hold other boxes; IntegrityError when one lacks it and did not sign so.
        """
        claim = _gone(self.given, self.names[at])
        signature = bytes(SIGNATURE) if came else signed(self.keys["identity"], claim)
        body = {
            "came": torch.tensor([int(came)], dtype=torch.uint8), "signature": byte_tensor(signature),
            "before": byte_tensor(before),
        }  # fmt: skip
        letters = tuple(Letter(name, f"status{at}", body) for name in self.others)
        inbox = yield Exchange(letters, Wait(f"status{at}", self.others, self.threshold - 1, _WORD))
        lacking = [] if came else [self.me]
        for letter in inbox:
            if bytes_of(letter.body["before"]) != before:
                raise ProtocolError(f"{letter.source} and {self.me} hold different boxes; the round is lost")
            if letter.body["came"]:
                continue
            if not verified(self.keys["public"][letter.source], claim, bytes_of(letter.body["signature"])):
                raise IntegrityError(f"{letter.source} did not sign that {self.names[at]} is gone")
            lacking.append(letter.source)
        return lacking

    def _without(self, at: int) -> SubFlow:
        """Open the layer of a server that is gone. Raises: IntegrityError when its key does not come together."""
        gone = self.names[at]
        if gone == self.me:
            raise ProtocolError(f"the other mix servers signed that {gone} is gone, and went on without it")
        self.live.remove(gone)
        body = {"share": byte_tensor(self.shares[gone])}
        letters = tuple(Letter(name, f"open{at}", body) for name in self.others)
        inbox = yield Exchange(letters, Wait(f"open{at}", self.others, self.threshold - 1, _WORD))
        found = {self.me: self.shares[gone], **{one.source: bytes_of(one.body["share"]) for one in inbox}}
        lock = together(self.names, self.threshold, found)
        if lock.public != self.publics[gone]:
            raise IntegrityError(f"what the mix servers hold of the key of {gone} is not its key; the round is lost")
        self.boxes = [opened_box(lock, box, self.given, gone) for box in self.boxes]
        refuse_repeats(self.boxes)


def together(names: Sequence[str], threshold: int, found: Mapping[str, bytes]) -> Lock:
    """A key, from as many servers' shares of it as can open it."""
    points = {names.index(name) + 1: share for name, share in found.items()}
    return Lock.make(Coins(escrow.joined(dict(list(points.items())[:threshold]))))


def _gone(given: Given, name: str) -> bytes:
    """What a server signs of another one from which a hop did not come."""
    head = ("mix server gone", given.run, given.round, given.attempt, roster_digest(given.roster))
    return canon.digest((*head, name))
