"""What parties of RAIN's two servers read when they pool what they were told; and what the second server learns alone.

The statement of the placement `Pair` says which two parties must not collude: together they read every client's row of
bits, from shares that add up to it, or from a mask and what it hides. Where neither of them knows the order of the
shuffle, rows come in that order, and so without names.

`Pair.pooled` calls it for audits, which attack with such coalitions (`audit.seen`); no round plays it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from croupier.core.coins import Coins
from croupier.core.flow import Body, Given, SubFlow
from croupier.encode.encoder import Released
from croupier.kernels import field as kernel
from croupier.mpc import convert, dealer, onion, translate, turns
from croupier.mpc.authentic import TaggedShares, as_words, bytes_of
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.dealer import ShuffleShare
from croupier.mpc.field import PRIME
from croupier.mpc.group import Rows
from croupier.mpc.occasion import Occasion
from croupier.mpc.seal import Lock
from croupier.mpc.tallies import Tally
from croupier.place.two_servers.cut_and_choose import Cut
from croupier.place.two_servers.messages import DEALER, SECOND, SERVERS, share_from_letter
from croupier.place.two_servers.scoring import ScoreFlow, Scoring, beside
from croupier.place.two_servers.shuffles import Mix
from croupier.place.witness import Witness, Witnesses

FIRST = SERVERS[0]


@dataclass(frozen=True)
class Pool:
    """Some parties of a round: what they were told, and how it was played.

    `play` plays a server's part of the round once more, with its own coins, for other shuffles than the dealer's.
    """

    scoring: Scoring
    mix: Mix | None
    cut: Cut | None
    play: Callable[[Given, Coins], SubFlow]
    parties: Witnesses

    @property
    def deal(self) -> DealSpec:
        """What was dealt."""
        return self.scoring.deal

    @property
    def given(self) -> Given:
        """What all of them were given."""
        return next(iter(self.parties.values())).given

    def rows(self) -> Released:
        """Every client's row: under its name, or all in the order of the shuffle."""
        if self._both:
            return self._named(self._shared() if self.mix is None else self._opened(self.mix))
        if self.mix is None:
            masks = np.stack([dealer.mask_of(seed, self.deal) for seed in dealer.seeds(self.deal, self._dealt)])
            hidden = {who: body["row"].numpy() for who, body in self._server.received("up").items()}
            return self._named({who: row ^ masks[self.given.roster.index(who)] for who, row in hidden.items()})
        if self.mix.way == "translate":
            return self._named(self._translated(self.mix))
        rows = torch.from_numpy(kernel.bits_of(self._converted(self.mix), self.deal.size))
        return Released(self.given.roster, rows, layout=self.given.layout)

    def second_alone(self) -> Released:
        """What the second server gets to know of the sum, alone."""
        second = self.parties[SECOND]
        if self.mix is not None:
            found: Released = second.replayed(self.play(second.given, second.own))
            return found
        material, gates = self._material(1), {kind: self._letter(1, kind) for kind in self.scoring.kinds(1)}
        tally = Tally(self.deal, material.shares, 1, material.point)
        table = ScoreFlow(self.scoring, tally, FIRST, self.scoring.received(1, gates), self._opener(second))
        hidden = second.received_one("w")["rows"].numpy()[material.order] ^ material.masks
        out = second.replayed(table.play(hidden, second.received_one("late")["reference"].numpy()))
        return Released(self._present, sums=out["sums"], luggage=beside(out), layout=self.given.layout)

    @property
    def _both(self) -> bool:
        return set(SERVERS) <= set(self.parties)

    @property
    def _me(self) -> int:
        """Which of the two servers there is, where there is one."""
        return 0 if FIRST in self.parties else 1

    @property
    def _server(self) -> Witness:
        return self.parties[SERVERS[self._me]]

    @property
    def _present(self) -> tuple[str, ...]:
        """The clients that reached a server."""
        kinds = ("up", f"up{self._me}")
        here = {letter.source for letter in self._server.letters if letter.kind in kinds}
        return tuple(who for who in self.given.roster if who in here)

    @property
    def _dealt(self) -> Coins:
        """What the dealer dealt from: of several sets, the one that was kept."""
        party = self.parties[DEALER]
        root = party.own.child("deal")
        return Coins(root.child("deck", int(party.received_one("kept")["kept"])).export()) if self.cut else root

    def _named(self, rows: dict[str, Rows]) -> Released:
        names = tuple(who for who in self.given.roster if who in rows)
        bits = kernel.bits_of(np.stack([rows[who] for who in names]), self.deal.size)
        return Released(names, torch.from_numpy(bits), ids=names, layout=self.given.layout)

    def _letter(self, me: int, kind: str) -> Body:
        """What the dealer sent a server: of several sets, the one that was not opened."""
        party = self.parties[SERVERS[me]]
        if self.cut is None:
            return party.received_one(kind)
        kept = self.cut.kept(party.received_one("opened")["roots"], party.received_one("roots")["digests"])
        return party.received_one(f"{kind}.{kept}")

    def _material(self, me: int) -> ShuffleShare:
        return share_from_letter(self.deal, self.given, me, self._letter(me, f"hand{me}"))

    def _opener(self, party: Witness) -> Callable[[str, str, TaggedShares], SubFlow]:
        """Numbers of which one server holds a share, and was told the other's."""

        def opened(kind: str, step: str, held: TaggedShares) -> SubFlow:
            theirs = party.received_one(kind)["value"]
            yield from ()
            if not self.deal.authentic:
                return held.values + theirs.numpy().view(np.uint32)
            return PRIME.add(held.values, as_words(theirs).reshape(held.values.shape)).reshape(-1)

        return opened

    def _shared(self) -> dict[str, Rows]:
        """Both servers: their shares add up to the bits that hide the rows, and their orders make up the shuffle's."""
        one, two = self._material(0), self._material(1)
        hiding = np.empty((self.deal.rows, self.deal.size), np.uint8)
        for (start, stop, mine, _), (*_, theirs, _) in zip(one.shares.blocks(), two.shares.blocks(), strict=True):
            hiding[:, start:stop] = PRIME.add(mine, theirs) if self.deal.authentic else mine + theirs
        hidden = self.parties[FIRST].received_one("q")["rows"].numpy()
        rows = hidden ^ kernel.packed(hiding)
        order = one.order[two.order].tolist()
        names = (self.given.roster[place] for place in order)
        return {who: row for who, row in zip(names, rows, strict=True) if who in self._present}

    def _opened(self, mix: Mix) -> dict[str, Rows]:
        """Both servers: the shares that a client sent, or the boxes within boxes."""
        one, two = (self.parties[name] for name in SERVERS)
        if mix.way == "onion":
            locks = _lock(one.own.child("collect")), _lock(two.own)
            boxes, now = one.received("up0"), Occasion.of(self.given)
            return {who: onion.unwrap(mix.group, bytes_of(box["box"]), locks, now) for who, box in boxes.items()}
        rests = two.received("up1")
        return {who: _drawn(mix, body) ^ rests[who]["row"].numpy() for who, body in one.received("up0").items()}

    def _translated(self, mix: Mix) -> dict[str, Rows]:
        """A server and the dealer, who knows the masks under which the other server said its share, and the orders."""
        bits = self._correlated(mix)
        masks = [translate.open_masks(mix.group, self.deal.rows, bytes_of(body["masks"])) for body in bits]
        # The second server says its share as it came, and then the first one the rows in its own order.
        said = self._rows_sent(mix, "mix", self._me, 1 - self._me)
        if self._me == 0:
            rest = dict(zip(self.given.roster, said ^ masks[1].a, strict=True))
            return {who: _drawn(mix, body) ^ rest[who] for who, body in self._server.received("up0").items()}
        order = translate.draw_order(self.deal.rows, Coins(bytes_of(bits[0]["order"])))
        moved = said ^ masks[0].a ^ masks[1].b
        names = (self.given.roster[place] for place in order.tolist())
        return {who: row for who, row in zip(names, moved, strict=True) if who in self._present}

    def _converted(self, mix: Mix) -> Rows:
        """A server and the dealer, who knows the bits under which both servers say their shares of shuffled rows."""
        me, party = self._me, self._server
        coins = party.own if me else party.own.child("collect")
        mine = party.sent(self.play(party.given, coins), turns.kind_of("convert", 0, me))
        seeds = [bytes_of(body["seed"]) for body in self._correlated(mix)]
        known = [convert.open_seed(mix.group, self.deal.rows, seed).bits for seed in seeds]
        return _unpacked(mix, mine) ^ self._rows_sent(mix, "convert", 0, 1 - me) ^ known[0] ^ known[1]

    def _correlated(self, mix: Mix) -> list[Body]:
        """What the dealer sent each server."""
        return [letter.body for letter in mix.letters(self._dealt) if not isinstance(letter.body, bytes)]

    def _rows_sent(self, mix: Mix, talk: str, number: int, who: int) -> Rows:
        """The rows that the other server sent in a turn."""
        return _unpacked(mix, self._server.received_one(turns.kind_of(talk, number, who)))


def votes(body: Body, given: Given) -> Released:
    """What clients are told of the sum."""
    return Released(given.roster, sums=body["sums"], luggage={"total": body["total"]}, layout=given.layout)


def _drawn(mix: Mix, body: Body) -> Rows:
    """The share that a client's seed stands for."""
    row: Rows = mix.group.draw(1, Coins(bytes_of(body["seed"])).secure())[0]
    return row


def _unpacked(mix: Mix, body: Body) -> Rows:
    return mix.group.unpack(bytes_of(body["data"]), mix.deal.rows)


def _lock(coins: Coins) -> Lock:
    return Lock.make(coins.child("lock"))
