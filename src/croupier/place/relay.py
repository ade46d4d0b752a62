"""One relay that everybody trusts stands between the clients and the server.

The shortest placement with a party in between, and the reference for all others: the release is computed in the clear
by its own function. Whoever runs the relay sees every update with its sender, and `explain` says so. Start reading
placements here.

Many presets use it (`rns`, `intra` and the `digits-*` that shuffle or sum), and so do audits, for the protocols that
they compare with (`systems`, `audit.recorded.audited`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema, attendance, bitmap
from croupier.encode.encoder import Brief, Payload, Released
from croupier.encode.signs import reference_fields
from croupier.errors import TooFew
from croupier.place.direct import Direct
from croupier.place.labels import too_few
from croupier.place.placement import (
    NO_BRIEF,
    NOTHING,
    Keys,
    Mechanism,
    Placement,
    Reads,
    ServerHoldings,
    Sight,
    Tolerance,
    let_out,
    quorum,
    read_released,
    released_schema,
    up_body,
    up_schema,
)
from croupier.place.witness import Witnesses
from croupier.release.release import Shape


class Relay(Placement, use="relay"):
    """A trusted relay computes the release in the clear and passes it on."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"rows", "sums", "bucketed", "scored"})
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
            try:
                inbox = yield Exchange(wait=Wait("up", given.roster, quorum(mechanism, given)))
            except TooFew as error:
                raise too_few(mechanism, given, error) from None
            late = NO_BRIEF
            if mechanism.release.shape == "scored":
                here = {"present": bitmap(given.roster, tuple(letter.source for letter in inbox))}
                (told,) = yield Exchange((Letter("server", "roster", here),), Wait("late", ("server",)))
                late = told.body
            body = let_out(mechanism, given, inbox, coins.child("release"), late)
            yield Exchange((Letter("server", "released", body),))
            return memory

        return {"relay": relay}

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """What clients send up, and what the relay lets out."""
        kinds = {"up": up_schema(mechanism, given), "released": released_schema(mechanism, given)}
        if mechanism.release.shape == "scored":
            kinds["roster"] = Schema((attendance(given.roster),))
            kinds["late"] = Schema(reference_fields(mechanism.encode.slots(given.layout)))
        return kinds

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """Reveals: the whole update to the relay."""
        yield Exchange((Letter("relay", "up", up_body(payload)),))

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """Wait for the relay, and tell it the reference once the updates are with it."""
        if mechanism.release.shape == "scored":
            yield Exchange(wait=Wait("roster", ("relay",)))
            late = {field.name: own.brief[field.name] for field in reference_fields(1)}
            yield Exchange((Letter("relay", "late", late),))
        inbox = yield Exchange(wait=Wait("released", ("relay",)))
        return self.opened(mechanism, given.roster, given.layout, inbox)

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """What the relay let out."""
        return read_released(mechanism, roster, layout, inbox[0].body, ids="ids" not in mechanism.release.hides)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """The server learns the release, the relay everything."""
        return {
            "server": f"{mechanism.release.reveals()}; and which clients took part",
            "relay": "every client's whole update, and whose it is",
        }

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """With the relay the server sees what the relay sees."""
        return {("server", "relay"): "named"}

    def sight(self, mechanism: Mechanism, party: str) -> Sight:
        """The relay sees everything."""
        return Sight("named")

    def pooled(self, mechanism: Mechanism, parties: Witnesses) -> Released:
        """What clients sent to the relay, read as a server reads what is sent to it straight (`direct`)."""
        relay = parties["relay"]
        inbox = tuple(letter for letter in relay.letters if letter.kind == "up")
        return Direct().opened(mechanism, relay.given.roster, relay.given.layout, inbox)
