"""A toy placement with two parties in the middle: proof that a new placement changes no mechanism.

The first hop collects and may ask for a restart; the second computes the release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, Received, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema, attendance, bitmap, chosen
from croupier.encode.encoder import Brief, Payload, Released
from croupier.place.placement import (
    NO_BRIEF,
    NOTHING,
    Keys,
    Mechanism,
    Placement,
    ServerHoldings,
    Tolerance,
    let_out,
    quorum,
    read_released,
    released_schema,
    up_body,
    up_schema,
)
from croupier.release.release import Shape


class TwoHop(Placement, use="two-hop"):
    """Clients, first hop, second hop, server."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"rows", "sums"})
    restarts: ClassVar[bool] = True
    tolerance: ClassVar[Tolerance] = Tolerance("the server alone", "none", "both hops", (("first", "server"),))

    patient: bool = False
    """Whether the first hop insists on everybody, and so makes the round start again without the missing."""

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """Two parties."""

        def first(given: Given, memory: Memory, coins: Coins) -> Flow:
            least = len(given.roster) if self.patient else quorum(mechanism, given)
            inbox = yield Exchange(wait=Wait("up", given.roster, least))
            present = bitmap(given.roster, tuple(letter.source for letter in inbox))
            stacked = {name: torch.stack([letter.body[name] for letter in inbox]) for name in inbox[0].body}
            yield Exchange((Letter("second", "stack", {"present": present, **stacked}),))
            return memory

        def second(given: Given, memory: Memory, coins: Coins) -> Flow:
            (letter,) = yield Exchange(wait=Wait("stack", ("first",)))
            names = chosen(given.roster, letter.body["present"])
            arrays = {name: values for name, values in letter.body.items() if name != "present"}
            inbox = tuple(
                Received(who, "up", {name: values[i] for name, values in arrays.items()}) for i, who in enumerate(names)
            )
            body = let_out(mechanism, given, inbox, coins.child("release"))
            yield Exchange((Letter("server", "released", self.finish(body)),))
            return memory

        return {"first": first, "second": second}

    def finish(self, body: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the second hop sends; a planted fault overrides it."""
        return body

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """Three kinds of message."""
        up = up_schema(mechanism, given)
        rows = tuple(replace(f, shape=("present", *f.shape)) for f in up.fields)
        stack = Schema((attendance(given.roster), *rows))
        return {"up": up, "stack": stack, "released": released_schema(mechanism, given)}

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """To the first hop. The draw stands for a mask that a real placement would make here."""
        coins.child("mask").secure()
        yield Exchange((Letter("first", "up", up_body(payload)),))

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """From the second hop."""
        inbox = yield Exchange(wait=Wait("released", ("second",)))
        return self.opened(mechanism, given.roster, given.layout, inbox)

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """What the second hop let out."""
        return read_released(mechanism, roster, layout, inbox[0].body, ids="ids" not in mechanism.release.hides)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """A toy says little."""
        return {"server": mechanism.release.reveals(), "first": "everything", "second": "everything"}


class TwoHopPlusOne(TwoHop, use="two-hop-plus-one"):
    """A planted fault: the second hop adds 1 to the first coordinate."""

    def finish(self, body: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Off by one."""
        changed = {name: values.clone() for name, values in body.items()}
        for name in ("rows", "sums"):
            if name in changed:
                changed[name].view(-1)[0] += 1
        return changed
