"""The chain with a dealer: any number of servers, of which one honest one suffices while the dealer sides with nobody.

Once the servers agree on who takes part, the dealer deals for exactly these clients (`mpc.mix.deal`). The servers but
the first say their masked shares to it; rows then go from server to server, each of which permutes them under another
mask, and the last one hands them to the server, to whom all others open their parts of the last mask.

`chain.Chain` uses it unless its options say otherwise (presets `rns-chain` and `intra-chain`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.wire import Schema, bitmap
from croupier.encode.encoder import Released
from croupier.errors import ProtocolError
from croupier.mpc import mix
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.place.chain import receipts
from croupier.place.chain.form import DEALER, SERVER, MixForm, same_present
from croupier.place.chain.table import SEED, MixTable, as_side
from croupier.place.placement import Mechanism, Reads, Tolerance, unkeyed
from croupier.place.witness import Witness, Witnesses


@dataclass(frozen=True)
class Dealt(MixForm):
    """The form with masks that a dealer deals."""

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The mix servers, and the dealer."""

        def server(given: Given, memory: Memory, coins: Coins) -> Flow:
            table = MixTable.of(mechanism, given)
            inbox = yield from self.taken(given)
            present = yield from receipts.agreed(given, inbox, self.names, (DEALER,))
            receipts.enough(mechanism, given, present, self.least(mechanism, given))
            yield Exchange(tuple(receipts.issued(given, memory["keys"], inbox, present)))
            yield from self._mixed(given, table, inbox, present)
            return unkeyed(memory)

        def deals(given: Given, memory: Memory, coins: Coins) -> Flow:
            heard = yield Exchange(wait=Wait("here", self.names))
            present = receipts.met(given, [letter.body["present"] for letter in heard])
            receipts.enough(mechanism, given, present, self.least(mechanism, given))
            table, here = MixTable.of(mechanism, given), bitmap(given.roster, present)
            hands = self._hands(table, present, coins)
            yield Exchange(tuple(
                Letter(name, "dealt", {
                    "present": here, "seed": byte_tensor(hand.seed), "rows": table.shares(hand.delta),
                })
                for name, hand in zip(self.names, hands, strict=True)
            ))  # fmt: skip
            return memory

        return {**dict.fromkeys(self.names, server), DEALER: deals}

    def _hands(self, table: MixTable, present: tuple[str, ...], coins: Coins) -> list[mix.MixHand]:
        return mix.deal(table.cells, len(present), len(self.names), table.move(present), coins.child("deal"))

    def _mixed(self, given: Given, table: MixTable, inbox: Inbox, present: tuple[str, ...]) -> SubFlow:
        """One server's pass, from its shares to what it sends on."""
        me, here = self.names.index(given.me), bitmap(given.roster, present)
        (dealt,) = yield Exchange(wait=Wait("dealt", (DEALER,)))
        if not torch.equal(dealt.body["present"], here):
            raise ProtocolError(f"the dealer dealt for other clients than {given.me} heard; the round is lost")
        hand = Coins(bytes_of(dealt.body["seed"]))
        share = self.held(table, inbox, present)
        if me == 0:
            masked = yield Exchange(wait=Wait("masked", self.names[1:]))
            for letter in masked:
                same_present(table, (dealt, letter))
                share ^= table.words(letter.body["rows"])
        else:
            share ^= mix.entry_mask(table.cells, len(present), hand)
            said = Letter(self.names[0], "masked", {"present": here, "rows": table.shares(share)})
            (before,) = yield Exchange((said,), Wait("hop", (self.names[me - 1],)))
            same_present(table, (dealt, before))
            share = table.words(before.body["rows"])
        rows = mix.passed(share, table.words(dealt.body["rows"]), table.move(present), hand.child("order"))
        if me + 1 < len(self.names):
            yield Exchange((Letter(self.names[me + 1], "hop", {"present": here, "rows": table.shares(rows)}),))
            yield Exchange((self._opening(table, here, hand.child("b").export()),))
        else:
            full = {"present": here, "held": here, "rows": table.shares(rows), "seed": byte_tensor(bytes(32))}
            yield Exchange((Letter(SERVER, "mixed", full),))

    def _opening(self, table: MixTable, here: torch.Tensor, seed: bytes) -> Letter:
        """What a server but the last opens of the last mask."""
        none = table.shares(table.cells.zeros(0))
        body = {"present": here, "held": torch.zeros_like(here), "rows": none, "seed": byte_tensor(seed)}
        return Letter(SERVER, "mixed", body)

    def schemas(self, mechanism: Mechanism, given: Given) -> dict[str, Schema]:
        """Shares, who is here, receipts, what is dealt, masked shares, hops, and what reaches the server."""
        table = MixTable.of(mechanism, given)
        present, rows = table.present_field(), table.rows_field()
        hop = Schema((present, rows))
        mixed = Schema((present, as_side(present, "held"), table.rows_field("held"), SEED))
        dealt = Schema((present, SEED, rows))
        return {
            **self.client_schemas(table), **receipts.schemas(given), "dealt": dealt, "masked": hop, "hop": hop,
            "mixed": mixed,
        }  # fmt: skip

    @property
    def last(self) -> tuple[str, ...]:
        """All servers: the last one sends rows, the others their parts of the mask."""
        return self.names

    def opened(self, table: MixTable, inbox: Inbox) -> Released:
        """Rows without their mask.

        Raises: ProtocolError when servers mean different clients, or send another's part; IntegrityError when rows that
        come out are nobody's.
        """
        present = same_present(table, inbox)
        whole = [letter.source for letter in inbox if len(letter.body["rows"])]
        if whole != [self.names[-1]]:
            raise ProtocolError(f"rows came from {', '.join(whole) or 'nobody'}, not from {self.names[-1]} alone")
        return table.released(present, self._unmasked(table, inbox))

    def _unmasked(self, table: MixTable, inbox: Inbox) -> mix.Rows:
        """The rows of the last mix server, without the parts of their mask that all others open."""
        rows = table.words(inbox[-1].body["rows"]).copy()
        for letter in inbox[:-1]:
            rows ^= mix.stretched(table.cells, bytes_of(letter.body["seed"]), len(rows))
        return rows

    def learns(self) -> dict[str, str]:
        """Mix servers learn nothing of updates; the dealer knows what it drew."""
        return {
            "each mix server": "which clients took part, its own permutations, and uniform bits that depend on "
            "nobody's update",
            DEALER: "which clients took part, and everybody's permutations and masks, which it drew",
        }

    @property
    def tolerance(self) -> Tolerance:
        """One honest server, and a dealer that sides with nobody."""
        return Tolerance(
            privacy="the server and all mix servers but one, colluding, while they follow the protocol and the dealer "
            "sides with nobody: it draws every permutation, so that the dealer and the server together, or the dealer "
            "and any one mix server, read every update with its sender's name. One that does not follow the protocol "
            "can mark an update and find it again. Among those present; colluders know their own part",
            integrity="none: a mix server or the dealer can alter what comes out, and only what is no update at all "
            "is noticed, without knowing whose doing it is. Every mix server signs for every client that its shares "
            "are in, so that leaving a client out is seen by it",
            liveness="all mix servers, the dealer and the server: no mask comes off without every one of them, so "
            f"{len(self.names)} of {len(self.names)} must be live; a round completes with the clients that reached all "
            "mix servers, above the quorum. Any client can end a round by sending what is no update",
            apart=(("one mix server", "all the others"), ("the dealer", "any mix server or the server")),
        )

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """All shares, or the dealer's permutations with what comes out, or with its masks and one mix server's rows."""
        alone: dict[tuple[str, ...], Reads] = {(name, DEALER): "named" for name in (SERVER, *self.names)}
        return {self.names: "named", **alone}

    def pooled(self, table: MixTable, parties: Witnesses) -> Released:
        """The shares of all mix servers, or what one party holds under masks and in an order that the dealer knows."""
        servers = [parties[name] for name in self.names if name in parties]
        if DEALER not in parties:
            if len(servers) == 1:
                return self.noise(table, servers[0])
            sets = [{one.source for one in server.letters if one.kind in ("share", "seed")} for server in servers]
            present = tuple(who for who in table.roster if all(who in one for one in sets))
            held = [self.held(table, server.letters, present) for server in servers]
            rows = np.bitwise_xor.reduce(held)
            everybody = len(servers) == len(self.names)
            return self.named(table, present, rows) if everybody else self.as_noise(table, present, rows)
        dealer = parties[DEALER]
        present = receipts.met(dealer.given, [body["present"] for body in dealer.received("here").values()])
        nodes = [Coins(hand.seed) for hand in self._hands(table, present, dealer.own)]
        if servers:
            return self._before_pass(table, present, servers[0], dealer, nodes)
        inbox = tuple(letter for letter in parties[SERVER].letters if letter.kind == "mixed")
        return self.named(table, present, self._moved_back(table, present, self._unmasked(table, inbox), nodes))

    def _before_pass(
        self, table: MixTable, present: tuple[str, ...], server: Witness, dealer: Witness, nodes: Sequence[Coins]
    ) -> Released:
        """A mix server's rows before it moves them, with what the dealer drew."""
        me, rows = self.names.index(server.given.me), self.held(table, server.letters, present)
        if me == 0:
            for at, masked in enumerate(server.received("masked")[one] for one in self.names[1:]):
                rows ^= table.words(masked["rows"]) ^ mix.entry_mask(table.cells, len(present), nodes[at + 1])
            return self.named(table, present, rows)
        # Under the mask that the pass before ended with, and in the order of all passes before.
        rows = table.words(server.received_one("hop")["rows"])
        rows = rows ^ mix.between(table.cells, len(present), me - 1, dealer.own.child("deal").child("masks"))
        return self.named(table, present, self._moved_back(table, present, rows, nodes[:me]))

    def _moved_back(
        self, table: MixTable, present: tuple[str, ...], rows: mix.Rows, nodes: Sequence[Coins]
    ) -> mix.Rows:
        for node in reversed(nodes):
            rows = table.move_back(present)(rows, node.child("order"))
        return rows
