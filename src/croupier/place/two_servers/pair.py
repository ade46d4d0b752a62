"""Two servers shuffle rows of signs that neither can read, and open how far each lies from a reference, and a sum.

This is RAIN in a sound form (presets `rain` and `rain-honest`): masked bits go to both servers, so that no client can
send anything but a row of bits; each server knows one of two permutations; a dealer, who sees nothing of a round,
shares what hides the shuffled rows. With `malicious`, all that is opened carries tags, the shuffle is checked first,
and both servers sign who took part and what came out. `server` is the first of them, and holds only its own view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Brief, Payload, Released
from croupier.encode.signs import NONCE, reference_fields
from croupier.errors import ProtocolError, SpecError
from croupier.kernels import field as kernel
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.tallies import MOST
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
    quorum,
    unkeyed,
)
from croupier.place.secrets import Need, Secrets
from croupier.place.two_servers import messages, server_flow
from croupier.place.two_servers.client_flow import ClientFlow, check_noise
from croupier.place.two_servers.cut_and_choose import Cut
from croupier.place.two_servers.messages import DEALER, SECOND, SERVERS
from croupier.place.two_servers.pooled import Pool, votes
from croupier.place.two_servers.scoring import Scoring
from croupier.place.two_servers.shuffle_flows import Sharer, Unboxer
from croupier.place.two_servers.shuffles import Mix
from croupier.place.two_servers.words import PairShuffle, dealer_knows_whose, who_learns, withstands
from croupier.place.witness import Witnesses
from croupier.release.release import Shape


class Pair(Placement, use="pair"):
    """Two servers and a dealer.

    `check` "hash" compares hashes of rows in GF(2^128), "product" inner products modulo 2^61 - 1 at twice the dealt
    material. `entropy`: the least bits of noise in a row, without which a server that alters a row can learn from the
    check whether it guessed it. `missing` "restart" starts again without the missing clients, "vote" lets a uniform
    row stand for each.

    `shuffle`, other than by the dealer, for servers that follow the protocol: rows shared by XOR and permuted by each
    server in turn, with correlations that are dealt ("translate") or made by oblivious transfer ("transfer", work that
    grows with the square of the clients), or boxes within boxes ("onion"); see `shuffles`.

    With `decks` above 1 the dealer deals so many whole sets, a joint coin keeps one, and all others are opened and
    computed again by everybody, at so many times the cost of dealing; see `cut_and_choose`.
    """

    realises: ClassVar[frozenset[Shape]] = frozenset({"scored"})
    restarts: ClassVar[bool] = True
    spends: ClassVar[bool] = True
    witnesses: ClassVar[tuple[str, ...]] = (SECOND,)
    bystanders: ClassVar[tuple[str, ...]] = (DEALER,)

    malicious: bool = Field(
        True,
        description="whether one of the two servers may cheat: all that is opened then carries tags, the shuffle is "
        "checked, clients check signatures",
    )
    check: Literal["hash", "product"] = Field(
        "hash",
        description="compares `hash` values of rows, or their inner products (`product`) at twice the dealt material",
    )
    entropy: float = Field(
        128.0, ge=0, description="least bits of noise in a row with malicious servers, from `protocol.privacy`"
    )
    missing: Literal["restart", "vote"] = Field(
        "restart",
        description="start again without the missing clients (`restart`), or let a uniform row, summed too, stand for "
        "each (`vote`)",
    )
    shuffle: PairShuffle = Field(
        "dealer",
        description="by what the dealer dealt (`dealer`); with `malicious = false` also `translate`, `transfer` "
        "(croupier[transfer]) or `onion`",
    )
    decks: int = Field(
        1, ge=1, le=256, description="whole sets dealt, all but one opened and checked: a cheating dealer escapes with "
        "a chance of 1 in `decks`",
    )  # fmt: skip
    _checked: ClassVar[bool] = True

    @property
    def binds(self) -> bool:  # type: ignore[override]
        """Malicious servers might hand clients different models."""
        return self.malicious

    @property
    def sends_once(self) -> bool:  # type: ignore[override]
        """Unless clients say first what they were dealt, and send only after one of several sets was kept."""
        return self.decks == 1

    def missing_of(self, named: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Only who both servers found missing, before anything was opened: one alone could have rows sent again."""
        found = [named.get(name, frozenset()) for name in SERVERS]
        return found[0] if found[0] == found[1] else frozenset()

    @property
    def tolerance(self) -> Tolerance:  # type: ignore[override]
        """What it withstands depends on whether servers may be malicious."""
        return withstands(self.malicious, self.check, self.missing, self.shuffle, self.decks)

    @model_validator(mode="after")
    def _shuffles(self) -> Self:
        if self.shuffle != "dealer" and self.malicious:
            raise SpecError(
                f"protocol.place.shuffle = {self.shuffle!r} with malicious = true: nothing in it shows that a server "
                "cheats; use malicious = false, or shuffle = 'dealer'"
            )
        if self.shuffle == "onion" and self.missing == "vote":
            raise SpecError(
                "protocol.place.missing = 'vote' with shuffle = 'onion': nobody can close a box for a missing client; "
                "use missing = 'restart', or shuffle = 'translate'"
            )
        if self.shuffle != "dealer" and self.decks > 1:
            raise SpecError(
                f"protocol.place.decks = {self.decks} with shuffle = {self.shuffle!r}: only what is dealt for the "
                "dealer's own shuffle is cut and chosen from; use decks = 1, or shuffle = 'dealer'"
            )
        return self

    def mix(self, deal: DealSpec) -> Mix | None:
        """The shuffle, where it is not the dealer's."""
        return None if self.shuffle == "dealer" else Mix(self.shuffle, deal)

    @property
    def needs(self) -> frozenset[Need]:
        """A signature key for everybody who signs, where servers may cheat."""
        return frozenset({"identity"} if self.malicious else ())

    def holders(self, clients: tuple[str, ...]) -> tuple[str, ...]:
        """The clients and both servers; the dealer signs nothing."""
        return (*clients, *SERVERS)

    def own_keys(self, me: str, own: Secrets) -> Keys:
        """Its own signature key, and everybody's public one."""
        return {"identity": own.identity, "public": dict(own.identities)} if self.malicious else {}

    def without_noise(self) -> Self:
        """The same placement with no noise asked for."""
        return self.model_copy(update={"entropy": 0.0})

    def misfits(self, mechanism: Mechanism) -> Iterator[str]:
        """Without noise a guess can be checked; gates carry no tags."""
        if self.malicious and mechanism.release.signs_only:
            yield (
                "with malicious = true opens nothing without tags, and what computes signs (release.opens = 'signs') "
                "carries none; use malicious = false, or opens = 'sums'"
            )
        if self.malicious and self.entropy and not mechanism.privacy.entropy(1 << 30):
            yield (
                "with malicious servers needs noise in every row (entropy = "
                f"{self.entropy:g} bits); use privacy = 'gaussian' with sigma above 0, or "
                "malicious = false"
            )

    def deal(self, given: Given) -> DealSpec:
        """What is dealt for an attempt."""
        return DealSpec(len(given.roster), given.layout.size, self.check if self.malicious else "none")

    def middle(self, mechanism: Mechanism) -> Mapping[str, Party]:
        """The second server, and the dealer."""

        def second(given: Given, memory: Memory, coins: Coins) -> Flow:
            seat = self._seat(mechanism, given, memory.get("keys", {}), coins)
            yield from seat.play(None)
            return unkeyed(memory)

        def deals(given: Given, memory: Memory, coins: Coins) -> Flow:
            if cut := self._cut(mechanism, given):
                yield from cut.dealt(coins.child("deal"))
            else:
                yield Exchange(tuple(self._dealt(mechanism, given, coins.child("deal"))))
            return memory

        return {SECOND: second, DEALER: deals}

    def _dealt(self, mechanism: Mechanism, given: Given, coins: Coins) -> Iterator[Letter]:
        """One whole set of what is dealt."""
        deal = self.deal(given)
        mix = self.mix(deal)
        yield from mix.letters(coins) if mix else messages.letters(deal, given, coins)
        yield from Scoring.of(mechanism.release, deal).letters(SERVERS, coins.child("gates"))

    def _cut(self, mechanism: Mechanism, given: Given) -> Cut | None:
        deal = partial(self._dealt, mechanism, given)
        return Cut(self.decks, deal, given, SERVERS, DEALER) if self.decks > 1 else None

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """What is dealt, sent up, exchanged between the servers, and published."""
        deal = self.deal(given)
        scoring, mix = Scoring.of(mechanism.release, deal), self.mix(deal)
        found = messages.schemas(deal, given)
        if mix:
            found = {kind: said for kind, said in found.items() if kind in ("late", "here", "hd", "z")} | mix.schemas()
        found = {kind: said for kind, said in found.items() if kind not in scoring.unused_kinds} | scoring.schemas()
        if cut := self._cut(mechanism, given):
            dealt = {"seed", "hand0", "hand1", *scoring.kinds(0), *scoring.kinds(1)}
            one = {kind: said for kind, said in found.items() if kind in dealt}
            return {kind: said for kind, said in found.items() if kind not in dealt} | cut.schemas(one)
        return found

    def submit(
        self, mechanism: Mechanism, given: Given, payload: Payload, keys: Keys, coins: Coins, brief: Brief = NO_BRIEF
    ) -> SubFlow:
        """Send the hidden row to both servers, and check what they sign.

        Reveals: to each server uniform bits. Raises: PrivacyError when a row carries too little noise; IntegrityError
        when the servers do not both sign a round with this very row in it, or its outcome.
        """
        deal = self.deal(given)
        if self.malicious:
            check_noise(mechanism.privacy.entropy(deal.size), self.entropy, deal.size)
        if mix := self.mix(deal):
            yield from mix.submit(given, kernel.packed(payload.vector.numpy()), coins)
            return
        client = ClientFlow(given, deal, keys, brief, self._cut(mechanism, given), self.malicious)
        yield from client.play(payload.vector)

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: ServerHoldings = NOTHING) -> SubFlow:
        """The first server's part."""
        late = {field.name: own.brief[field.name] for field in reference_fields(1)}
        seat = self._seat(mechanism, given, own.keys, coins)
        released: Released = yield from seat.play(
            late | {name: own.brief[name] for name in ("commitment", "handed") if name in own.brief}
        )
        return released

    def opened(self, mechanism: Mechanism, roster: tuple[str, ...], layout: Layout, inbox: Inbox) -> Released:
        """Raises: ProtocolError, because what comes out follows from no single inbox."""
        raise ProtocolError("what two servers compute cannot be read from one inbox; replay the server's view")

    def learns(self, mechanism: Mechanism) -> Mapping[str, str]:
        """Both servers learn the release, the dealer nothing; clients of malicious servers learn the sum."""
        return who_learns(mechanism.release.reveals(), self.missing, self.malicious)

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """Either two of the three read every row; whose it is, unless the dealer knows no order."""
        dealt: Reads = "named" if dealer_knows_whose(self.shuffle) else "model"
        return {SERVERS: "named", **{(name, DEALER): dealt for name in SERVERS}}

    def sight(self, mechanism: Mechanism, party: str) -> Sight:
        """The second server what is released; the dealer nothing."""
        if party == SECOND:
            return Sight("released")
        return Sight(
            "nothing", f"nothing that depends on updates is sent to it: it learns {self.learns(mechanism)[party]}"
        )

    def pooled(self, mechanism: Mechanism, parties: Witnesses) -> Released:
        """Two of the three read rows; the second server and a client read what is released."""
        given = next(iter(parties.values())).given
        if not {*SERVERS, DEALER} & set(parties):
            return votes(parties[given.me].received_one("published"), given)
        deal = self.deal(given)
        played = partial(self._played, mechanism)
        pool = Pool(Scoring.of(mechanism.release, deal), self.mix(deal), self._cut(mechanism, given), played, parties)
        return pool.second_alone() if len(parties) == 1 else pool.rows()

    def _played(self, mechanism: Mechanism, given: Given, coins: Coins) -> SubFlow:
        """A server's part; the first one's without its reference, which comes after all that hides rows."""
        size = given.layout.size
        none = {"reference": torch.zeros(size, dtype=torch.uint8), "nonce": torch.zeros(NONCE, dtype=torch.uint8)}
        return self._seat(mechanism, given, {}, coins).play(none if given.me == SERVERS[0] else None)

    def _seat(self, mechanism: Mechanism, given: Given, keys: Keys, coins: Coins) -> server_flow.ServerFlow:
        scoring, least = Scoring.of(mechanism.release, self.deal(given)), quorum(mechanism, given)
        # Before anything is opened, not when it is too late to start again.
        if (most := scoring.release.most(scoring.deal.rows, scoring.deal.size)) >= MOST:
            raise ProtocolError(
                f"protocol.release.weights = {scoring.release.weights!r}: weights of {scoring.deal.rows} rows of "
                f"{scoring.deal.size} signs may reach {most}, and a sum holds less than {MOST}; use weights = 'equal'"
            )
        told = (given, scoring.deal, scoring.release, keys, coins, least, self.missing == "vote", self._checked)
        if self.shuffle == "dealer":
            return server_flow.ServerFlow(*told, cut=self._cut(mechanism, given))
        return (Unboxer if self.shuffle == "onion" else Sharer)(*told, way=self.shuffle)
