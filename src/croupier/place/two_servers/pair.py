"""Two servers shuffle rows of signs that neither can read, and open how far each lies from a reference, and a sum.

From: RAIN, in the sound form: masked bits go to both servers, so that no client can send anything but a row of bits;
each server knows one of two permutations; a dealer, who sees nothing of a round, shares what hides the shuffled rows.
With `malicious`, everything that is opened carries tags, the shuffle is checked before anything is opened, and both
servers sign who took part and what came out. `server` is the first of them and holds nothing more than its own view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from croupier.core.coins import Coins
from croupier.core.flow import Exchange, Flow, Given, Inbox, Letter, Memory, Party, SubFlow, Wait
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.encode.encoder import Brief, Payload, Released
from croupier.encode.signs import NONCE, reference_fields
from croupier.errors import IntegrityError, PrivacyError, ProtocolError, SpecError
from croupier.kernels import field as kernel
from croupier.mpc import dealer
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.deal_shares import DealSpec
from croupier.mpc.signatures import root_of, signed, verified
from croupier.mpc.tallies import MOST
from croupier.place.placement import (
    NO_BRIEF,
    NOTHING,
    Keys,
    Mechanism,
    Own,
    Placement,
    Reads,
    Sight,
    Tolerance,
    quorum,
    unkeyed,
)
from croupier.place.secrets import Need, Secrets
from croupier.place.two_servers import messages, server_flow
from croupier.place.two_servers.cut_and_choose import Cut
from croupier.place.two_servers.messages import SECOND, SERVERS
from croupier.place.two_servers.pooled import Pool, votes
from croupier.place.two_servers.scoring import Scoring
from croupier.place.two_servers.shuffle_flows import Sharer, Unboxer
from croupier.place.two_servers.shuffles import Mix
from croupier.place.witness import Witnesses
from croupier.release.release import Shape
from croupier.release.scored import ScoredSum

DEALER = "dealer"
_MALICIOUS = (
    "one of the two servers, malicious, with as many clients as protocol.release.colluders says: it learns the "
    "distances in random order, the sum, and who took part, before it may end the round; not which row is whose, while "
    "the other server and the dealer are honest and rows carry enough noise. More colluding clients take their own "
    "rows off the sum. A client signs the model it was handed, and one that was handed another is left out: a server "
    "can leave clients out, down to the quorum. The dealer with either server reads every row"
)
_HONEST = (
    "one of the two servers that follows the protocol, with any clients: it learns what is released, "
    "and who took part. One that does not can find out which row is whose"
)
_WITH = "The dealer with either server reads every row"
_NAMELESS = f"{_WITH}, in random order: whose it is, the dealer does not know"
_BOXED = "; a client whose inner boxes are no good ends the round, and nobody knows whose they were"
_DEALER = {"dealer": _WITH, "translate": _WITH, "transfer": _NAMELESS, "onion": _NAMELESS}


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
    shuffle: Literal["dealer", "translate", "transfer", "onion"] = Field(
        "dealer",
        description="by what the dealer dealt (`dealer`); with `malicious = false` also `translate`, `transfer` "
        "(croupier[transfer]) or `onion`",
    )
    decks: int = Field(
        1,
        ge=1,
        le=256,
        description="whole sets dealt, all but one opened and checked: a cheating dealer escapes with a chance of 1 "
        "in `decks`",
    )
    _checked: ClassVar[bool] = True

    @property
    def binds(self) -> bool:  # type: ignore[override]
        """Malicious servers might hand clients different models."""
        return self.malicious

    def missing_of(self, named: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Only what both servers found alike, before anything was opened: one alone could ask for rows again."""
        found = [named.get(name, frozenset()) for name in SERVERS]
        return found[0] if found[0] == found[1] else frozenset()

    @property
    def tolerance(self) -> Tolerance:  # type: ignore[override]
        """What it withstands depends on whether servers may be malicious."""
        return Tolerance(
            privacy=_MALICIOUS if self.malicious else f"{_HONEST}. {_DEALER[self.shuffle]}",
            integrity=(
                "one of the two servers, malicious, with any clients: the sum is that of the rows that the clients "
                f"named sent, each once{self._stand_ins}, or the round ends, but for a chance of "
                f"{'2^-58' if self.check == 'hash' else '(3 rows + 6) / 2^61'}; clients check both servers' "
                "signatures. The model that the server makes of the sum is not covered"
                if self.malicious
                else "none: both servers follow the protocol"
            )
            + f". {self._trusted} A client's row is a row of signs whatever it sends",
            liveness=f"both servers and the dealer{', until all sets but one are opened' if self.decks > 1 else ''}; "
            + (
                "a round starts again without the missing clients until distances are opened, and is lost after that"
                if self.missing == "restart"
                else "a uniform row stands for every missing client, above the quorum"
            )
            + ("; any client can end a round by refusing what both servers signed" if self.malicious else "")
            + (
                "; a client whose inner boxes are no good ends the round, and nobody knows whose they were"
                if self.shuffle == "onion"
                else ""
            ),
            apart=(("server", SECOND), (DEALER, "server or second")),
        )

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
    def _stand_ins(self) -> str:
        """The rows beside those that were sent."""
        return ", and of one uniform row for each missing client" if self.missing == "vote" else ""

    @property
    def _trusted(self) -> str:
        if self.decks == 1:
            return "The dealer is trusted for correctness: a wrong mask flips votes unseen."
        return (
            f"A dealer that deals wrong is caught before rows are sent, but for a chance of 1 in {self.decks}, when it "
            f"flips votes unseen: all but one of {self.decks} whole sets are opened, and everybody computes them again."
        )

    @property
    def needs(self) -> frozenset[Need]:
        """A signature key for everybody who signs, where servers may cheat."""
        return frozenset({"identity"} if self.malicious else ())

    def holders(self, clients: tuple[str, ...]) -> tuple[str, ...]:
        """The clients and both servers; the dealer signs nothing."""
        return (*clients, *SERVERS)

    def keys(self, me: str, own: Secrets) -> Keys:
        """Its own signature key, and everybody's public one."""
        return {"identity": own.identity, "public": dict(own.identities)} if self.malicious else {}

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
        yield from self._scoring(mechanism, deal).letters(SERVERS, coins.child("gates"))

    def _cut(self, mechanism: Mechanism, given: Given) -> Cut | None:
        deal = partial(self._dealt, mechanism, given)
        return Cut(self.decks, deal, given, SERVERS, DEALER) if self.decks > 1 else None

    def schemas(self, mechanism: Mechanism, given: Given) -> Mapping[str, Schema]:
        """What is dealt, sent up, exchanged between the servers, and published."""
        deal = self.deal(given)
        scoring, mix = self._scoring(mechanism, deal), self.mix(deal)
        found = messages.schemas(deal, given)
        if mix:
            found = {kind: said for kind, said in found.items() if kind in ("late", "here", "hd", "z")} | mix.schemas()
        found = {kind: said for kind, said in found.items() if kind not in scoring.unsaid} | scoring.schemas()
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
        self._noisy(mechanism, deal)
        if mix := self.mix(deal):
            yield from mix.submit(given, kernel.packed(payload.vector.numpy()), coins)
            return
        if cut := self._cut(mechanism, given):
            told = yield from cut.seed("seed")
        else:
            (letter,) = yield Exchange(wait=Wait("seed", (DEALER,)))
            told = letter.body
        row = kernel.packed(payload.vector.numpy()) ^ dealer.mask_of(bytes_of(told["seed"]), deal)
        body = {"row": torch.from_numpy(row)}
        if not self.malicious:
            yield Exchange(tuple(Letter(name, "up", body) for name in SERVERS))
            return
        body["handed"] = brief["handed"]
        claim = messages.claim(given, given.me, row, bytes_of(brief["handed"]))
        body["signature"] = byte_tensor(signed(keys["identity"], claim))
        letters = tuple(Letter(name, "up", body) for name in SERVERS)
        inbox = yield Exchange(letters, Wait("receipt", SERVERS))
        root = self._received(given, row, inbox, keys, bytes_of(brief["commitment"]) + bytes_of(brief["handed"]))
        (told,) = yield Exchange(wait=Wait("published", ("server",)))
        outcome = messages.outcome(root, told.body["sums"], told.body["total"])
        for place, name in enumerate(SERVERS):
            if not verified(keys["public"][name], outcome, bytes_of(told.body["signatures"][place])):
                raise IntegrityError(f"{name} did not sign the outcome that was published")

    def _noisy(self, mechanism: Mechanism, deal: DealSpec) -> None:
        have = mechanism.privacy.entropy(deal.size)
        if self.malicious and have < self.entropy:
            raise PrivacyError(
                f"a row of {deal.size} signs carries {have:.1f} bits of noise, and protocol.place.entropy = "
                f"{self.entropy:g}: a malicious server could guess it and see whether it guessed right; add noise: "
                "raise protocol.privacy.sigma, or lower protocol.privacy.clip"
            )

    def _received(self, given: Given, row: kernel.Bytes, inbox: Inbox, keys: Keys, bound: bytes) -> bytes:
        digests = inbox[0].body["digests"]
        mine = given.roster.index(given.me)
        if bytes_of(digests[mine]) != messages.row_digest(row):
            raise IntegrityError("a client's row is missing from what the servers signed, or altered")
        root = root_of(given, bytes_of(inbox[0].body["identity"]), bound, digests)
        for letter in inbox:
            if not verified(keys["public"][letter.source], root, bytes_of(letter.body["signature"])):
                raise IntegrityError(f"{letter.source} did not sign the rows that {inbox[0].source} names")
        return root

    def collect(self, mechanism: Mechanism, given: Given, coins: Coins, own: Own = NOTHING) -> SubFlow:
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
        """Both servers the release, the dealer nothing."""
        votes = "; one uniform row for each missing client is among the rows" if self.missing == "vote" else ""
        seen = f"{mechanism.release.reveals()}{votes}; and which clients took part"
        told = f"the sum, the sum of the weights{votes.replace(';', ',')}, and who took part"
        return {
            "server": f"{seen}; and uniform numbers",
            SECOND: f"{seen}; the reference, once all updates are fixed; and uniform numbers",
            DEALER: "which clients were invited",
            **({"each client": told} if self.malicious else {}),
        }

    @property
    def breaks(self) -> Mapping[tuple[str, ...], Reads]:
        """Either two of the three read every row; whose it is, unless the dealer knows no order."""
        dealt: Reads = "model" if _DEALER[self.shuffle] == _NAMELESS else "named"
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
        pool = Pool(self._scoring(mechanism, deal), self.mix(deal), self._cut(mechanism, given), played, parties)
        return pool.second_alone() if len(parties) == 1 else pool.rows()

    def _played(self, mechanism: Mechanism, given: Given, coins: Coins) -> SubFlow:
        """A server's part; the first one's without its reference, which comes after all that hides rows."""
        size = given.layout.size
        none = {"reference": torch.zeros(size, dtype=torch.uint8), "nonce": torch.zeros(NONCE, dtype=torch.uint8)}
        return self._seat(mechanism, given, {}, coins).play(none if given.me == SERVERS[0] else None)

    def _scoring(self, mechanism: Mechanism, deal: DealSpec) -> Scoring:
        release = mechanism.release
        if not isinstance(release, ScoredSum):
            raise ProtocolError(f"place = 'pair' computes release = 'scored', not {release.use!r}")
        return Scoring(release, deal)

    def _seat(self, mechanism: Mechanism, given: Given, keys: Keys, coins: Coins) -> server_flow.ServerFlow:
        scoring, least = self._scoring(mechanism, self.deal(given)), quorum(mechanism, given)
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
