"""Calling an agreement: who is to agree, under which number, in which form, and who may be left out of the next.

Agreements of a run are numbered, and so are the attempts at each. Attempts go on under the agreement's number while
nobody signed an outcome; after that the number is spent, because somebody may hold that outcome. What is called is
public; outcomes and complaints are signed with the clients' own keys.

Whoever conducts agreements makes calls (`one_epoch`, `each_round`), each party's seat answers them (`seats`, and
`bench.agreement.table` in the laboratory), and every form of agreement is an `AgreementForm` (`commit_reveal`,
`pbft.agreement`, `welcome`). `service.guard` and `encode.hidden` take `LEAST` from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from croupier.agree.board import SERVER
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Given, Party, SubFlow, roster_digest
from croupier.core.update import Layout
from croupier.core.wire import Schema
from croupier.errors import CroupierError, SpecError
from croupier.mpc.joint import Terms
from croupier.mpc.occasion import Occasion
from croupier.mpc.signatures import signed, verified

# Fewer clients agree on nothing: with f = (n - 1) // 3, three could not outvote a single faulty one.
LEAST = 4


class Signer(Protocol):
    """Whoever may have signed an outcome: all that the next attempt must know of it."""

    @property
    def signed(self) -> int:
        """The highest number that it signed for."""


@dataclass(frozen=True)
class AgreementCall:
    """An agreement that is called: in which run, under what number, for which rounds, among whom.

    Either for an epoch, which lasts until the next; or for a single round, whose number it then has, so that a round
    has one outcome as a number has. Everybody must know the roster of a number from elsewhere than the relay: two
    groups that know nothing of each other agree on two outcomes.
    """

    run: bytes
    number: int
    start: int
    roster: tuple[str, ...]
    attempt: int = 0
    last: int | None = None
    least: int = LEAST

    @classmethod
    def single(cls, run: bytes, number: int, roster: tuple[str, ...]) -> AgreementCall:
        """An agreement of a round's participants, for that round."""
        return cls(run, number, number, roster, last=number)

    def __post_init__(self) -> None:
        if self.last is not None and not self.number == self.start == self.last:
            raise SpecError(
                f"number {self.number} for rounds {self.start} to {self.last}: an agreement is for an epoch without an "
                "end, or for the one round whose number it has"
            )
        if tuple(sorted(set(self.roster))) != self.roster:
            raise SpecError("the roster of an agreement names every client once, in order; sort it")
        if SERVER in self.roster:
            raise SpecError(f"a client may not be called {SERVER!r}: the relay is")
        if len(self.roster) < self.least:
            raise SpecError(
                f"{len(self.roster)} clients are to agree on a rule, and fewer than {self.least} are refused: among "
                "three no faulty one can be outvoted. Enrol more clients"
            )

    @property
    def terms(self) -> Terms:
        """The terms that everything signed in this attempt names."""
        occasion = Occasion(self.run, self.number, self.attempt, roster_digest(self.roster))
        return Terms(occasion, self.start, self.last)

    @property
    def faulty(self) -> int:
        """The most faulty clients that the rest can outvote."""
        return (len(self.roster) - 1) // 3

    def given(self, name: str) -> Given:
        """What a party is told; the number takes the place of a round's."""
        return Given(name, self.run, self.number, self.attempt, self.roster, len(self.roster), Layout(()))

    def again(self, standings: Mapping[str, Signer]) -> AgreementCall:
        """The next attempt: under the same number while no client of the roster signed an outcome for it.

        A single round whose number is spent is lost: the next round is agreed on.
        """
        if not any(standings[name].signed >= self.number for name in self.roster if name in standings):
            return replace(self, attempt=self.attempt + 1)
        if self.last is None:
            return replace(self, number=self.number + 1, attempt=0)
        after = self.number + 1
        return replace(self, number=after, start=after, last=after, attempt=0)


@dataclass(frozen=True)
class AgreementForm:
    """A way to agree: a client's flow, the relay's, and the messages between them."""

    name: str
    client: Callable[[AgreementCall], Party]
    relay: Callable[[AgreementCall], Party]
    schemas: Callable[[AgreementCall], Mapping[str, Schema]]

    def spec(self, call: AgreementCall) -> bytes:
        """The digest by which headers of an attempt name the protocol."""
        return canon.digest(("croupier/1", self.name, call.start, call.roster))

    def coins(self, root: Coins, name: str, call: AgreementCall) -> Coins:
        """A simulated party's coins. What anybody draws in an attempt is drawn in no other."""
        node = root.child("party", name).child("run", call.run, "agree", call.number, "attempt", call.attempt)
        node = node.child(self.name, "start", call.start, "roster", roster_digest(call.roster))
        node.export()  # derived now, so that a party's coins hold no way up to the others'
        return node


class Participant(Protocol):
    """A client in one attempt of any form: its flow, what it kept, and whom it blames when the flow ends early."""

    given: Given
    terms: Terms
    keys: Mapping[str, Any]
    standing: Standing
    blamed: frozenset[str]

    def play(self) -> SubFlow:
        """The epoch and its secret."""


def ended(player: Participant) -> SubFlow:
    """A client's next memory, always: an abort is an ending too, and what was signed before it must be kept."""
    try:
        epoch, secret = yield from player.play()
    except CroupierError as error:
        said = {who: complaint(player.terms, player.keys, player.given.me, who) for who in sorted(player.blamed)}
        return {"standing": player.standing.plain(), "abort": str(error), "complaints": said}
    return {"standing": player.standing.holds(epoch, secret).plain(), "abort": "", "complaints": {}}


def complaint(terms: Terms, keys: Mapping[str, Any], me: str, accused: str) -> bytes:
    """A participant's signed word that another did not do its part."""
    return signed(keys["identity"], terms.label("complaint", me, accused))


def removable(
    terms: Terms, complaints: Mapping[str, Mapping[str, bytes]], public: Mapping[str, bytes], faulty: int
) -> frozenset[str]:
    """Who may be left out of the next roster: whoever more than `faulty` participants complain about, with signatures.

    A relay that keeps a client's notes back makes everybody complain about that client: it can shut one out so, and
    never let one in.
    """
    counts: dict[str, set[str]] = {}
    for who, said in complaints.items():
        for accused, signature in said.items():
            if who != accused and verified(public[who], terms.label("complaint", who, accused), signature):
                counts.setdefault(accused, set()).add(who)
    return frozenset(accused for accused, by in counts.items() if len(by) > faulty)


def why(
    call: AgreementCall, complaints: Mapping[str, Mapping[str, bytes]], first: str, public: Mapping[str, bytes],
    attempts: int,
) -> str:  # fmt: skip
    """Why there is no agreement: one client's reason where it is known, and who may be left out."""
    out = removable(call.terms, complaints, public, call.faulty)
    remedy = f"leave out {', '.join(sorted(out))}" if out else "find out which client or relay misbehaves"
    return (
        f"no agreement among {len(call.roster)} clients in {attempts} attempts. {first or 'a client did not come'}. "
        f"{remedy[:1].upper()}{remedy[1:]}, and agree under number {call.number + 1}"
    )
