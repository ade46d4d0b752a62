"""A seat in one attempt as it stands: which letters came, which kinds are closed, and how it is restored.

A party that starts again replays what it wrote down (`service.store`): the same inputs in the same steps, to the same
bytes. `service.player` derives its `Player` from `SeatedParty`, and moves the seat on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from croupier.core import canon
from croupier.core.attempt import AttemptId, WorkByName
from croupier.core.envelope import Envelope, Header
from croupier.core.flow import Letter, Received, Seat, Work
from croupier.core.update import Layout, Update
from croupier.core.wire import Schema
from croupier.engine.post import Post
from croupier.errors import CroupierError, StoreError, WireError
from croupier.service.database import Step, on_disk
from croupier.service.notice import Notice
from croupier.service.roster import Timetable
from croupier.service.store import Kept, Store, StoredLetter
from croupier.service.transport import Calls

# Called with the name of a step, once it is on disk or has left, and the round. Tests and benches kill a party there,
# and `flower.lead` learns from it that the model was handed out.
Hook = Callable[[str, int], None]


def nothing(step: str, number: int) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Surroundings:
    """What a player plays with: everything of its party that outlives an attempt."""

    name: str
    clients: tuple[str, ...]
    store: Store
    calls: Calls
    times: Timetable
    hook: Hook = nothing
    tell: Callable[..., None] = lambda event, **facts: None
    # Called when letters lie ready for those who fetch.
    stir: Callable[[], None] = lambda: None


@dataclass
class SeatedParty:
    """One seat in one attempt, and what reached it."""

    around: Surroundings
    notice: Notice
    seat: Seat
    schemas: Mapping[str, Schema]
    work: WorkByName
    attempt_id: AttemptId
    layout: Layout
    opened: float
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    # Kinds that the flow no longer waits for, with those whose letters counted.
    closed: dict[str, frozenset[str]] = field(default_factory=dict)
    # Parties that ended the attempt without success: nothing more will come from them.
    gone: set[str] = field(default_factory=set)
    turned: asyncio.Event = field(default_factory=asyncio.Event)
    bytes_in: int = 0
    bytes_out: int = 0
    _step: int = 0
    _unwritten: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._post = Post(self.attempt_id, self.schemas, None)

    @property
    def superseded(self) -> bool:
        """Whether the server went on to another attempt."""
        return self.turned.is_set()

    @property
    def key(self) -> bytes:
        """What names the attempt."""
        return self.notice.key

    def admit(self, header: Header, body: bytes) -> Received:
        """A letter that is exactly the message it should be. Raises: WireError, RangeError."""
        same = (header.spec, header.run, header.round, header.attempt)
        ours = self.attempt_id
        if same != (ours.header_spec, ours.run, ours.round, ours.attempt):
            raise WireError("a message of another protocol, cohort, run, round or attempt")
        schema = self.schemas.get(header.kind)
        if schema is None:
            raise WireError(f"a message of unknown kind {header.kind!r}")
        return Received(header.source, header.kind, schema.unpack(body))

    async def keep(self, letter: StoredLetter) -> Kept:
        """Make a letter durable: it is new, the very same again, or another. Raises: StoreError."""
        return await on_disk(lambda: self.around.store.keep(self.key, letter), len(letter.body))

    def deliver(self, letter: Received, size: int) -> bool:
        """Hand a durable letter to the flow; False when it no longer waits for it."""
        if letter.source not in self.closed.get(letter.kind, frozenset({letter.source})):
            return False
        self.bytes_in += size
        if (letter.kind, letter.source) not in self.seat.heard:
            self.seat.deliver(letter)
            self.changed.set()
        return True

    def lose(self, source: str) -> None:
        """Nothing more will come from a party."""
        self.gone.add(source)
        self.changed.set()

    def supersede(self) -> None:
        """The server went on to another attempt: do not wait any longer than for what lies ready."""
        self.turned.set()
        self.changed.set()

    def _envelope(self, letter: Letter) -> Envelope:
        envelope = self._post.write(self.around.name, letter).envelope
        self.bytes_out += envelope.size
        return envelope

    async def replay(self) -> None:
        """Run the flow again from what was written down: the same inputs in the same steps."""
        steps = await asyncio.to_thread(self.around.store.steps, self.key)
        held = {(one.kind, one.source): one for one in self.around.store.letters(self.key)}
        for what, value in steps:
            # What left before this step had arrived when it was written down.
            for letter in self.seat.post():
                self._envelope(letter)
            if what == "inbox":
                self._hand_out(canon.load(value), held)
            else:
                await self._redo(what, value)
            self._step += 1
        for one in held.values():
            header = Header.unpack(one.header)
            self.deliver(self.admit(header, one.body), len(one.header) + len(one.body))
        if steps:
            self.around.tell("replayed", steps=len(steps), letters=len(held))

    def _hand_out(self, sources: tuple[str, ...], held: dict[tuple[str, str], StoredLetter]) -> None:
        kind = self.seat.wait.kind if self.seat.wait else ""
        for source in sources:
            one = held.pop((kind, source))
            self.bytes_in += len(one.header) + len(one.body)
            self.seat.deliver(self.admit(Header.unpack(one.header), one.body))
        if kind:
            self.closed[kind] = self.closed.get(kind, frozenset()) | frozenset(sources)
        self.seat.go()

    async def _redo(self, what: str, value: bytes) -> None:
        ask = self.seat.ask
        if not isinstance(ask, Work):
            raise StoreError("what was written down of this attempt does not fit its flow; it cannot go on")
        if what == "update":
            self.seat.finish(_read_update(value, self.layout))
            return
        (result,) = await asyncio.to_thread(self.work[ask.name], [ask.args])
        self.seat.fail(result) if isinstance(result, CroupierError) else self.seat.finish(result)


def written(name: str, result: Any) -> tuple[str, bytes]:
    """What is kept of a piece of work: training cannot be repeated to the bit everywhere, all else can."""
    if isinstance(result, Update):
        plain = {"vector": result.vector, "luggage": dict(result.luggage), "form": result.form}
        return "update", canon.dump(plain)
    return f"work {name}", b""


def _read_update(value: bytes, layout: Layout) -> Update:
    plain = canon.load(value)
    return Update(plain["vector"], layout, plain["luggage"], form=plain["form"])
