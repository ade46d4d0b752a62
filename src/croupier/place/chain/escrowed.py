"""The chain of boxes that goes on when servers are gone: t of k servers can open the layer of one that is.

Before clients close boxes, every server splits the key of its layer among the others (`mpc.escrow`). Clients send their
box to all servers, and every hop goes to all of them, so that each holds what the next one should open. After each hop
every server tells the others whether it has come; who lacks it signs so. With t such signatures a server counts as
gone: the others put its key together, open its layer without it, and hear no more of what it says. Fewer signatures
only mean that a message was lost: who has the hop passes it on.

The price is privacy against t - 1 servers instead of k - 1: who can finish without a server can read without it.

`chain.Chain` uses it for `shuffle = "onion"` with a `threshold` (t). `escrow_flow` plays the hops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import (
    Exchange,
    Flow,
    Given,
    Inbox,
    Letter,
    Memory,
    Party,
    SubFlow,
    Wait,
)
from croupier.core.wire import Field, Schema, bitmap
from croupier.encode.encoder import Released
from croupier.errors import ProtocolError
from croupier.mpc import escrow
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.seal import POINT, Lock
from croupier.place.chain import receipts
from croupier.place.chain.boxes import Boxes, lock_of, opened_box, read_rows
from croupier.place.chain.escrow_flow import SIGNATURE, MixStanding, together
from croupier.place.chain.form import same_present
from croupier.place.chain.table import MixTable
from croupier.place.placement import (
    Keys,
    Mechanism,
    Reads,
    Sight,
    Tolerance,
    read_released,
    release_tiers,
    released_schema,
    unkeyed,
)
from croupier.place.witness import Witness, Witnesses

_SECRET, _DIGEST = 32, 32


@dataclass(frozen=True)
class Escrowed(Boxes):
    """Boxes whose keys are in escrow; `threshold` servers can open any."""

    threshold: int = 2

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The mix servers."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            table, lock = MixTable.of(mechanism, given), lock_of(coins)
            publics, shares = yield from self._keys_split(given, lock, coins)
            inbox = yield Exchange(wait=Wait("box", given.roster, 0))
            receipts.refuse_copies(inbox)
            present = yield from receipts.agreed(given, inbox, self.names, ())
            receipts.enough(mechanism, given, present, self.least(mechanism, given))
            yield from self._signed_for(given, memory["keys"], inbox, present)
            sent = {letter.source: bytes_of(letter.body["box"]) for letter in inbox}
            order = [who for group in table.groups(present) for who in group]
            here, move = bitmap(given.roster, present), table.move(present)
            boxes = [sent[who] for who in order]
            now = MixStanding(
                given, self.names, self.threshold, memory["keys"], [*self.names], boxes, here, publics, shares
            )
            for at in range(len(self.names)):
                yield from now.hop(at, lambda rows: move(rows, coins.child("order")), lock)
            facts = mechanism.release.facts(release_tiers(mechanism, present))
            rows = read_rows(table, np.frombuffer(b"".join(now.boxes), np.uint8).reshape(len(now.boxes), -1))
            body = {"present": here, **facts, "rows": rows}
            yield Exchange((Letter("server", "mixed", body),))
            return unkeyed(memory)

        return dict.fromkeys(self.names, server)

    def _keys_split(self, given: Given, lock: Lock, coins: Coins) -> SubFlow:
        """Say the public key to everybody, and to each server its share of the private one."""
        public = byte_tensor(lock.public)
        parts = self._parts(coins)
        letters = [Letter(who, "lock", {"public": public}) for who in given.roster]
        others = tuple(name for name in self.names if name != given.me)
        letters += [Letter(name, "escrow", {"public": public, "share": byte_tensor(parts[name])}) for name in others]
        inbox: Inbox = yield Exchange(tuple(letters), Wait("escrow", others))
        publics = {letter.source: bytes_of(letter.body["public"]) for letter in inbox}
        return publics, {letter.source: bytes_of(letter.body["share"]) for letter in inbox}

    def _signed_for(self, given: Given, keys: Keys, inbox: Inbox, present: tuple[str, ...]) -> SubFlow:
        """Sign for clients, and go on only when all servers did: what no client would accept must not be let out."""
        here = {"present": bitmap(given.roster, present)}
        others = tuple(name for name in self.names if name != given.me)
        letters = (*receipts.issued(given, keys, inbox, present), *(Letter(name, "issued", here) for name in others))
        yield Exchange(letters, Wait("issued", others))

    def _parts(self, coins: Coins) -> dict[str, bytes]:
        """A server's own key, split: a share for each server."""
        secret, choices = coins.child("lock").export(), coins.child("escrow").secure()
        return dict(zip(self.names, escrow.split(secret, len(self.names), self.threshold, choices), strict=True))

    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """Keys, shares of them, boxes, receipts, hops, what is said of them, opened keys, and rows."""
        table = MixTable.of(mechanism, given)
        share, public = Field("share", "|u1", (_SECRET,)), Field("public", "|u1", (POINT,))
        said = (
            Field("came", "|u1", (1,), 1),
            Field("signature", "|u1", (SIGNATURE,)),
            Field("before", "|u1", (_DIGEST,)),
        )
        status = Schema(said)
        found = {
            "lock": Schema((public,)), "escrow": Schema((public, share)), **receipts.schemas(given),
            "box": Schema((Field("box", "|u1", (self.size(table, len(self.names)),)),)),
            "issued": Schema((table.present_field(),)), "mixed": released_schema(mechanism, given),
        }  # fmt: skip
        for at in range(len(self.names)):
            size = self.size(table, len(self.names) - at - 1)
            boxes = Schema((table.present_field(), Field("boxes", "|u1", ("present", size))))
            found |= {f"hop{at}": boxes, f"again{at}": boxes, f"status{at}": status, f"open{at}": Schema((share,))}
        return found

    @property
    def takers(self) -> tuple[str, ...]:
        """Every server: any of them may be gone."""
        return self.names

    @property
    def last(self) -> tuple[str, ...]:
        """Every server that is not gone sends the server the rows."""
        return self.names

    @property
    def heard(self) -> int | None:
        """The server needs as many as can finish without the others."""
        return self.threshold

    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """Rows, of which all servers say the same. Raises: ProtocolError when they do not."""
        same_present(table, inbox)
        first = inbox[0]
        for letter in inbox[1:]:
            if canon.digest(dict(letter.body)) != canon.digest(dict(first.body)):
                raise ProtocolError(f"{first.source} and {letter.source} let out different rows; the round is lost")
        return read_released(table.mechanism, table.roster, table.layout, first.body, ids=False)

    def learns(self) -> dict[str, str]:
        """Every mix server learns what is released."""
        return {
            "each mix server": "which clients took part, its own permutation, boxes that it cannot open while their "
            "servers are there, who is gone, and what is released",
        }

    @property
    def tolerance(self) -> Tolerance:
        """The number that can finish without the others is also the number that can read without them."""
        few, many = self.threshold, len(self.names)
        return Tolerance(
            privacy=f"the server and up to {few - 1} of {many} mix servers, colluding, while they follow the protocol: "
            f"any {few} together read every update, because {few} can finish without the others. All mix servers see "
            "what is released. One that does not follow the protocol can single out an update",
            integrity="none: a mix server can put rows of its own in the place of others. All sign for every client "
            "whose box they took, so that leaving a client out is seen by it",
            liveness=f"completes with {few} live mix servers of {many} and the server, once clients have their "
            "receipts; before that all must be there, and nothing is opened when one is not. At most one may go "
            "while the others tell each other of a hop. Any client can end a round by a box that does not open",
            apart=((f"{few} mix servers", "each other"),),
        )

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """Any `threshold` servers together have every key."""
        return dict.fromkeys(combinations(self.names, self.threshold), "named")

    def sight(self, party: str) -> Sight:
        """Every mix server sees what is released."""
        return Sight("released")

    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """One server alone has what is released; so many as can finish have every key."""
        one = next(iter(parties.values()))
        sent = {who: bytes_of(body["box"]) for who, body in one.received("box").items()}
        if len(parties) < self.threshold:
            return self._last_rows(table, one)
        locks = {name: self._read_key(name, parties) for name in self.names}
        found = {}
        for who, box in sent.items():
            for name in self.names:
                box = opened_box(locks[name], box, one.given, name, who)
            found[who] = read_rows(table, np.frombuffer(box, np.uint8).reshape(1, -1))[0]
        return Released(tuple(found), torch.stack([*found.values()]), ids=tuple(found), layout=table.layout)

    def _read_key(self, name: str, parties: Witnesses) -> Lock:
        if name in parties:
            return lock_of(parties[name].own)
        found = {who: bytes_of(witness.received("escrow")[name]["share"]) for who, witness in parties.items()}
        return together(self.names, self.threshold, found)

    def _last_rows(self, table: MixTable, server: Witness) -> Released:
        """What the last hop brought, or what the last server opened itself."""
        last = len(self.names) - 1
        kind = f"hop{last}" if server.given.me != self.names[-1] else f"hop{last - 1}"
        boxes = [bytes(box) for box in server.received_one(kind)["boxes"]]
        if server.given.me == self.names[-1]:
            boxes = [opened_box(lock_of(server.own), box, server.given, server.given.me) for box in boxes]
        rows = read_rows(table, np.frombuffer(b"".join(boxes), np.uint8).reshape(len(boxes), -1))
        return Released(tuple(server.received("box")), rows, layout=table.layout)
