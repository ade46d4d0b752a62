"""Telling clients the secret of an epoch that they took no part in: in boxes, from those who hold it.

From an epoch's secret follow its rules, the orders in which hidden units lie. Two kinds of clients ask for it:
newcomers to an epoch that goes on (`one_epoch`, `newcomers = "welcome"`), and clients that lack the rule that the last
model lies under (`each_round`). In the second way Tazza's clients fetch a round's rule from those who took part in it.
`seats` makes both. A newcomer believes what more than `faulty` holders tell it alike, so that one of them is honest;
where a rule is handed on, `seats` sets `faulty` to 0, and says why one holder is enough.

The epoch and who agreed on it are what the server's notice says: a server that invents an epoch, of clients that help
it, makes a newcomer accept a secret that the server knows.

For newcomers the default is a new epoch instead, whose secret says nothing of earlier rounds: whoever is welcomed can
undo the rules of every round of the epoch, and so can anybody it tells.

Reveals to the relay: who is new, and sealed boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from croupier.agree.agreement import AgreementCall, AgreementForm, ended
from croupier.agree.board import SIGNATURE, Note, Notes, Turn, hand_in, pass_on
from croupier.agree.standing import Standing
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.core.flow import Exchange, Flow, Given, Memory, Party, SubFlow
from croupier.core.wire import Schema
from croupier.errors import IntegrityError, ProtocolError, SpecError, WireError
from croupier.mpc.joint import SECRET, Terms, box_size, close, opened, rule_digest
from croupier.mpc.seal import POINT, Lock
from croupier.mpc.signatures import signed, verified

ASK = Turn("ask", {"key": POINT, "signature": SIGNATURE}, step=0)
GIVE = Turn("give", {}, {"box": box_size(SECRET), "signature": SIGNATURE}, step=1)


@dataclass
class _Side:
    """One who holds the secret, or one who asks for it."""

    given: Given
    terms: Terms
    keys: Mapping[str, Any] = field(repr=False)
    coins: Coins
    standing: Standing
    epoch: Epoch
    faulty: int
    blamed: frozenset[str] = frozenset()

    def play(self) -> SubFlow:
        """The epoch and its secret: who is in the epoch's roster holds it and gives it, and everybody else asks."""
        return (yield from self._give() if self.given.me in self.epoch.roster else self._ask())

    def _give(self) -> SubFlow:
        """Hand the secret to those who ask under a pinned key. Raises: ProtocolError when another epoch is held."""
        if self.standing.epoch != self.epoch or self.standing.signed != self.epoch.number:
            raise ProtocolError(f"{self.given.me} does not hold epoch {self.epoch.number}, or signed a later one")
        asked: Notes = yield from hand_in(ASK, self.given, None)
        boxes = [self._box(who, asked.get(who)) for who in self.given.roster]
        signs = [signed(self.keys["identity"], self._label(self.given.me, w, b)) for w, b in self._each(boxes)]
        yield Exchange((GIVE.letter({"box": boxes, "signature": signs}),))
        return self.epoch, self.standing.secret

    def _box(self, who: str, note: Note | None) -> bytes:
        none = bytes(GIVE.apart["box"])
        if note is None or who in self.epoch.roster:
            return none
        if not verified(self.keys["public"][who], self.terms.label("ask", who, note["key"]), note["signature"]):
            return none
        try:
            ends, node = (self.given.me, who), self.coins.child("box", who)
            return close(self.terms, "welcome", ends, note["key"], self.standing.secret, node)
        except WireError:
            return none

    def _ask(self) -> SubFlow:
        """The secret that more than `faulty` holders tell alike. Raises: ProtocolError when there is none."""
        lock = Lock.make(self.coins.child("lock"))
        sign = signed(self.keys["identity"], self.terms.label("ask", self.given.me, lock.public))
        yield Exchange((ASK.letter({"key": lock.public, "signature": sign}),))
        notes: Notes = yield from hand_in(GIVE, self.given, None)
        told: dict[bytes, set[str]] = {}
        for who in self.epoch.roster:
            if who in notes and (secret := self._opened(who, lock, notes[who])) is not None:
                told.setdefault(secret, set()).add(who)
        good = [secret for secret, by in told.items() if len(by) > self.faulty]
        if len(good) != 1:
            most = max(map(len, told.values()), default=0)
            raise ProtocolError(
                f"{self.given.me}: {self.faulty + 1} holders of epoch {self.epoch.number} must tell one and the same "
                f"secret; {most} do, and {len(good)} secrets have enough. Ask again, or start a new epoch"
            )
        return self.epoch, good[0]

    def _opened(self, who: str, lock: Lock, note: Note) -> bytes | None:
        """The secret that one holder tells, if it signed it and it is the one that the digest stands for."""
        message = self._label(who, self.given.me, note["box"])
        if not verified(self.keys["public"][who], message, note["signature"]):
            return None
        try:
            secret = opened(self.terms, "welcome", (who, self.given.me), lock, note["box"], SECRET)
        except IntegrityError:
            return None
        return secret if rule_digest(self.given.run, self.epoch.number, secret) == self.epoch.digest else None

    def _label(self, source: str, target: str, box: bytes) -> bytes:
        return self.terms.label("give", source, target, box, self.epoch.bound, self.epoch.digest)

    def _each(self, boxes: list[bytes]) -> zip[tuple[str, bytes]]:
        return zip(self.given.roster, boxes, strict=True)


def liars(epoch: Epoch) -> int:
    """How many of those who agreed on an epoch may lie to a newcomer without being believed."""
    return (len(epoch.roster) - 1) // 3


def welcome(epoch: Epoch, newcomers: tuple[str, ...], faulty: int | None = None) -> AgreementForm:
    """Holders who tell newcomers an epoch's secret, as a form of agreement; call it with `invitation`.

    `faulty` is how many holders may lie; fewer than a third if it is not given. It is a third of all whom the epoch
    names, also where some have left: the liars may be among those who stay. Raises: SpecError when nobody is new.
    """
    most = liars(epoch) if faulty is None else faulty
    if not newcomers or set(newcomers) & set(epoch.roster):
        raise SpecError(f"newcomers = {newcomers}: name at least one, and nobody who agreed on epoch {epoch.number}")
    if not 0 <= most < len(epoch.roster):
        raise SpecError(f"faulty = {most}: of {len(epoch.roster)} holders 0 to {len(epoch.roster) - 1} may be")

    def client(call: AgreementCall) -> Party:
        def flow(given: Given, memory: Memory, coins: Coins) -> Flow:
            terms = Terms.of(given, call.start, call.last)
            side = _Side(given, terms, memory["keys"], coins, Standing.of(memory), epoch, most)
            after: Memory = yield from ended(side)
            return after

        return flow

    def relay(given: Given, memory: Memory, coins: Coins) -> Flow:
        holders = tuple(who for who in epoch.roster if who in given.roster)
        yield from pass_on(ASK, given, newcomers, holders)
        yield from pass_on(GIVE, given, holders, newcomers)
        return memory

    def schemas(call: AgreementCall) -> Mapping[str, Schema]:
        return {kind: schema for turn in (ASK, GIVE) for kind, schema in turn.schemas(call.roster).items()}

    return AgreementForm("welcome", client, lambda _: relay, schemas)


def invitation(
    run: bytes, epoch: Epoch, newcomers: tuple[str, ...], holders: tuple[str, ...] | None = None
) -> AgreementCall:
    """The call that holders and newcomers answer; nothing is voted on, so that two are enough.

    `holders` are those of the epoch's roster who are still there; everybody unless given.
    """
    roster = tuple(sorted((*(epoch.roster if holders is None else holders), *newcomers)))
    return AgreementCall(run, epoch.number, epoch.start, roster, last=epoch.last, least=2)
