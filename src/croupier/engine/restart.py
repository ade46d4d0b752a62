"""A round that is played anew: under a new attempt and fresh participations, with what left before still counted.

`croupier run --resume DIR --anew` asks for it. One-time secrets that covered a message are spent, and so is the privacy
of a release that left: attempts and participations are raised, and old releases stay in their ledgers. `engine.journal`
makes a `Restart` and keeps it on disk, and `engine.loop` plays by it. `with_events` also serves `engine.work` and
`service.party`, which write releases into a client's ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from croupier.core.flow import Memory
from croupier.privacy.ledger import Event, Ledger


@dataclass(frozen=True)
class Restart:
    """Where a run goes on anew, and what had left by then.

    `attempts` is the first attempt number of each round that is played again: no earlier one may be used, because its
    secrets covered messages. `participations` is how many updates each client had sent since, so that nothing drawn for
    one of them is drawn again; `ledgers` is what they had released.
    """

    round: int
    attempts: Mapping[int, int] = field(default_factory=dict)
    participations: Mapping[str, int] = field(default_factory=dict)
    ledgers: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Self:
        """From plain values."""
        return cls(
            plain["round"],
            {int(number): attempt for number, attempt in plain["attempts"].items()},
            plain["participations"],
            {name: tuple(events) for name, events in plain["ledgers"].items()},
        )

    def plain(self) -> dict[str, Any]:
        """As plain values, for a line of a journal."""
        return {
            "round": self.round,
            "attempts": {str(number): attempt for number, attempt in self.attempts.items()},
            "participations": dict(self.participations),
            "ledgers": {name: list(events) for name, events in self.ledgers.items()},
        }

    def counted(self, participations: Mapping[str, int]) -> dict[str, int]:
        """How many updates each client has made, with those that left before the restart."""
        return {
            name: participations.get(name, 0) + self.participations.get(name, 0)
            for name in sorted({*participations, *self.participations})
        }

    def remembered(self, memories: Mapping[str, Memory]) -> dict[str, Memory]:
        """Everybody's memory, with what was released before the restart."""
        return {
            **memories,
            **{name: with_events(memories.get(name, {}), events) for name, events in self.ledgers.items()},
        }


def with_events(memory: Memory, events: Iterable[Mapping[str, Any]]) -> Memory:
    """A client's memory, with these releases in its ledger."""
    whole = Ledger.read(memory.get("ledger", ()))
    for event in events:
        whole = whole.add(Event(**event))
    return {**memory, "ledger": whole.plain()}


def in_force(restarts: Sequence[Restart]) -> tuple[Restart, ...]:
    """The restarts that still count.

    One from a round replaces those before it from the same or a later round: its numbers include theirs.
    """
    kept: list[Restart] = []
    for restart in restarts:
        kept = [one for one in kept if one.round < restart.round]
        kept.append(restart)
    return tuple(kept)
