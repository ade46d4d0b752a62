"""A participant of PBFT: what it says in each turn of each view, and what it believes of what others say.

All state of a participant in one attempt is here. It trusts no note by itself: a proposal counts with its head's
signature and, after a change of view, with the proof that it may be made; a decision counts with a quorum's votes.
Written as a generator over turns, so that the laboratory can replace any participant by a faulty one. `pbft.agreement`
makes one for each client.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from croupier.agree.board import SIGNATURE, Notes, Turn, hand_in
from croupier.agree.pbft.views import BOX, NONE, PreparedClaim, ViewTurns, heads, justified, pack_claims
from croupier.agree.pbft.votes import Votes, quorum, tallied
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.core.flow import Exchange, Given, SubFlow
from croupier.errors import IntegrityError, ProtocolError, WireError
from croupier.mpc.joint import SECRET, Terms, close, opened, rule_digest
from croupier.mpc.seal import POINT, Lock
from croupier.mpc.signatures import signed, verified

KEY = Turn("key", {"key": POINT, "signature": SIGNATURE})
# How far a participant got in a view: no decision; decided, with the seed; decided, but without the seed.
NOT_YET, DECIDED, LACKING = b"\x00", b"\x01", b"\x02"


@dataclass(frozen=True)
class Rules:
    """How many may be faulty, how many views are tried, and the last digest, from which the order of heads follows."""

    faulty: int
    views: int
    previous: bytes = NONE


@dataclass
class Replica:
    """One participant of one attempt."""

    given: Given
    terms: Terms
    keys: Mapping[str, Any] = field(repr=False)
    coins: Coins
    standing: Standing
    rules: Rules
    blamed: frozenset[str] = frozenset()
    publics: dict[str, bytes] = field(default_factory=dict)
    seeds: dict[bytes, bytes] = field(default_factory=dict, repr=False)
    prepared: Votes | None = None

    def __post_init__(self) -> None:
        self.lock = Lock.make(self.coins.child("lock"))
        self.least = quorum(len(self.given.roster), self.rules.faulty)

    def play(self) -> SubFlow:
        """The epoch and its secret. Raises: ProtocolError when no view ended in a decision."""
        self.standing.check(self.given.round, self.terms.start)
        yield from self._met()
        order = heads(self.given.roster, self.given.round, self.rules.previous)
        for number in range(self.rules.views):
            head = order[number % len(order)]
            digest = yield from self._view(ViewTurns(number, len(order)), head)
            if digest is not None:
                epoch = Epoch(self.given.round, self.terms.start, self.given.roster, digest, self.terms.last)
                return epoch, self.seeds[digest]
            self.blamed |= {head} - {self.given.me}
        raise ProtocolError(f"{self.given.me}: no decision in {self.rules.views} views, led by {', '.join(order[:8])}")

    def _met(self) -> SubFlow:
        """Everybody's key for boxes, of those who show one that they signed."""
        sign = signed(self.keys["identity"], self.terms.label("key", self.given.me, self.lock.public))
        notes: Notes = yield from hand_in(KEY, self.given, {"key": self.lock.public, "signature": sign}, need=False)
        for who, note in notes.items():
            if verified(self.keys["public"][who], self.terms.label("key", who, note["key"]), note["signature"]):
                self.publics[who] = note["key"]

    def _view(self, view: ViewTurns, head: str) -> SubFlow:
        """The digest that was decided in this view, once its seed is held; None when there is to be another view."""
        lead = head == self.given.me
        told: Notes = (yield from self._changed(view, lead)) if view.number else {}
        proposal = self._proposal(view, told) if lead else None
        digest = yield from self._proposed(view, head, proposal)
        prepared = yield from self._voted("prepare", view, digest)
        if prepared is not None:
            self.prepared = prepared
            self.standing = self.standing.signs(self.given.round)
        committed = yield from self._voted("commit", view, prepared.digest if prepared else None)
        return (yield from self._closed(view, committed))

    def _changed(self, view: ViewTurns, lead: bool) -> SubFlow:
        """Tell the new head what this participant has prepared; the head is told what everybody has."""
        claim = PreparedClaim.of(self.prepared)
        sign = signed(self.keys["identity"], claim.message(self.terms, self.given.me, view.number))
        votes = (self.prepared or claim.votes).pack(self.given.roster)
        note = {**claim.pack(), "signature": sign, **votes}
        if lead:
            return (yield from hand_in(view.change, self.given, note, need=False))
        yield Exchange((view.change.letter(note),))
        return {}

    def _proposal(self, view: ViewTurns, told: Notes) -> dict[str, bytes | list[bytes]] | None:
        """What the head proposes: the latest digest that anybody prepared, or a seed of its own. None if it may not."""
        claims = {who: claim for who in told if (claim := self._believed(view, who, told[who])) is not None}
        if view.number and len(claims) < self.least:
            return None
        top = max(claims, key=lambda who: claims[who].view, default=None)
        if top is not None and claims[top].view:
            digest, votes = claims[top].digest, claims[top].votes.unpack(self.given.roster, told[top])
        else:
            seed = self.coins.child("seed", view.number).export()
            digest = rule_digest(self.given.run, self.given.round, seed)
            self.seeds[digest], votes = seed, Votes("prepare", 0, digest, {})
        shown = {**pack_claims(self.given.roster, claims), **votes.pack(self.given.roster)} if view.number else {}
        sign = signed(self.keys["identity"], self.terms.label("propose", self.given.me, view.number, digest))
        return {
            "digest": digest,
            "signature": sign,
            **shown,
            "box": self._boxes(digest, self.given.roster, view, "seed"),
        }

    def _believed(self, view: ViewTurns, who: str, note: Mapping[str, bytes]) -> PreparedClaim | None:
        claim, public = PreparedClaim.unpack(note), self.keys["public"]
        if not claim.true(self.terms, who, view.number, public):
            return None
        votes = claim.votes.unpack(self.given.roster, note)
        return claim if not claim.view or votes.sound(self.terms, public, self.least) else None

    def _proposed(self, view: ViewTurns, head: str, own: Mapping[str, bytes | list[bytes]] | None) -> SubFlow:
        """The head's digest, where it is one to prepare."""
        notes: Notes = yield from hand_in(view.propose, self.given, own, need=False)
        if (note := notes.get(head)) is None:
            return None
        digest, public = note["digest"], self.keys["public"]
        if not verified(public[head], self.terms.label("propose", head, view.number, digest), note["signature"]):
            return None
        self._take(digest, "seed", head, view, note["box"])
        carried = 0
        if view.number:
            roster = self.given.roster
            known = justified(digest, view.number, note, self.terms, public, roster, self.least)
            if known is None:
                return None
            carried = known
        # Honest ones hold the seed of a digest that a quorum prepared; that of a new digest one must hold oneself.
        return digest if carried or digest in self.seeds else None

    def _voted(self, purpose: str, view: ViewTurns, digest: bytes | None) -> SubFlow:
        """A vote, if there is something to vote for; and the digest that a quorum voted for, if there is one."""
        turn, note = (view.prepare if purpose == "prepare" else view.commit), None
        if digest is not None:
            message = Votes(purpose, view.number, digest, {}).message(self.terms, self.given.me)
            note = {"digest": digest, "signature": signed(self.keys["identity"], message)}
        notes: Notes = yield from hand_in(turn, self.given, note, need=False)
        heard = {**notes, **({self.given.me: note} if note else {})}
        return tallied(purpose, view.number, heard, self.terms, self.keys["public"], self.least)

    def _closed(self, view: ViewTurns, committed: Votes | None) -> SubFlow:
        """End a view: help those who have no decision yet, or be helped."""
        holds = committed is not None and committed.digest in self.seeds
        mine = NOT_YET if committed is None else DECIDED if holds else LACKING
        notes: Notes = yield from hand_in(view.close, self.given, {"state": mine}, need=False)
        states = {who: notes[who]["state"] if who in notes else NOT_YET for who in self.given.roster}
        states[self.given.me] = mine
        if not helped(states):
            return committed.digest if committed else None
        proof: dict[str, bytes | list[bytes]] | None = None
        if committed is not None:
            wanting = tuple(who for who, state in states.items() if state != DECIDED)
            boxes = self._boxes(committed.digest, wanting, view, "proof")
            proof = {"digest": committed.digest, **committed.pack(self.given.roster), "box": boxes}
        if committed is not None and proof is not None and holds:
            yield Exchange((view.proof.letter(proof),))
            return committed.digest
        return self._settled(view, committed, (yield from hand_in(view.proof, self.given, proof, need=False)))

    def _settled(self, view: ViewTurns, committed: Votes | None, proofs: Notes) -> bytes | None:
        """Go by what others prove. Raises: ProtocolError when it is decided and nobody gave the seed."""
        for who, note in proofs.items():
            votes = Votes("commit", view.number, note["digest"], {}).unpack(self.given.roster, note)
            if votes.sound(self.terms, self.keys["public"], self.least):
                committed = votes
                self._take(votes.digest, "proof", who, view, note["box"])
        if committed is not None and committed.digest not in self.seeds:
            raise ProtocolError(f"{self.given.me}: a digest is decided, and nobody gave the seed that it stands for")
        return committed.digest if committed else None

    def _boxes(self, digest: bytes, readers: tuple[str, ...], view: ViewTurns, purpose: str) -> list[bytes]:
        """The seed for each reader whose key is known; nothing for the rest, nor where the seed is not held."""
        seed, me = self.seeds.get(digest), self.given.me
        boxes = []
        for who in self.given.roster:
            box = bytes(BOX)
            if seed is not None and who in readers and who in self.publics:
                node = self.coins.child("box", purpose, view.number, who)
                # A key that nothing can be closed for: its owner does without.
                with suppress(WireError):
                    box = close(self.terms, f"{purpose} {view.number}", (me, who), self.publics[who], seed, node)
            boxes.append(box)
        return boxes

    def _take(self, digest: bytes, purpose: str, source: str, view: ViewTurns, box: bytes) -> None:
        """Keep the seed in a box, if it is the one that the digest stands for."""
        ends = (source, self.given.me)
        try:
            seed = opened(self.terms, f"{purpose} {view.number}", ends, self.lock, box, SECRET)
        except IntegrityError:
            return
        if rule_digest(self.given.run, self.given.round, seed) == digest:
            self.seeds[digest] = seed


def helped(states: Mapping[str, bytes]) -> bool:
    """Whether there is somebody to be helped, and somebody to help."""
    return any(state != DECIDED for state in states.values()) and any(state != NOT_YET for state in states.values())
