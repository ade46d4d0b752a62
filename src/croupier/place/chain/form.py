"""What all ways to run a mix network have in common: the hooks that each of them fills in, and sharing rows by XOR.

A *form* is one protocol by which servers mix; there are six (`dealt`, `pairs`, `boxes`, `escrowed`, `trusted`,
`proven`), so that one placement, `chain.Chain`, offers them all. It picks one by its options and asks it everything. A
form plays the middle parties, and says what clients send, what reaches the server, which parties must not put their
views together (`breaks`), and what such parties could then read.

Here is also how clients share rows by XOR (`submit`, `taken`, `held`), which only `dealt` and `pairs` do; the others
send something else and have a `submit` and a `sight` of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from croupier.core.coins import Coins
from croupier.core.flow import Body, Exchange, Given, Inbox, Letter, Party, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Payload, Released
from croupier.errors import ProtocolError
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.mix import Rows, shared, stretched
from croupier.place.chain import receipts
from croupier.place.chain.table import SEED, MixTable
from croupier.place.placement import Keys, Mechanism, Reads, Sight, Tolerance, quorum
from croupier.place.witness import Witness, Witnesses

DEALER = "dealer"
SERVER = "server"


@dataclass(frozen=True)
class MixForm(ABC):
    """One way to mix: the servers in their order, and the fewest clients that are mixed."""

    names: tuple[str, ...]
    smallest: int

    @property
    def holders(self) -> tuple[str, ...]:
        """The servers that clients share their rows among.

        All but one get a seed, and draw their share from it; one of them, in turn by the client's place, gets the long
        share: the row without what the seeds stand for.
        """
        return self.names

    @abstractmethod
    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The parties between the clients and the server."""

    @abstractmethod
    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """Every kind of message."""

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins) -> SubFlow:
        """What the server does: wait for the chain's end."""
        inbox = yield Exchange(wait=Wait("mixed", self.last, self.heard))
        return self.opened(MixTable.of(mechanism, given), inbox)

    def check_size(self, mechanism: Mechanism, layout: Layout, clients: int) -> None:
        """Raises: SpecError when so much is not mixed in this way."""
        return

    def costs(self, mechanism: Mechanism, layout: Layout, clients: int) -> tuple[str, ...]:
        """What a round takes, where that is worth saying before a run."""
        return ()

    @abstractmethod
    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """What the letters that reach the server amount to."""

    @property
    @abstractmethod
    def last(self) -> tuple[str, ...]:
        """The servers that send the server something at the end."""

    @property
    def heard(self) -> int | None:
        """From how many of them the server must hear; None for all."""
        return None

    @property
    @abstractmethod
    def tolerance(self) -> Tolerance:
        """What the form withstands."""

    @property
    @abstractmethod
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """The coalitions that must not form, and what each could read if it did."""

    @abstractmethod
    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """What the parties of a coalition read together, for audits; of one server alone, what it sees."""

    @abstractmethod
    def learns(self) -> dict[str, str]:
        """What the middle parties learn."""

    def sight(self, party: str) -> Sight:
        """What one party sees: uniform words where rows are shared, and nothing at the dealer."""
        said = self.learns()
        if party == DEALER:
            return Sight("nothing", f"nothing that depends on updates is sent to it: it learns {said[DEALER]}")
        return Sight("noise", f"each mix server learns {said['each mix server']}")

    def least(self, mechanism: Mechanism, given: Given) -> int:
        """How many clients a round needs."""
        return max(self.smallest, quorum(mechanism, given))

    def client_schemas(self, table: MixTable) -> dict[str, Schema]:
        """The two messages of a client that shares: a long share, and a seed."""
        return {"share": Schema((table.row_field(),)), "seed": Schema((SEED,))}

    def submit(self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins) -> SubFlow:
        """Share the row by XOR, and check what the servers sign."""
        table, holder = MixTable.of(mechanism, given), given.roster.index(given.me) % len(self.holders)
        seeds = {name: coins.child("seed", name).export() for at, name in enumerate(self.holders) if at != holder}
        rest = shared(table.cells, table.words(payload.vector), list(seeds.values()))[0]
        sent: dict[str, Body] = {self.holders[holder]: {"rows": table.shares(rest)}}
        sent |= {name: {"seed": byte_tensor(seed)} for name, seed in seeds.items()}
        kinds = {name: "share" if "rows" in body else "seed" for name, body in sent.items()}
        yield Exchange(tuple(Letter(name, kinds[name], body) for name, body in sent.items()))
        yield from receipts.checked(given, keys, sent, self.least(mechanism, given))

    def taken(self, given: Given) -> SubFlow:
        """What clients sent to this holder: long shares, then seeds, each in the order of the roster."""
        if given.me not in self.holders:
            return ()
        me, many = self.holders.index(given.me), len(self.holders)
        long = tuple(who for place, who in enumerate(given.roster) if place % many == me)
        short = tuple(who for who in given.roster if who not in long)
        inbox: Inbox = yield Exchange(wait=Wait("share", long, 0))
        inbox += yield Exchange(wait=Wait("seed", short, 0))
        receipts.refuse_copies(inbox)
        return inbox

    def held(self, table: MixTable, inbox: Inbox, present: tuple[str, ...]) -> Rows:
        """A holder's shares of the rows of those present, group by group."""
        bodies = {letter.source: letter.body for letter in inbox if letter.kind in ("share", "seed")}
        if strangers := [who for who in present if who not in bodies]:
            raise ProtocolError(f"nothing of {strangers[0]} reached this server; the round is lost")
        order = [who for group in table.groups(present) for who in group]
        out = table.cells.zeros(len(order))
        for row, who in zip(out, order, strict=True):
            body = bodies[who]
            long = table.words(body["rows"]) if "rows" in body else stretched(table.cells, bytes_of(body["seed"]))[0]
            row[:] = long
        return out

    def named(self, table: MixTable, present: tuple[str, ...], rows: Rows) -> Released:
        """Whole rows under their senders' names, as a coalition that reads them all has them."""
        order = tuple(who for group in table.groups(present) for who in group)
        return Released(order, table.numbers(rows), ids=order, layout=table.layout)

    def as_noise(self, table: MixTable, present: tuple[str, ...], rows: Rows) -> Released:
        """Shares that are not all of an update, as numbers to look at."""
        order = tuple(who for group in table.groups(present) for who in group)
        return Released(order, table.noise(rows), ids=order, layout=table.layout)

    def noise(self, table: MixTable, server: Witness) -> Released:
        """What one server holds of clients' rows: uniform words."""
        sent = tuple(letter for letter in server.letters if letter.kind in ("share", "seed"))
        present = tuple(who for who in table.roster if any(letter.source == who for letter in sent))
        return self.as_noise(table, present, self.held(table, sent, present))


def same_present(table: MixTable, inbox: Inbox) -> tuple[str, ...]:
    """Who took part. Raises: ProtocolError when those who sent this do not mean the same clients."""
    present = inbox[0].body["present"]
    if other := [letter.source for letter in inbox if not torch.equal(letter.body["present"], present)]:
        raise ProtocolError(f"{inbox[0].source} and {other[0]} mixed different clients; the round is lost")
    return tuple(name for name, bit in zip(table.roster, present.tolist(), strict=True) if bit)
