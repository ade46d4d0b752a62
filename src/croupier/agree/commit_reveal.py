"""A joint secret for an epoch: commit, echo, reveal and compare among all of a roster, through a relay.

Tazza's clients agree on a shuffling rule, with a seed that a head chooses; here nobody chooses it, and each round's
rule is derived from it. All must take part, and whoever finds anything amiss stops: that is safe with any number of
faulty participants and any relay. What is lost is the attempt and, once somebody signed an outcome, its number. A
faulty participant that withholds its draw makes the others draw again, and so gets another secret; it can choose none.

Reveals to the relay: who takes part, commitments, sealed boxes, and the digest of the secret. The secret stays hidden
from it as long as no participant, and nobody who is ever given the secret, tells it.

`agree.seats` plays it where `protocol.encode.by = "joint"` (the default); `croupier bench agree` disturbs it by faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from croupier.agree.agreement import AgreementCall, AgreementForm, ended
from croupier.agree.board import SIGNATURE, Note, Notes, Turn, hand_in, pass_on
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.core.flow import Flow, Given, Memory, Party, SubFlow
from croupier.core.wire import Schema
from croupier.errors import IntegrityError, TooFew, WireError
from croupier.mpc.joint import DRAW, SECRET, Draw, Terms, box_size, close, joined, opened, rule_digest
from croupier.mpc.seal import POINT, Lock
from croupier.mpc.signatures import signed, verified

COMMIT = Turn("commit", {"key": POINT, "commitment": 32, "signature": SIGNATURE}, step=0)
ECHO = Turn("echo", {"digest": 32, "signature": SIGNATURE}, step=1)
REVEAL = Turn("reveal", {}, {"box": box_size(DRAW), "signature": SIGNATURE}, step=2)
COMPARE = Turn("compare", {"digest": 32, "signature": SIGNATURE}, step=3)
TURNS = (COMMIT, ECHO, REVEAL, COMPARE)


@dataclass
class CommittingClient:
    """One participant of one attempt: it commits, echoes, reveals and compares.

    What it draws, and the key that reveals are sealed to, live no longer than the attempt.
    """

    given: Given
    terms: Terms
    keys: Mapping[str, Any] = field(repr=False)
    coins: Coins
    standing: Standing
    blamed: frozenset[str] = frozenset()

    def play(self) -> SubFlow:
        """The epoch and its secret. Raises: TooFew when somebody is missing, IntegrityError when somebody cheats."""
        self.standing.check(self.given.round, self.terms.start)
        lock, mine = Lock.make(self.coins.child("lock")), Draw.make(self.coins)
        notes = yield from self._committed(lock, mine)
        yield from self._alike(ECHO, "echo", canon.digest([(notes[w]["key"], notes[w]["commitment"]) for w in notes]))
        secret = joined(self.terms, (yield from self._revealed(lock, mine, notes)))
        digest = rule_digest(self.given.run, self.given.round, secret)
        self.standing = self.standing.signs(self.given.round)
        yield from self._alike(COMPARE, "digest", digest)
        return Epoch(self.given.round, self.terms.start, self.given.roster, digest, self.terms.last), secret

    def _committed(self, lock: Lock, mine: Draw) -> SubFlow:
        """Everybody's key and commitment, no two alike."""
        own = {"key": lock.public, "commitment": mine.commitment(self.terms, self.given.me)}
        signature = self._sign("commitment", own["key"], own["commitment"])
        notes: Notes = yield from self._turn(COMMIT, {**own, "signature": signature})
        for who, note in notes.items():
            self._check(who, note, "commitment", note["key"], note["commitment"])
        for name in ("key", "commitment"):
            if len({note[name] for note in notes.values()}) < len(notes):
                self._abort(f"two participants sent the same {name}: one of them is a copy")
        if any(notes[self.given.me][name] != own[name] for name in own):
            self._abort("its own commitment came back as another")
        return notes

    def _alike(self, turn: Turn, purpose: str, digest: bytes) -> SubFlow:
        """Go on only when everybody signs the same digest."""
        own = {"digest": digest, "signature": self._sign(purpose, digest)}
        notes: Notes = yield from self._turn(turn, own)
        for who, note in notes.items():
            self._check(who, note, purpose, note["digest"])
        if others := [who for who, note in notes.items() if note["digest"] != digest]:
            self._abort(f"{', '.join(others[:8])} signed another {purpose}: somebody told them something else")

    def _revealed(self, lock: Lock, mine: Draw, notes: Notes) -> SubFlow:
        """Everybody's draw, each held against its commitment."""
        me, roster = self.given.me, self.given.roster
        boxes = [self._closed(who, notes[who]["key"], mine) for who in roster]
        signatures = [self._sign("reveal", who, box) for who, box in zip(roster, boxes, strict=True)]
        shown: Notes = yield from self._turn(REVEAL, {"box": boxes, "signature": signatures})
        draws = []
        for who, note in shown.items():
            self._check(who, note, "reveal", me, note["box"])
            draws.append(self._opened(who, lock, note["box"], notes[who]["commitment"]))
        return draws

    def _closed(self, who: str, public: bytes, mine: Draw) -> bytes:
        ends, node = (self.given.me, who), self.coins.child("box", who)
        try:
            return close(self.terms, "reveal", ends, public, mine.value + mine.nonce, node)
        except WireError as error:
            self._abort(f"{who}: {error}", who)

    def _opened(self, who: str, lock: Lock, box: bytes, commitment: bytes) -> Draw:
        try:
            text = opened(self.terms, "reveal", (who, self.given.me), lock, box, DRAW)
        except IntegrityError as error:
            self._abort(f"{who}: {error}", who)
        draw = Draw(text[:SECRET], text[SECRET:])
        if draw.commitment(self.terms, who) != commitment:
            self._abort(f"{who} revealed something else than it is committed to", who)
        return draw

    def _turn(self, turn: Turn, note: Mapping[str, bytes | list[bytes]]) -> SubFlow:
        """A turn in which everybody must be heard."""
        notes: Notes = yield from hand_in(turn, self.given, note)
        if missing := frozenset(self.given.roster) - frozenset(notes):
            self.blamed |= missing - {self.given.me}
            names = sorted(missing)
            raise TooFew(f"{self.given.me}: no {turn.name!r} from {', '.join(names[:8])}", missing)
        return notes

    def _sign(self, purpose: str, *what: bytes | str) -> bytes:
        return signed(self.keys["identity"], self.terms.label(purpose, self.given.me, *what))

    def _check(self, who: str, note: Note, purpose: str, *what: bytes | str) -> None:
        if not verified(self.keys["public"][who], self.terms.label(purpose, who, *what), note["signature"]):
            # The relay may have altered it: whose fault it is, nobody can tell.
            self._abort(f"{purpose} of {who} does not carry its signature for {self.terms.occasion}")

    def _abort(self, why: str, *who: str) -> NoReturn:
        self.blamed |= frozenset(who)
        raise IntegrityError(f"{self.given.me}: {why}")


def member(call: AgreementCall) -> Party:
    """A client's flow."""

    def flow(given: Given, memory: Memory, coins: Coins) -> Flow:
        terms = Terms.of(given, call.start, call.last)
        after: Memory = yield from ended(CommittingClient(given, terms, memory["keys"], coins, Standing.of(memory)))
        return after

    return flow


def relay(given: Given, memory: Memory, coins: Coins) -> Flow:
    """The server's flow: notes in, notes out."""
    for turn in TURNS:
        if not (yield from pass_on(turn, given, given.roster, given.roster)):
            break
    return memory


def schemas(call: AgreementCall) -> dict[str, Schema]:
    """Every message of an agreement."""
    return {kind: schema for turn in TURNS for kind, schema in turn.schemas(call.roster).items()}


JOINT = AgreementForm("joint", member, lambda _: relay, schemas)
