"""The chain of one server that everybody trusts: a relay to which residues travel in binary and not in unary.

It is Algorithm 7 of the source-inference paper (RNS), which run-length codes unary residues where the shuffler may read
them: the run of ones is the residue, so that ceil(log2 m) bits do for a modulus m. Everything else is the relay's, but
that the server signs for every client.

`chain.Chain` uses it for `trust = "full"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, Received, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Field, Schema
from croupier.encode.encoder import Payload, Released
from croupier.errors import TooFew
from croupier.kernels import residues
from croupier.place.chain import receipts
from croupier.place.chain.form import MixForm
from croupier.place.chain.table import MixTable
from croupier.place.direct import Direct
from croupier.place.labels import too_few
from croupier.place.placement import (
    Keys,
    Mechanism,
    Reads,
    Sight,
    Tolerance,
    let_out,
    read_released,
    released_schema,
    unkeyed,
    up_schema,
)
from croupier.place.witness import Witnesses


@dataclass(frozen=True)
class Trusted(MixForm):
    """The form with one server, which reads updates in the clear."""

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The server."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            try:
                inbox = yield Exchange(wait=Wait("up", given.roster, self.least(mechanism, given)))
            except TooFew as error:
                raise too_few(mechanism, given, error) from None
            present = tuple(letter.source for letter in inbox)
            receipts.enough(mechanism, given, present, self.least(mechanism, given))
            yield Exchange(tuple(receipts.issued(given, memory["keys"], inbox, present)))
            body = let_out(mechanism, given, _in_the_clear(mechanism, given.layout, inbox), coins.child("release"))
            yield Exchange((Letter("server", "mixed", body),))
            return unkeyed(memory)

        return {self.names[0]: server}

    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """What clients send up, receipts, and what is let out."""
        up = up_schema(mechanism, given)
        if (moduli := _moduli(mechanism)) is not None:
            widths = tuple((m - 1).bit_length() for m in moduli)
            shape = (mechanism.encode.slots(given.layout), len(moduli))
            up = Schema((Field("vector", "|u1", shape, max(moduli) - 1, widths=widths),))
        return {"up": up, "receipt": receipts.schemas(given)["receipt"], "mixed": released_schema(mechanism, given)}

    def submit(self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins) -> SubFlow:
        """Reveals: the whole update to the server of the chain."""
        vector = payload.vector
        if (moduli := _moduli(mechanism)) is not None:
            found = residues.counts([vector.numpy()], mechanism.encode.slots(given.layout), moduli)
            vector = torch.from_numpy(found.astype(np.uint8))
        sent = {self.names[0]: {"vector": vector}}
        yield Exchange((Letter(self.names[0], "up", sent[self.names[0]]),))
        yield from receipts.checked(given, keys, sent, self.least(mechanism, given))

    @property
    def last(self) -> tuple[str, ...]:
        """The one mix server."""
        return self.names

    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """What the mix server let out."""
        return read_released(table.mechanism, table.roster, table.layout, inbox[0].body, ids=False)

    def learns(self) -> dict[str, str]:
        """The mix server learns everything."""
        return {"the mix server": "every client's whole update, and whose it is"}

    @property
    def tolerance(self) -> Tolerance:
        """The same as for a relay."""
        return Tolerance(
            privacy="a server that follows the protocol; one that hands clients different models or scales can single "
            "one out. The mix server is trusted and sees every update with its name",
            integrity="none: the mix server computes alone. It signs for every client whose update it took, so that "
            "leaving a client out is seen by it",
            liveness="the mix server and the server; a round completes with the clients present, above the quorum",
            apart=(("the mix server", "the server"),),
        )

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """The mix server can tell the server every update."""
        return {("server", self.names[0]): "named"}

    def sight(self, party: str) -> Sight:
        """The mix server sees everything."""
        return Sight("named")

    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """What clients sent to the mix server, under their names."""
        server = parties[self.names[0]]
        inbox = tuple(letter for letter in server.letters if letter.kind == "up")
        clear = _in_the_clear(table.mechanism, table.layout, inbox)
        return Direct().opened(table.mechanism, table.roster, table.layout, clear)


def _moduli(mechanism: Mechanism) -> tuple[int, ...] | None:
    """The moduli of residues in unary; None where coordinates are something else."""
    modulus = mechanism.encode.modulus
    return modulus if mechanism.encode.unary and isinstance(modulus, tuple) else None


def _in_the_clear(mechanism: Mechanism, layout: Layout, inbox: Inbox) -> Inbox:
    """What clients sent, with residues in unary again."""
    moduli = _moduli(mechanism)
    if moduli is None:
        return inbox
    slots = mechanism.encode.slots(layout)
    return tuple(Received(one.source, one.kind, {"vector": _unary(one.body["vector"], slots, moduli)}) for one in inbox)


def _unary(found: Tensor, slots: int, moduli: tuple[int, ...]) -> Tensor:
    numbers = residues.join(np.ascontiguousarray(found.numpy().astype(np.int64)), moduli)
    most = int(np.abs(numbers).max()) if slots else 0
    return torch.from_numpy(residues.spread(numbers, most, moduli))
