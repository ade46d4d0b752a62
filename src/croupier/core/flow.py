"""Parties without IO: a generator yields what it sends and waits for, or asks for work, and returns its next memory.

A party that does no IO can be run in one process, in many or as a service, replayed and tested, and is the same code. A
`Seat` holds one party's generator, its mailbox and its view. Drivers differ only in how letters and work travel between
seats: `engine.local` seats all parties in one process, `service.party` one in each. Placements (`place`) and agreements
(`agree`) are written as such generators.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from torch import Tensor

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.update import Layout
from croupier.core.view import Kept, View
from croupier.errors import CroupierError, ProtocolError, TooFew

Body = Mapping[str, Tensor]
Memory = Mapping[str, Any]


@dataclass(frozen=True)
class Letter:
    """What a party sends: to whom, what kind, and the arrays of its body (bare bytes only from the dishonest)."""

    target: str
    kind: str
    # Bodies hold what a party may not show: they are kept out of every print.
    body: Body | bytes = field(repr=False)


@dataclass(frozen=True)
class Received:
    """What a party got."""

    source: str
    kind: str
    body: Body = field(repr=False)


Inbox = tuple[Received, ...]


@dataclass(frozen=True)
class Wait:
    """One message of this kind from each source; after long enough `quorum` of them will do (all where it is None).

    `patience` says how long that is. In services it counts the roster's phases; in one process, where no time passes,
    the least patient go on first when nothing else can move.
    """

    kind: str
    sources: tuple[str, ...]
    quorum: int | None = None
    patience: int = 1

    @property
    def least(self) -> int:
        """How many messages the party can go on with."""
        return len(self.sources) if self.quorum is None else self.quorum


@dataclass(frozen=True)
class Exchange:
    """Send, then wait."""

    send: tuple[Letter, ...] = ()
    wait: Wait | None = None


# What is left of an exchange that waits for nothing, once its letters are on their way: to go on at once.
_NOTHING_LEFT = Exchange()


@dataclass(frozen=True)
class Work:
    """Work by name, which the driver does, alone or batched with others of the same name: `engine.work` has it.

    Most is pure (`permute`) or gives the same again (`fit`); `spend` writes a release into a client's ledger.
    """

    name: str
    args: tuple[Any, ...]


# What a party yields. A whole party returns its next memory, a part of one (`yield from`) whatever its caller wants.
Ask = Exchange | Work
Flow = Generator[Ask, Any, Memory]
SubFlow = Generator[Ask, Any, Any]


@dataclass(frozen=True)
class Given:
    """What a party is told before a round: public facts, and the digest of its own data, never the data.

    `roster` is the invited cohort; `participation` counts the updates this client has made before; `quorum` is how many
    clients a round needs; `shard` is the digest of the client's data; `inputs` is the shape of a record, where records
    are numbers.
    """

    me: str
    run: bytes
    round: int
    attempt: int
    roster: tuple[str, ...]
    quorum: int
    layout: Layout
    shard: str = ""
    participation: int = 0
    inputs: tuple[int, ...] = ()


_digested = lru_cache(maxsize=64)(canon.digest)
# The roster that was asked for last, held so that no other can take its place in memory, and its digest.
_last_roster: tuple[tuple[str, ...], bytes] = ((), canon.digest(()))


def roster_digest(roster: tuple[str, ...]) -> bytes:
    """The digest of a cohort: headers, signatures and labels of coins hold it, and so are good for that cohort only.

    All clients of a round ask for that of one tuple, which is known by identity: to hash or to compare it would take
    each of them as long as there are clients.
    """
    global _last_roster
    held, digest = _last_roster
    if held is not roster:
        digest = _digested(roster)
        _last_roster = roster, digest
    return digest


Party = Callable[[Given, Memory, Coins], Flow]
# How a dishonest party rewrites what it is about to send, from all that it has seen.
Change = Callable[[tuple[Letter, ...], View], tuple[Letter, ...]]


@dataclass(frozen=True)
class Refusal:
    """A message or an update that was turned away at a door: whose, where, and why."""

    source: str
    at: str
    why: str


@dataclass(frozen=True)
class Outcome:
    """How a party ended: with its next memory, or with an error."""

    memory: Memory | None
    error: CroupierError | None = None


@dataclass
class Seat:
    """One party in one attempt of one round: its generator, the letters that reached it, and its view."""

    name: str
    flow: Flow
    view: View
    ask: Ask | None = None
    outcome: Outcome | None = None
    box: dict[tuple[str, str], Received] = field(default_factory=dict)
    heard: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def take(cls, party: Party, given: Given, memory: Memory, coins: Coins, keep: Kept) -> Seat:
        """Seat a party and run it up to its first ask."""
        view = View(given.me, given, dict(memory), coins, keep)
        seat = cls(given.me, party(given, memory, coins), view)
        seat._step(seat.flow.send, None)
        return seat

    def post(self) -> tuple[Letter, ...]:
        """The letters of the current exchange, handed out once."""
        ask = self.ask
        if not isinstance(ask, Exchange) or not ask.send:
            return ()
        self.ask = _NOTHING_LEFT if ask.wait is None else Exchange((), ask.wait)
        return ask.send

    def deliver(self, letter: Received) -> None:
        """Put a letter into the mailbox. Raises: ProtocolError when this source has sent that kind before.

        A party sends a kind once to each target in an attempt; a protocol with several turns names each of them.
        """
        key = (letter.kind, letter.source)
        if key in self.heard:
            raise ProtocolError(f"{letter.source} sent a second {letter.kind!r}")
        self.heard.add(key)
        self.box[key] = letter

    @property
    def wait(self) -> Wait | None:
        """What the party waits for, if it does."""
        return self.ask.wait if isinstance(self.ask, Exchange) else None

    def absent(self) -> tuple[str, ...]:
        """The sources that it still waits for."""
        wait = self.wait
        return tuple(s for s in wait.sources if (wait.kind, s) not in self.box) if wait else ()

    def can_go(self, short: bool = False) -> bool:
        """Whether the exchange can end: with everything, or (`short`) with a quorum."""
        if not isinstance(self.ask, Exchange) or self.ask.send:
            return False
        wait = self.ask.wait
        return (
            wait is None or not (missing := self.absent()) or (short and len(wait.sources) - len(missing) >= wait.least)
        )

    def go(self) -> None:
        """Hand the party its inbox, in the order of its sources."""
        wait = self.wait
        found = [self.box.pop((wait.kind, source), None) for source in wait.sources] if wait else []
        inbox = tuple([letter for letter in found if letter is not None])
        self.view.record(inbox)
        self._step(self.flow.send, inbox)

    def finish(self, result: Any) -> None:
        """Hand the party the result of its work."""
        self.view.record(result)
        self._step(self.flow.send, result)

    def fail(self, error: CroupierError) -> None:
        """Tell the party that what it asked for cannot be had; it may end or raise its own error."""
        self._step(self.flow.throw, error)

    def give_up(self) -> None:
        """End the wait below its quorum."""
        missing = self.absent()
        wait = self.wait
        here = len(wait.sources) - len(missing) if wait else 0
        least = wait.least if wait else 0
        names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        self.fail(
            TooFew(
                f"{self.name}: {here} of the {least} needed sent {wait and wait.kind!r}; missing {names}",
                missing,
            )
        )

    def _step(self, move: Callable[[Any], Ask], value: Any) -> None:
        try:
            self.ask = move(value)
        except StopIteration as stop:
            self.ask, self.outcome = None, Outcome(stop.value)
        except CroupierError as error:
            self.ask, self.outcome = None, Outcome(None, error)


def corrupt(party: Party, change: Change) -> Party:
    """The same party, with what it sends rewritten by `change(letters, view)`; for attacks and tests."""

    def corrupted(given: Given, memory: Memory, coins: Coins) -> Flow:
        flow = party(given, memory, coins)
        view = View(given.me, given, dict(memory), coins, "keep")
        move: Callable[[Any], Ask] = flow.send
        answer: Any = None
        while True:
            try:
                ask = move(answer)
            except StopIteration as stop:
                return dict(stop.value)
            if isinstance(ask, Exchange) and ask.send:
                ask = replace(ask, send=change(ask.send, view))
            try:
                move, answer = flow.send, (yield ask)
            except CroupierError as error:
                # What it asked for cannot be had: the party decides what follows, as it does when it is honest.
                move, answer = flow.throw, error
            else:
                view.record(answer)

    return corrupted


@dataclass(frozen=True)
class Coalition:
    """A rushing adversary: its members send last, after seeing what honest parties sent them, and decide together."""

    members: frozenset[str]
    change: Callable[[Mapping[str, tuple[Letter, ...]], Mapping[str, View]], Mapping[str, tuple[Letter, ...]]]
