"""Two parties that send each other bytes, turn by turn, without IO.

A party yields what it sends in a turn and is handed what the other sent in that same turn; a turn in which it has
nothing to say is an empty message.

Two-party code whose other surroundings do not matter is written as such a talk (`translate`, `convert`, `onion`,
`transfer`, `correlate`), so that `converse` alone can run it, as tests and `croupier bench shuffles` do. In a round
`turns` makes letters of a talk, which is then a sub-flow like any other (`core.flow`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

from croupier.errors import ProtocolError

S = TypeVar("S")
T = TypeVar("T")
Talk = Generator[bytes, bytes, T]


@dataclass(frozen=True)
class Talked(Generic[S, T]):
    """How a talk ended: what each of the two has now, and the messages of each, turn by turn."""

    one: S
    two: T
    from_one: tuple[bytes, ...]
    from_two: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes in both directions, without headers."""
        return sum(map(len, self.from_one + self.from_two))


def converse(one: Talk[S], two: Talk[T]) -> Talked[S, T]:
    """Let two parties talk to the end. Raises: ProtocolError when one of them ends before the other."""
    said: tuple[list[bytes], list[bytes]] = ([], [])
    left, right = next(one), next(two)
    while True:
        said[0].append(left)
        said[1].append(right)
        first, second = _answered(one, right), _answered(two, left)
        if isinstance(first, _End) and isinstance(second, _End):
            return Talked(first.value, second.value, tuple(said[0]), tuple(said[1]))
        if isinstance(first, _End) or isinstance(second, _End):
            raise ProtocolError(f"after {len(said[0])} turns one party ended and the other has more to say")
        left, right = first, second


@dataclass(frozen=True)
class _End(Generic[T]):
    value: T


def _answered(party: Talk[T], message: bytes) -> bytes | _End[T]:
    try:
        return party.send(message)
    except StopIteration as stop:
        return _End(stop.value)
