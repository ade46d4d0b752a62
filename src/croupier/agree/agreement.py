"""Calling an agreement: who is to agree, attempts that draw afresh, and what each client is left with.

Attempts of a number go on while nobody signed an outcome; after that the number is spent, because somebody may hold it.

`commit_reveal`, `pbft` and `welcome` are forms of it. What makes a retry safe is what clients keep of failed attempts
(`standing`), and that every ending, an abort too, hands its memory on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from croupier.agree.board import SERVER
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.attempt import Attempt, AttemptId, AttemptResult, Drive, Traffic
from croupier.core.coins import Coins
from croupier.core.epoch import Epoch
from croupier.core.flow import Given, Party, SubFlow, roster_digest
from croupier.core.update import Layout
from croupier.core.view import Kept
from croupier.core.wire import Schema
from croupier.errors import CroupierError, ProtocolError, SpecError
from croupier.mpc.joint import Terms
from croupier.mpc.occasion import Occasion
from croupier.mpc.signatures import signed, verified

LEAST = 4


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
        """What everything that is signed names."""
        occasion = Occasion(self.run, self.number, self.attempt, roster_digest(self.roster))
        return Terms(occasion, self.start, self.last)

    @property
    def faulty(self) -> int:
        """The most faulty clients that the rest can outvote."""
        return (len(self.roster) - 1) // 3

    def given(self, name: str) -> Given:
        """What a party is told; the number takes the place of a round's."""
        return Given(name, self.run, self.number, self.attempt, self.roster, len(self.roster), Layout(()))

    def again(self, standings: Mapping[str, Standing]) -> AgreementCall:
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


@dataclass(frozen=True)
class AgreementTable:
    """What an agreement is held with: pinned keys, coins, a driver, what clients kept; and `tamper`, who misbehaves."""

    keys: Mapping[str, Mapping[str, Any]] = field(repr=False)
    coins: Coins
    drive: Drive
    standings: Mapping[str, Standing] = field(default_factory=dict)
    tamper: Callable[[Attempt], Attempt] = lambda attempt: attempt
    keep: Kept = "nothing"

    def attempt(self, form: AgreementForm, call: AgreementCall) -> Attempt:
        """One attempt. What anybody draws in it is drawn in no other."""
        client, kinds = form.client(call), form.schemas(call)
        parties: dict[str, Party] = {**dict.fromkeys(call.roster, client), SERVER: form.relay(call)}
        memories = {
            name: {"keys": self.keys[name], "standing": self.standings.get(name, Standing()).plain()}
            for name in call.roster
        }
        spec = canon.digest(("croupier/1", form.name, call.start, call.roster))
        attempt_id = AttemptId(spec, call.run, call.number, call.attempt)
        return Attempt(
            attempt_id, parties, {name: call.given(name) for name in parties}, memories,
            {name: self._coins(name, form, call) for name in parties}, kinds, {},
            keep=dict.fromkeys(parties, self.keep),
        )  # fmt: skip

    def _coins(self, name: str, form: AgreementForm, call: AgreementCall) -> Coins:
        node = self.coins.child("party", name).child("run", call.run, "agree", call.number, "attempt", call.attempt)
        node = node.child(form.name, "start", call.start, "roster", roster_digest(call.roster))
        node.export()  # derived now, so that a party's coins hold no way up to the others'
        return node


class Participant(Protocol):
    """A client in one attempt: its flow, what it kept, and whom it blames when the flow ends early."""

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

    A relay that keeps somebody's notes back makes everybody complain about it: it can shut out, and never let in.
    """
    counts: dict[str, set[str]] = {}
    for who, said in complaints.items():
        for accused, signature in said.items():
            if who != accused and verified(public[who], terms.label("complaint", who, accused), signature):
                counts.setdefault(accused, set()).add(who)
    return frozenset(accused for accused, by in counts.items() if len(by) > faulty)


@dataclass(frozen=True)
class AgreementAttempt:
    """How one attempt ended for each client: with a standing that holds the epoch, or with a named abort."""

    call: AgreementCall
    result: AttemptResult
    standings: Mapping[str, Standing]
    aborts: Mapping[str, str]
    complaints: Mapping[str, Mapping[str, bytes]] = field(repr=False)

    @classmethod
    def of(cls, call: AgreementCall, result: AttemptResult) -> AgreementAttempt:
        """Read the clients' memories; one that broke off for a reason of its own counts as an abort too."""
        done = {name: result.outcomes[name] for name in call.roster if name in result.outcomes}
        memories = {name: outcome.memory for name, outcome in done.items() if outcome.memory is not None}
        broken = {name: str(outcome.error) for name, outcome in done.items() if outcome.memory is None}
        aborts = {name: str(memory["abort"]) for name, memory in memories.items() if memory["abort"]}
        return cls(
            call, result, {name: Standing.of(memory) for name, memory in memories.items()}, {**broken, **aborts},
            {name: memory["complaints"] for name, memory in memories.items()},
        )  # fmt: skip

    @property
    def held(self) -> dict[str, Standing]:
        """Those whom this attempt gave the epoch."""
        return {
            name: standing
            for name, standing in self.standings.items()
            if name not in self.aborts and standing.epoch is not None and standing.epoch.number == self.call.number
        }


@dataclass(frozen=True)
class Agreed:
    """An epoch, each client's secret and standing, and what it took."""

    epoch: Epoch
    secrets: Mapping[str, bytes] = field(repr=False)
    standings: Mapping[str, Standing] = field(repr=False)
    traffic: tuple[Traffic, ...]


def tries(form: AgreementForm, call: AgreementCall, table: AgreementTable, attempts: int) -> Iterator[AgreementAttempt]:
    """Attempt after attempt, each with what clients kept of those before."""
    standings = dict(table.standings)
    for left in reversed(range(attempts)):
        now = replace(table, standings=standings)
        tried = AgreementAttempt.of(call, table.drive(table.tamper(now.attempt(form, call))))
        yield tried
        standings |= tried.standings
        call = call.again(standings) if left else call


def settle(form: AgreementForm, call: AgreementCall, table: AgreementTable, *, attempts: int = 3) -> Agreed:
    """What everybody of the roster agrees on. Raises: ProtocolError when no attempt ended in an agreement of all."""
    traffic: list[Traffic] = []
    for tried in tries(form, call, table, attempts):
        traffic.append(tried.result.traffic)
        held = tried.held
        if len(held) == len(call.roster):
            (epoch,) = {standing.epoch for standing in held.values() if standing.epoch is not None}
            secrets = {name: standing.secret for name, standing in held.items()}
            return Agreed(epoch, secrets, held, tuple(traffic))
    raise ProtocolError(why(tried, table, attempts))


def why(tried: AgreementAttempt, table: AgreementTable, attempts: int) -> str:
    """The last attempt's reasons, and who may be left out."""
    call, public = tried.call, next(iter(table.keys.values()))["public"]
    out = removable(call.terms, tried.complaints, public, call.faulty)
    remedy = f"leave out {', '.join(sorted(out))}" if out else "find out which client or relay misbehaves"
    first = next(iter(tried.aborts.values()), "a client did not come")
    return (
        f"no agreement among {len(call.roster)} clients in {attempts} attempts. {first}. "
        f"{remedy[:1].upper()}{remedy[1:]}, and agree under number {call.number + 1}"
    )
