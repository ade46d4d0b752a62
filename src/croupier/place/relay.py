"""One relay that everybody trusts stands between the clients and the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Payload, Released
from croupier.place.placement import (
    Keys,
    Mechanism,
    Placement,
    Tolerance,
    let_out,
    quorum,
    read_released,
    released_schema,
    up_body,
    up_schema,
)
from croupier.release.release import Shape


class Relay(Placement, use="relay"):
    """A trusted relay computes the release in the clear and passes it on."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"rows", "sums", "scored"})
    unary: ClassVar[bool] = True
    tolerance: ClassVar[Tolerance] = Tolerance(
        privacy="a server that follows the protocol; one that hands clients different models or scales can single one "
        "out. The relay is trusted and sees every update with its name",
        integrity="none: the relay computes alone; links between parties are authenticated",
        liveness="the relay and the server; a round completes with the clients present, above the quorum",
        apart=(("relay", "server"),),
    )

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The relay."""

        def relay(given: Given, memory: Memory, coins: Coins) -> Flow:
            inbox = yield Exchange(wait=Wait("up", given.roster, quorum(mechanism, given)))
            body = let_out(mechanism, given, inbox, coins.child("release"))
            yield Exchange((Letter("server", "released", body),))
            return memory

        return {"relay": relay}

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """What clients send up, and what the relay lets out."""
        return {"up": up_schema(mechanism, given), "released": released_schema(mechanism, given)}

    def submit(self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins) -> SubFlow:
        """Reveals: the whole update to the relay."""
        yield Exchange((Letter("relay", "up", up_body(payload)),))

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins) -> SubFlow:
        """Wait for the relay."""
        inbox = yield Exchange(wait=Wait("released", ("relay",)))
        return self.opened(mechanism, given.roster, given.layout, inbox)

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """What the relay let out."""
        return read_released(mechanism, roster, layout, inbox[0].body, ids="ids" not in mechanism.release.hides)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """The server the release, the relay everything."""
        return {
            "server": f"{mechanism.release.reveals()}; and which clients took part",
            "relay": "every client's whole update, and whose it is",
        }
