"""Plays a talk (`mpc.talk`: two parties send each other bytes, turn by turn) as letters of a round.

The wire (`core.wire`) knows no free-form bytes: every letter has a kind and a length that both sides know before it
comes. Here what each party says in each turn of `translate`, `convert`, `correlate` and `onion` gets such a kind and
length. `place.two_servers.shuffles` lists the turns of each, `place.two_servers.shuffle_flows` plays them, and
`place.two_servers.pooled` finds the letters in servers' views, for audits.
"""

from __future__ import annotations

from typing import TypeVar

from croupier.core.flow import Exchange, Letter, SubFlow, Wait
from croupier.core.wire import Field, Schema
from croupier.errors import ProtocolError
from croupier.mpc.authentic import byte_tensor, bytes_of
from croupier.mpc.ring import kind
from croupier.mpc.talk import Talk

T = TypeVar("T")
# Bytes that party 0 and party 1 say in each turn; who says nothing sends no letter.
Turns = tuple[tuple[int, int], ...]


def flow(me: int, peer: str, prefix: str, talk: Talk[T], turns: Turns) -> SubFlow:
    """Play the talk of party `me` (0 or 1), and return what the talk returns; `prefix` begins its letters' kinds.

    Raises: ProtocolError when it takes more or fewer turns than these, or says more or fewer bytes in one.
    """
    said = next(talk)
    for number, sizes in enumerate(turns):
        if len(said) != sizes[me]:
            raise ProtocolError(f"turn {number} of {prefix!r} has {len(said)} bytes, and {sizes[me]} were to be said")
        letters = (Letter(peer, kind_of(prefix, number, me), {"data": byte_tensor(said)}),) if sizes[me] else ()
        wait = Wait(kind_of(prefix, number, 1 - me), (peer,)) if sizes[1 - me] else None
        inbox = yield Exchange(letters, wait)
        try:
            said = talk.send(bytes_of(inbox[0].body["data"]) if inbox else b"")
        except StopIteration as stop:
            if number + 1 < len(turns):
                raise ProtocolError(f"{prefix!r} ended after {number + 1} of {len(turns)} turns") from None
            return stop.value
    raise ProtocolError(f"{prefix!r} goes on after its {len(turns)} turns")


def schemas(prefix: str, turns: Turns) -> dict[str, Schema]:
    """The letters of `flow`."""
    return {
        kind_of(prefix, number, me): Schema((Field("data", "|u1", (size,)),))
        for number, sizes in enumerate(turns)
        for me, size in enumerate(sizes)
        if size
    }


def kind_of(prefix: str, number: int, me: int) -> str:
    """The kind of what a party says in a turn."""
    return kind(f"{prefix}{number}", me)
