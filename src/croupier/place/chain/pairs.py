"""A mix chain of three servers without a dealer: each pair of servers permutes rows in a way that the third cannot see.

Clients share their rows by XOR between the first two servers. In three passes the pairs (1, 2), (2, 3) and (3, 1)
permute the rows and add a fresh mask to both shares. Permutation and mask follow from a seed that only the pair knows
(`mpc.mix.paired`). The first server of a pair then sends its share to the server outside the pair. So each server lacks
one of the three permutations, and the one share that another server sends it lies under a mask that it does not know.

This holds while all follow the protocol and no two of the three servers collude. `chain.Chain` uses it for
`shuffle = "pairs"`, where nobody can be trusted as dealer; no preset does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.wire import Schema, bitmap
from croupier.encode.encoder import Released
from croupier.mpc import mix
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.place.chain import receipts
from croupier.place.chain.form import MixForm, same_present
from croupier.place.chain.table import SEED, MixTable
from croupier.place.placement import Mechanism, Reads, Tolerance, unkeyed
from croupier.place.witness import Witness, Witnesses


@dataclass(frozen=True)
class Pairs(MixForm):
    """The form with three servers, of which each pair has a common seed."""

    @property
    def holders(self) -> tuple[str, ...]:
        """Clients share their rows between the first two."""
        return self.names[:2]

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The mix servers."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            table = MixTable.of(mechanism, given)
            inbox = yield from self.taken(given)
            present = yield from receipts.agreed(given, inbox, self.names, (), hears=given.me in self.holders)
            receipts.enough(mechanism, given, present, self.least(mechanism, given))
            if given.me in self.holders:
                yield Exchange(tuple(receipts.issued(given, memory["keys"], inbox, present)))
            yield from self._mixed(given, table, inbox, present, coins)
            return unkeyed(memory)

        return dict.fromkeys(self.names, server)

    def _mixed(self, given: Given, table: MixTable, inbox: Inbox, present: tuple[str, ...], coins: Coins) -> SubFlow:
        """The two passes of one server, from the share it holds to what it sends on; server 3 begins with none."""
        me, here, move = self.names.index(given.me), bitmap(given.roster, present), table.move(present)
        after, before = self.names[(me + 1) % 3], self.names[me - 1]
        own = _seed(coins)
        said = Letter(after, "common", {"seed": byte_tensor(own)})
        (told,) = yield Exchange((said,), Wait("common", (before,)))
        theirs = Coins(bytes_of(told.body["seed"]))

        def hop(rows: mix.Rows) -> Letter:
            return Letter(before, "hop", {"present": here, "rows": table.shares(rows)})

        def heard(letter: Inbox) -> mix.Rows:
            same_present(table, (*letter,))
            return table.words(letter[0].body["rows"])

        if me == 2:
            share = heard((yield Exchange(wait=Wait("hop", (after,)))))
            share = mix.paired(table.cells, share, move, theirs)
            yield Exchange((hop(mix.paired(table.cells, share, move, Coins(own))),))
            return
        share = self.held(table, inbox, present)
        if me == 1:
            share = mix.paired(table.cells, share, move, theirs)
            share = mix.paired(table.cells, share, move, Coins(own))
        else:
            share = mix.paired(table.cells, share, move, Coins(own))
        # What leaves here is forgotten; the last pass brings another share.
        share = heard((yield Exchange((hop(share),), Wait("hop", (after,)))))
        if me == 0:
            share = mix.paired(table.cells, share, move, theirs)
        yield Exchange((Letter("server", "mixed", {"present": here, "rows": table.shares(share)}),))

    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """Shares, who is here, receipts, common seeds, hops, and what reaches the server."""
        table = MixTable.of(mechanism, given)
        rows = Schema((table.present_field(), table.rows_field()))
        return {
            **self.client_schemas(table), **receipts.schemas(given), "common": Schema((SEED,)), "hop": rows,
            "mixed": rows,
        }  # fmt: skip

    @property
    def last(self) -> tuple[str, ...]:
        """The first two end with a share each."""
        return self.holders

    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """Both shares. Raises: ProtocolError when they are of different clients; IntegrityError on what is nobody's."""
        present = same_present(table, inbox)
        return table.released(present, table.words(inbox[0].body["rows"]) ^ table.words(inbox[1].body["rows"]))

    def learns(self) -> dict[str, str]:
        """Mix servers learn nothing of updates."""
        return {
            "each mix server": "which clients took part, two of three permutations, and uniform bits that depend on "
            "nobody's update",
        }

    @property
    def tolerance(self) -> Tolerance:
        """One of the three may be curious, and share what it sees with the server; all must follow the protocol."""
        return Tolerance(
            privacy="the server and one mix server, colluding, while all follow the protocol: any two of the three mix "
            "servers together read every update. One that does not follow it can mark an update and find it again. "
            "Among those present; colluders know their own part",
            integrity="none: a mix server can alter what comes out, and only what is no update at all is noticed, "
            "without knowing whose doing it is. The two mix servers that clients share among sign for every client "
            "that its shares are in, so that leaving a client out is seen by it",
            liveness="all mix servers and the server: 3 of 3 must be live; a round completes with the clients that "
            "reached both mix servers that they share among, above the quorum. Any client can end a round by sending "
            "what is no update",
            apart=(("one mix server", "another one"),),
        )

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """Any two know all moves and masks."""
        return dict.fromkeys(combinations(self.names, 2), "named")

    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """What servers read together: two of them the rows, a single one only uniform words."""
        servers = {name: parties[name] for name in self.names if name in parties}
        if len(servers) == 1:
            return self._noise(table, *servers.values())
        first, second, third = (servers.get(name) for name in self.names)
        present = self._met(next(one for one in (first, second) if one is not None))
        if first and second:
            rows = self.held(table, first.letters, present) ^ self.held(table, second.letters, present)
        elif first and third:
            rows = table.words(first.received_one("hop")["rows"])
            rows = self._undone(table, present, rows, Coins(bytes_of(third.received("common")[self.names[1]]["seed"])))
            rows = self._undone(table, present, rows, Coins(_seed(first.own)))
            rows = rows ^ self.held(table, first.letters, present)
        elif second and third:
            rows = table.words(third.received_one("hop")["rows"])
            rows = self._undone(table, present, rows, Coins(bytes_of(second.received("common")[self.names[0]]["seed"])))
            rows = rows ^ self.held(table, second.letters, present)
        return self.named(table, present, rows)

    def _met(self, server: Witness) -> tuple[str, ...]:
        """Who took part, as one of those that clients share among knows it."""
        own = {letter.source for letter in server.letters if letter.kind in ("share", "seed")}
        heard = receipts.met(server.given, [body["present"] for body in server.received("here").values()])
        return tuple(who for who in heard if who in own)

    def _undone(self, table: MixTable, present: tuple[str, ...], rows: mix.Rows, common: Coins) -> mix.Rows:
        mask = table.cells.draw(len(rows), common.child("r").secure())
        return table.move_back(present)(rows ^ mask, common.child("order"))

    def _noise(self, table: MixTable, server: Witness) -> Released:
        if server.given.me in self.holders:
            return self.noise(table, server)
        present = receipts.met(server.given, [body["present"] for body in server.received("here").values()])
        return self.as_noise(table, present, table.words(server.received_one("hop")["rows"]))


def _seed(coins: Coins) -> bytes:
    """The seed that a server draws for itself and the next one."""
    return coins.child("common").export()
