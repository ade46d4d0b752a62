"""What a party saw in one round, and a test that it is all of it: replaying a view gives what the party sent.

A privacy claim is about views: what the server saw, and nothing else. Because a view replays to exactly what its party
sent, nothing that influenced the party can be missing from it; the law *replay* tests this for every pipeline. Every
`core.flow.Seat` records one. Audits hand kept views to attacks as plain values (`facts`), and `engine.job` and services
(`service.views`) write such values to files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from croupier.core import canon
from croupier.core.coins import Coins
from croupier.errors import IntegrityError, ProtocolError

if TYPE_CHECKING:
    from croupier.core.flow import Given, Letter, Memory, Party

# How much of a view is kept: see `View`.
Kept = Literal["nothing", "digest", "keep"]


@dataclass
class View:
    """One round of one party: what it was given, its memory and coins, and every input that reached it.

    `kept` says how much is held: nothing, a digest that a regenerated view can be checked against, or the inputs.
    """

    party: str
    given: Given
    memory: Mapping[str, Any] = field(repr=False)
    coins: Coins
    kept: Kept = "keep"
    inputs: list[Any] = field(default_factory=list, repr=False)
    seal: bytes = b""

    def record(self, value: Any) -> None:
        """Take down one input: an inbox or the result of work."""
        if self.kept == "keep":
            self.inputs.append(value)
        if self.kept != "nothing":
            self.seal = hashlib.sha256(self.seal + canon.digest(value)).digest()

    def digest(self) -> bytes:
        """What binds the view: given, memory and every input. Raises: ProtocolError when nothing was taken down."""
        if self.kept == "nothing":
            raise ProtocolError(f"no view of {self.party} was taken down; ask for views or digests")
        return canon.digest((self.party, self.given, dict(self.memory), self.seal))


def facts(view: View) -> dict[str, Any]:
    """What a kept view holds of the round, as plain values: what an attack gets, and what a file of views stores.

    The party's memory and coins stay out: the coins are its own secret, and neither is an input of this round.
    """
    return {"party": view.party, "given": _plain(view.given), "inputs": _plain(view.inputs)}


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return tuple(_plain(item) for item in value) if isinstance(value, list | tuple) else value


def replay(party: Party, view: View) -> tuple[list[Letter], Memory]:
    """Run a party again on its view alone: what it sent and its next memory, byte for byte.

    Raises: IntegrityError when the party asks for more than the view holds: then it had another source, or its driver
    told it to give up, which no view records. ProtocolError when the view holds no inputs.
    """
    if view.kept != "keep":
        raise ProtocolError(f"the view of {view.party} holds no inputs; keep it to replay it")
    flow, inputs, sent = party(view.given, view.memory, view.coins), iter(view.inputs), list["Letter"]()
    answer: Any = None
    while True:
        try:
            ask = flow.send(answer)
        except StopIteration as stop:
            return sent, stop.value
        sent += getattr(ask, "send", ())
        try:
            answer = next(inputs)
        except StopIteration:
            raise IntegrityError(f"{view.party} asked for more than its view holds") from None
