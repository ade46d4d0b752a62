"""The post of one attempt: letters become envelopes, are counted, and are checked at the receiver's door.

The door is here and not in each party, so that NaNs, wrong lengths, ranges and stale rounds are refused in one place,
for every placement. What is refused is counted and named, and its sender is then missing. The bytes in `metrics.jsonl`
are counted here. `engine.local` has one post for all parties. `service.seated` writes with one what its party
sends; what reaches a deployed party is checked by `service.door`. The laboratory's tamper benches change the `Packet`s
in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from croupier.core.attempt import AttemptId, Traffic
from croupier.core.coins import Coins
from croupier.core.envelope import Envelope, Header, Link, Pieces
from croupier.core.flow import Letter, Received, Refusal
from croupier.core.wire import Schema
from croupier.errors import CroupierError, WireError


@dataclass(frozen=True)
class Packet:
    """Sealed bytes on their way."""

    source: str
    target: str
    data: bytes | bytearray | memoryview


# Bytes from which on a copy of a body takes longer than to do without it.
_LONG = 1 << 12

Network = Callable[[list[Packet]], list[Packet]]


@dataclass(frozen=True)
class Parcel:
    """A message between seats: the envelope that was counted and, where it need not travel as bytes, its arrays."""

    envelope: Envelope
    body: Mapping[str, Tensor] | None = field(repr=False)


@dataclass(frozen=True)
class _Last:
    """The message before this one. Arrays are compared by identity, and held here so that none can take their place."""

    kind: str
    body: Mapping[str, Tensor]
    data: bytes | Pieces

    def same(self, kind: str, body: Mapping[str, Tensor]) -> bool:
        if kind != self.kind or len(body) != len(self.body):
            return False
        for name, values in body.items():  # noqa: SIM110 - every message comes here, and a generator costs more
            if self.body.get(name) is not values:
                return False
        return True


class Post:
    """Encoding, counting and the door. Each process that seats parties has one for each attempt."""

    def __init__(self, attempt_id: AttemptId, schemas: Mapping[str, Schema], links: Coins | None) -> None:
        self.attempt_id, self.schemas, self._coins = attempt_id, schemas, links
        self.traffic = Traffic()
        self.refusals: list[Refusal] = []
        self._sequence: dict[str, int] = {}
        self._links: dict[tuple[str, str], Link] = {}
        # One model goes to many clients: it is encoded once and checked once.
        self._packed = _Last("", {}, b"")
        # The encoded body stands for its arrays: only the very same ones are given it again.
        self._passed: tuple[str, object] = ("", None)

    def write(self, source: str, letter: Letter) -> Parcel:
        """Put a letter into an envelope and count it."""
        body = self._encoded(letter)
        attempt_id, number = self.attempt_id, self._sequence.get(source, 0)
        header = Header(
            attempt_id.header_spec, attempt_id.run, attempt_id.round, attempt_id.attempt, letter.kind, source,
            letter.target, number, len(body),
        )  # fmt: skip
        self._sequence[source] = number + 1
        header.check_names()  # a name that no header can carry is the sender's fault, and found here
        parcel = Parcel(Envelope(header, body), None if isinstance(letter.body, bytes) else letter.body)
        self.traffic.count(parcel.envelope)
        return parcel

    def seal(self, parcel: Parcel) -> list[Packet]:
        """The sealed packets of an envelope."""
        head = parcel.envelope.header
        packets = self._link(head.source, head.target).seal(parcel.envelope)
        return [Packet(head.source, head.target, data) for data in packets]

    def open(self, packet: Packet) -> Parcel | None:
        """A whole message, when this packet completes one; what is wrong with it is taken down as a refusal."""
        try:
            envelope = self._link(packet.source, packet.target).open(packet.data)
        except CroupierError as error:
            self._refuse(packet.source, packet.target, error)
            return None
        return None if envelope is None else Parcel(envelope, None)

    def admit(self, parcel: Parcel) -> Received | None:
        """The door: hand on what is exactly the message it should be, and refuse the rest by name."""
        head = parcel.envelope.header
        try:
            if (head.spec, head.run, head.round, head.attempt) != (
                self.attempt_id.header_spec, self.attempt_id.run, self.attempt_id.round, self.attempt_id.attempt,
            ):  # fmt: skip
                raise WireError("a message of another protocol, run, round or attempt")
            schema = self.schemas.get(head.kind)
            if schema is None:
                raise WireError(f"a message of unknown kind {head.kind!r}")
            if parcel.body is None:
                return Received(head.source, head.kind, schema.unpack(parcel.envelope.joined))
            passed = head.kind, parcel.envelope.body
            if self._passed[1] is not passed[1] or self._passed[0] != passed[0]:
                schema.check(parcel.body)
                self._passed = passed
            return Received(head.source, head.kind, parcel.body)
        except CroupierError as error:
            self._refuse(head.source, head.target, error)
            return None

    def _encoded(self, letter: Letter) -> bytes | Pieces:
        schema = self.schemas.get(letter.kind)
        if schema is None:
            raise WireError(f"a message of unknown kind {letter.kind!r}")
        if isinstance(letter.body, bytes):
            return letter.body
        if not self._packed.same(letter.kind, letter.body):
            parts = schema.pieces(letter.body)
            # A long body stays where it lies: it is digested and sealed from there, before any party goes on.
            long = sum(map(len, parts)) >= _LONG
            self._packed = _Last(letter.kind, dict(letter.body), Pieces(tuple(parts)) if long else b"".join(parts))
        return self._packed.data

    def _link(self, source: str, target: str) -> Link:
        if self._coins is None:
            raise WireError("this post seals nothing: it has no link keys")
        if (source, target) not in self._links:
            self._links[source, target] = Link(self._coins, source, target)
        return self._links[source, target]

    def _refuse(self, source: str, at: str, error: CroupierError) -> None:
        self.refusals.append(Refusal(source, at, str(error)))
