"""Clients send straight to the server, with their names: this placement hides nothing.

A release that hides something, such as a shuffle, is refused here (`Pipeline`): the server would compute it itself and
see what it should not. What remains is the release `rows`. Used for plain federated averaging, the presets of Tazza
(whose encoder hides coordinates instead) and the baseline of audits; `relay` and `chain.trusted` use its `opened` to
say what their trusted party can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Inbox, Letter, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Brief, Payload, Released
from croupier.kernels.rows import table
from croupier.place.placement import (
    NO_BRIEF,
    NOTHING,
    Keys,
    Mechanism,
    Placement,
    ServerHoldings,
    Tolerance,
    quorum,
    up_body,
    up_schema,
)
from croupier.release.release import Shape


class Direct(Placement, use="direct"):
    """No party between the clients and the server."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"rows"})
    keeps_ids: ClassVar[bool] = True
    tolerance: ClassVar[Tolerance] = Tolerance(
        privacy="none: the server sees everything",
        integrity="none: the server computes alone; links between parties are authenticated",
        liveness="the server; a round completes with the clients present, above the quorum",
    )

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """One kind of message: a client's payload."""
        return {"up": up_schema(mechanism, given)}

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """Reveals: the whole update to the server."""
        yield Exchange((Letter("server", "up", up_body(payload)),))

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """Wait for those who come."""
        inbox = yield Exchange(wait=Wait("up", given.roster, quorum(mechanism, given)))
        return self.opened(mechanism, given.roster, given.layout, inbox)

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """Each update as it came, under its sender's name."""
        names = tuple(letter.source for letter in inbox)
        beside = {f.name: torch.stack([m.body[f.name] for m in inbox]) for f in mechanism.encode.luggage()}
        rows = torch.from_numpy(table([letter.body["vector"].numpy() for letter in inbox]))
        return Released(names, rows, None, beside, names, layout)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """The server learns everything."""
        return {"server": mechanism.release.reveals()}
