"""The chain of boxes within boxes: whole rows, closed for every server in turn; one honest server suffices, no dealer.

Only for rows that stay whole (`grain = "model"`): a row that is cut in pieces would need a box for each piece. A client
closes its row for the last server, that box for the one before, and so on; each server opens a layer of every box,
permutes them and passes them on. The last one sees the rows as the server will, without names.

`chain.Chain` uses it for `shuffle = "onion"`; with a `threshold` it uses `escrowed`, which is built on this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from croupier.core.coins import Coins
from croupier.core.flow import Body, Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.wire import Field, Schema, bitmap, chosen
from croupier.encode.encoder import Payload, Released
from croupier.errors import IntegrityError, ProtocolError, RangeError, WireError
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.mix import Rows
from croupier.mpc.occasion import Occasion
from croupier.mpc.seal import EXTRA, POINT, Lock, refuse_repeats, seal, unseal
from croupier.place.chain import receipts
from croupier.place.chain.form import MixForm
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
from croupier.place.witness import Witnesses

LABEL = 32


@dataclass(frozen=True)
class Boxes(MixForm):
    """The form with boxes within boxes."""

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The mix servers."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            me, table, lock = self.names.index(given.me), MixTable.of(mechanism, given), lock_of(coins)
            public = {"public": byte_tensor(lock.public)}
            yield Exchange(tuple(Letter(who, "lock", public) for who in given.roster))
            if me == 0:
                inbox = yield Exchange(wait=Wait("box", given.roster, 0))
                present = tuple(letter.source for letter in inbox)
                receipts.enough(mechanism, given, present, self.least(mechanism, given))
                receipts.refuse_copies(inbox)
                yield Exchange(tuple(receipts.issued(given, memory["keys"], inbox, present)))
                order = [who for group in table.groups(present) for who in group]
                sent = {letter.source: bytes_of(letter.body["box"]) for letter in inbox}
                boxes = [sent[who] for who in order]
            else:
                order = ["one of the boxes"] * len(given.roster)
                (before,) = yield Exchange(wait=Wait(_hop(me), (self.names[me - 1],)))
                present = chosen(given.roster, before.body["present"])
                boxes = [bytes_of(box) for box in before.body["boxes"]]
            refuse_repeats(boxes)
            opened = [opened_box(lock, box, given, given.me, who) for box, who in zip(boxes, order, strict=False)]
            refuse_repeats(opened)
            rows = np.frombuffer(b"".join(opened), np.uint8).reshape(len(opened), -1)
            rows = table.move(present)(rows, coins.child("order"))
            yield Exchange((self._sent_on(table, me, bitmap(given.roster, present), present, rows),))
            return unkeyed(memory)

        return dict.fromkeys(self.names, server)

    def _sent_on(self, table: MixTable, me: int, here: torch.Tensor, present: tuple[str, ...], rows: Rows) -> Letter:
        if me + 1 < len(self.names):
            return Letter(self.names[me + 1], _hop(me + 1), {"present": here, "boxes": torch.from_numpy(rows)})
        facts = table.mechanism.release.facts(release_tiers(table.mechanism, present))
        return Letter("server", "mixed", {"present": here, **facts, "rows": read_rows(table, rows)})

    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """Keys, a client's box, receipts, boxes one layer less, and rows."""
        table = MixTable.of(mechanism, given)
        found = receipts.schemas(given)
        # Shorter by a layer at every hop.
        hops = {
            _hop(at): Schema(
                (table.present_field(), Field("boxes", "|u1", ("present", self.size(table, len(self.names) - at))))
            )
            for at in range(1, len(self.names))
        }
        return {
            "receipt": found["receipt"], "lock": Schema((Field("public", "|u1", (POINT,)),)),
            "box": Schema((Field("box", "|u1", (self.size(table, len(self.names)),)),)), **hops,
            "mixed": released_schema(mechanism, given),
        }  # fmt: skip

    def size(self, table: MixTable, layers: int) -> int:
        """Bytes of a box of so many layers."""
        return Schema((table.field,)).most_bytes + layers * (LABEL + EXTRA)

    @property
    def takers(self) -> tuple[str, ...]:
        """Whom clients send their boxes: the first server."""
        return self.names[:1]

    def submit(self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins) -> SubFlow:
        """Close the row for all servers, send it to those that take boxes, and check what they sign."""
        table = MixTable.of(mechanism, given)
        inbox = yield Exchange(wait=Wait("lock", self.names))
        text = Schema((table.field,)).pack({table.field.name: payload.vector})
        for letter in reversed(inbox):
            label = label_of(given, letter.source)
            text = seal(bytes_of(letter.body["public"]), label + text, label, coins.child("box", letter.source))
        sent: dict[str, Body] = {name: {"box": byte_tensor(text)} for name in self.takers}
        yield Exchange(tuple(Letter(name, "box", body) for name, body in sent.items()))
        yield from receipts.checked(given, keys, sent, self.least(mechanism, given))

    @property
    def last(self) -> tuple[str, ...]:
        """The last server."""
        return self.names[-1:]

    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """Rows as the last server sends them."""
        return read_released(table.mechanism, table.roster, table.layout, inbox[0].body, ids=False)

    def learns(self) -> dict[str, str]:
        """The last server learns what is released, the others nothing of updates."""
        return {
            "each mix server": "which clients took part, its own permutation, and boxes that it cannot open; the last "
            "one also what is released",
        }

    @property
    def tolerance(self) -> Tolerance:
        """One honest server is enough."""
        many = len(self.names)
        return Tolerance(
            privacy="the server and all mix servers but one, colluding, while they follow the protocol. A first server "
            "that replaces all boxes but one finds that one again. The last mix server sees what is released",
            integrity="none: a mix server can put rows of its own in the place of others. The first signs for every "
            "client whose box it took, so that leaving a client out is seen by it",
            liveness=f"all mix servers and the server: {many} of {many} must be live, because a missing layer cannot "
            "be opened; a round completes with the clients that reached the first, above the quorum. Any client can "
            "end a round by a box that does not open",
            apart=(("one mix server", "all the others"),),
        )

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """All servers together have the keys of all layers."""
        return {self.names: "named"}

    def sight(self, party: str) -> Sight:
        """The last one what is released; the others nothing."""
        if party == self.names[-1]:
            return Sight("released")
        return Sight("nothing", f"each mix server learns {self.learns()['each mix server']}")

    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """Every client's box, opened layer by layer; the last server alone has what it sends on."""
        last = parties.get(self.names[-1])
        if last is not None and len(parties) == 1:
            before = last.received_one(_hop(len(self.names) - 1))
            opened = [
                opened_box(lock_of(last.own), bytes_of(box), last.given, last.given.me) for box in before["boxes"]
            ]
            rows = read_rows(table, np.frombuffer(b"".join(opened), np.uint8).reshape(len(opened), -1))
            present = chosen(table.roster, before["present"])
            return Released(present, rows, layout=table.layout)
        boxes = parties[self.names[0]].received("box")
        found = {}
        for who, body in boxes.items():
            box = bytes_of(body["box"])
            for name in self.names:
                box = opened_box(lock_of(parties[name].own), box, parties[name].given, name, who)
            found[who] = read_rows(table, np.frombuffer(box, np.uint8).reshape(1, -1))[0]
        return Released(tuple(found), torch.stack([*found.values()]), ids=tuple(found), layout=table.layout)


def _hop(at: int) -> str:
    """The kind of the letter that goes to the server of this place."""
    return f"hop{at}"


def lock_of(coins: Coins) -> Lock:
    """A server's keys of the attempt."""
    return Lock.make(coins.child("lock"))


def label_of(given: Given, server: str) -> bytes:
    """What binds a layer to its server and the attempt."""
    return Occasion.of(given).label("mix box", server)


def opened_box(lock: Lock, box: bytes, given: Given, server: str, who: str = "a client") -> bytes:
    """One layer less. Raises: ProtocolError that names the client where that is known."""
    label = label_of(given, server)
    try:
        text = unseal(lock, box, label)
    except (IntegrityError, WireError) as error:
        raise ProtocolError(f"{who}: {error}; the round is lost") from None
    if text[:LABEL] != label:
        raise ProtocolError(f"{who}: a box that was closed for another attempt or server; the round is lost")
    return text[LABEL:]


def read_rows(table: MixTable, rows: Rows) -> torch.Tensor:
    """The rows that lay in the last boxes. Raises: IntegrityError when one is nothing that a client sends."""
    up = Schema((table.field,))
    try:
        return torch.stack([up.unpack(row.tobytes())[table.field.name] for row in rows])
    except (RangeError, WireError) as error:
        raise IntegrityError(
            f"what came out of the chain is nothing that clients send ({error}), and nobody can say who sent it"
        ) from None
