"""One attempt of one round as values: what a driver is handed, and what it hands back.

The round loop (`engine.loop`) fills an `Attempt` in and reads an `AttemptResult`; whatever drives parties in between
(`engine.local` in one process, the laws' driver in many) sees nothing else of a run. Clients' agreements (`agree`) are
driven by the same values. A `MessageJournal` (`engine.journal`) lasts over all attempts of a run directory, and is
asked before each message of a round leaves. Services take `AttemptId` and `WorkByName` from here, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.envelope import Envelope
from croupier.core.flow import Coalition, Given, Memory, Outcome, Party, Refusal
from croupier.core.view import Kept, View
from croupier.core.wire import Schema

# Work by name: a list of argument tuples in, a result or an error for each out.
WorkByName = Mapping[str, Callable[[Sequence[tuple[Any, ...]]], Sequence[Any]]]


@dataclass(frozen=True)
class AttemptId:
    """What every header of an attempt shares.

    `binds` is a digest of what else the attempt rests on: the invited cohort and, in a deployment, the signed notice
    that opened it. A header carries it together with the protocol's digest, so that a message made for another cohort
    is a message of another attempt.
    """

    spec: bytes
    run: bytes
    round: int
    attempt: int
    binds: bytes = b""

    @cached_property
    def header_spec(self) -> bytes:
        """The 32 bytes by which a header names the protocol and all that the attempt rests on."""
        return canon.digest((self.spec, self.binds)) if self.binds else self.spec


class MessageJournal(Protocol):
    """What is on disk before anything leaves, so that no one-time secret ever covers two messages.

    A driver that has one shows it every message first. It keeps digests; a message that differs from one that left
    under the same attempt, between the same parties and of the same kind is refused.
    """

    def leave(self, attempt_id: AttemptId, envelopes: Sequence[Envelope]) -> None:
        """Write down messages that are about to leave. Raises: Replayed, and then none of them may leave."""

    def release(self, client: str, event: Mapping[str, Any]) -> None:
        """Write down a release that is about to leave; one that is sent again is written down already."""


@dataclass
class Traffic:
    """Bytes of the encoded messages, header included, by party."""

    sent: Counter[str] = field(default_factory=Counter)
    got: Counter[str] = field(default_factory=Counter)
    messages: int = 0

    def count(self, envelope: Envelope) -> None:
        """Take down one message."""
        head, size = envelope.header, envelope.size
        # `+=` on a Counter calls a method for each name that it does not have yet; `get` is quicker.
        self.sent[head.source] = self.sent.get(head.source, 0) + size
        self.got[head.target] = self.got.get(head.target, 0) + size
        self.messages += 1

    def add(self, other: Traffic) -> None:
        """Take down what was counted elsewhere."""
        self.sent.update(other.sent)
        self.got.update(other.got)
        self.messages += other.messages


@dataclass(frozen=True)
class Attempt:
    """One attempt of one round: the parties by name, what each is given, and which of them misbehave.

    `schemas` are the kinds of message that there are, and `bench` is the work that parties may ask for. `absent`
    parties send nothing; those of a `coalition` have their letters rewritten. `keep` says how much of whose view is
    kept.
    """

    attempt_id: AttemptId
    parties: Mapping[str, Party]
    givens: Mapping[str, Given]
    memories: Mapping[str, Memory] = field(repr=False)
    coins: Mapping[str, Coins]
    schemas: Mapping[str, Schema]
    bench: WorkByName
    absent: frozenset[str] = frozenset()
    coalition: Coalition | None = None
    keep: Mapping[str, Kept] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended."""

    outcomes: Mapping[str, Outcome]
    views: Mapping[str, View]
    refusals: tuple[Refusal, ...]
    traffic: Traffic


Drive = Callable[[Attempt], AttemptResult]
