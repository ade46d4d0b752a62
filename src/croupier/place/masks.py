"""Masks that cancel: clients send their updates to the server under sums of pairwise masks.

Each pair of clients has a common secret; one adds the mask that it stands for, the other takes it away. What the server
gets is uniform but for its sum. There is no recovery of lost masks: if one invited client does not deliver, nothing can
be read and the round is lost. It is cheap and needs no other party, but clients cannot check the sum that the server
computes, as they can in `place.servers`.

The preset `rns-masks` uses it, and `advice` suggests it. `croupier bench sum` times it, `croupier bench tamper` cheats
in it, and the benches of services play it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

from croupier.core import wire
from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Given, Inbox, Letter, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Brief, Payload, Released
from croupier.errors import ProtocolError, TooFew
from croupier.mpc.shares import added, hidden, unpacked
from croupier.place.placement import (
    NO_BRIEF,
    NOTHING,
    Keys,
    Mechanism,
    Placement,
    Reads,
    ServerHoldings,
    Tolerance,
    once,
    residue_bits,
)
from croupier.place.secrets import Need, Secrets
from croupier.place.witness import Witnesses
from croupier.release.release import Shape


class Masks(Placement, use="masks"):
    """No party between: the server adds masked updates, and the masks go away."""

    realises: ClassVar[frozenset[Shape]] = frozenset({"sums"})
    # The masks of a round are good for one sum: a second one under the same masks would tell differences of updates.
    spends: ClassVar[bool] = True
    tolerance: ClassVar[Tolerance] = Tolerance(
        privacy="the server, following the protocol, with any clients but two: of those two it learns the sum, and "
        "not how it splits. The directory of the clients' public keys must not be the server's own: it could stand in "
        "between",
        integrity="none: the server computes alone; links between parties are authenticated",
        liveness="every invited client and the server: if one does not deliver, the round is lost",
        apart=(("server", "all clients but one"), ("server", "whoever keeps the directory of public keys")),
    )

    @property
    def needs(self) -> frozenset[Need]:
        """A key pair for each client, and a directory of the public ones."""
        return frozenset({"pair"})

    def own_keys(self, me: str, own: Secrets) -> Keys:
        """Its own private key, and the directory."""
        return {"private": own.box, "directory": dict(own.boxes)}

    def misfits(self, mechanism: Mechanism) -> Iterator[str]:
        """Masks are residues of one power of two."""
        if mechanism.encode.residue_bits is None:
            yield f"masks residues of a power of two, not encode = {mechanism.encode.use!r}; use encode = 'fixed'"

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """One kind of message: a client's masked vector."""
        field = wire.packed("vector", (), mechanism.encode.slots(given.layout), residue_bits(mechanism))
        return {"up": Schema((field,))}

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """Reveals: numbers that are uniform but for the sum of everybody's."""
        bits = residue_bits(mechanism)
        masks = ((_mask(keys, given, other).secure(), other < given.me) for other in given.roster if other != given.me)
        yield Exchange((Letter("server", "up", {"vector": hidden(payload.vector, masks, bits)}),))

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """Wait for everybody: while a mask is missing, nothing can be read.

        Raises: ProtocolError when somebody does not deliver.
        """
        try:
            inbox = yield Exchange(wait=Wait("up", given.roster))
        except TooFew as error:
            raise ProtocolError(
                f"{error}. Masks cancel only when every invited client delivers: the round is lost. "
                "Remedy: bring the missing back, or use place = 'sum-servers', which completes without them"
            ) from None
        return self.opened(mechanism, given.roster, given.layout, inbox)

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """The sum of all vectors, in which the masks have gone."""
        bits, slots = residue_bits(mechanism), mechanism.encode.slots(layout)
        sums = unpacked(added((letter.body["vector"] for letter in inbox), (), slots, bits), slots, bits)
        return Released(tuple(letter.source for letter in inbox), sums=sums, layout=layout)

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """The server learns the sum."""
        return {
            "server": f"{mechanism.release.reveals()}; and which clients took part",
            "each client": "which clients are invited, and their public keys",
        }

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """The sum less what all clients but one sent is what that one sent."""
        return {("server", "clients"): "named"}

    def pooled(self, mechanism: Mechanism, parties: Witnesses) -> Released:
        """What the clients among them sent, and the rest of the sum. Raises: ProtocolError when more than one is left.

        Masks need not be known: they go away in the sum.
        """
        given, bits = parties["server"].given, residue_bits(mechanism)
        known = {name: one.payload for name, one in parties.items() if one.payload is not None}
        left = [name for name in given.roster if name not in known]
        if len(left) > 1:
            raise ProtocolError(f"the sum of {len(left)} clients does not split: {', '.join(left[:8])}")
        inbox = tuple(letter for letter in parties["server"].letters if letter.kind == "up")
        whole = self.opened(mechanism, given.roster, given.layout, inbox).sums
        known |= {name: _less(whole, [*known.values()], bits) for name in left}
        rows = torch.stack([known[name] for name in given.roster])
        return Released(given.roster, rows, ids=given.roster, layout=given.layout)


def _less(whole: Tensor | None, known: Sequence[Tensor], bits: int) -> Tensor:
    """A sum of residues without some of its terms."""
    if whole is None:
        raise ProtocolError("there is no sum to take anything from")
    rest = whole.long() - torch.stack([row.long() for row in known]).sum(0)
    return rest.remainder(1 << bits).to(whole.dtype)


def _mask(keys: Keys, given: Given, other: str) -> Coins:
    """The node of a pair's mask: bound to the attempt and to who was invited, so that no mask is used twice."""
    mine = X25519PrivateKey.from_private_bytes(keys["private"])
    secret = mine.exchange(X25519PublicKey.from_public_bytes(keys["directory"][other]))
    pair = b"/".join(sorted(keys["directory"][name] for name in (given.me, other)))
    seed = HKDF(hashes.SHA256(), 32, b"croupier/1", b"masks" + pair).derive(secret)
    return once(seed, given)
