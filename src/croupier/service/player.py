"""Plays one seat of one attempt over the network, and writes every step down before it counts.

The order that keeps promises across a crash: the attempt and its coins are on disk before the flow begins; a letter is
on disk before its sender is told so; the result of training, and what a client spends of its privacy budget, before
anything leaves; the list of letters that a flow is handed before it is handed them. A party that starts again replays
these steps, arrives at the same bytes, and goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from croupier.core import canon
from croupier.core.attempt import AttemptId, WorkByName
from croupier.core.envelope import Envelope, Header
from croupier.core.flow import Letter, Outcome, Received, Seat, Work
from croupier.core.update import Layout, Update
from croupier.core.wire import Schema
from croupier.engine.post import Post
from croupier.errors import CroupierError, ProtocolError, StoreError, TooLate, WireError
from croupier.service.notice import Notice
from croupier.service.roster import Timetable
from croupier.service.store import Store, StoredLetter
from croupier.service.transport import CLOSED, ENDED, LATER, OK, REFUSED, Calls

# Tests hook in here: called with a name for every step that is on disk or on its way.
Hook = Callable[[str, int], None]
_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


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
class Player:
    """One seat in one attempt."""

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

    async def play(self) -> Outcome:
        """Play to the end; what was written down before is replayed first."""
        await self._replay()
        while self.seat.outcome is None:
            if isinstance(self.seat.ask, Work):
                await self._do_work(self.seat.ask)
            elif (error := await self._send()) is not None:
                self.seat.fail(error)
            else:
                await self._wait()
        return self.seat.outcome

    # ---- what comes in

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

    # ---- work

    async def _do_work(self, ask: Work) -> None:
        (result,) = await asyncio.to_thread(self.work[ask.name], [ask.args])
        if isinstance(result, CroupierError):
            self.seat.fail(result)
            return
        what, value = _written(ask.name, result)
        await self._write(what, value)
        self.around.hook(f"work:{ask.name}", self.notice.round)
        self.seat.finish(result)

    async def _write(self, what: str, value: bytes) -> None:
        await asyncio.to_thread(self.around.store.step, self.key, self._step, what, value)
        self._step += 1

    # ---- sending

    async def _send(self) -> CroupierError | None:
        """Send what the flow wants sent; why the party cannot go on, where a host had gone on or would not take it."""
        letters = self.seat.post()
        if not letters:
            return None
        envelopes = [self._envelope(letter) for letter in letters]
        fetched = [one for one in envelopes if one.header.target in self.around.clients]
        pushed = [one for one in envelopes if one.header.target not in self.around.clients]
        for group, hold in ((fetched, True), (pushed, False)):
            rows = [(one.header.target, one.header.kind, one.header.pack(), one.body) for one in group]
            if rows:
                await asyncio.to_thread(self.around.store.leave, self.key, rows, hold)
        self.around.stir()
        self.around.hook(f"leave:{letters[0].kind}", self.notice.round)
        answers = await asyncio.gather(*(self._put(one) for one in pushed))
        self.around.hook(f"sent:{letters[0].kind}", self.notice.round)
        said = {one.header.target: answer for one, answer in zip(pushed, answers, strict=True)}
        me, kind = self.around.name, letters[0].kind
        refused = [host for host, answer in said.items() if answer == REFUSED and me in self.around.clients]
        if refused:
            return ProtocolError(f"{refused[0]} refused {kind!r} of {me}: its operator was told why")
        # A client whose letter was never taken is not in the round, whatever is published: no cause for alarm.
        missed = (CLOSED, LATER) if me in self.around.clients else (CLOSED,)
        late = [host for host, answer in said.items() if answer in missed]
        return TooLate(f"{me} reached {late[0]} too late, and the round went on without it") if late else None

    def _envelope(self, letter: Letter) -> Envelope:
        envelope = self._post.write(self.around.name, letter).envelope
        self.bytes_out += envelope.size
        return envelope

    async def _put(self, envelope: Envelope) -> bytes:
        target, pause = envelope.header.target, _PAUSE
        head = envelope.header.pack() + self.key
        while time.monotonic() < self._deadline and target not in self.gone and not self.superseded:
            said = await self.around.calls.put(target, head, envelope.body, self.around.times.hold * 2)
            if said != LATER:
                if said != OK:
                    self.around.tell("letter not taken", target=target, kind=envelope.header.kind, said=said.decode())
                return said
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
        return LATER

    # ---- waiting

    @property
    def _deadline(self) -> float:
        return self.opened + self.around.times.round

    async def _wait(self) -> None:
        """Wait until the flow can go on: with everything, with a quorum after its step, or not at all."""
        seat, wait = self.seat, self.seat.wait
        takers = [
            asyncio.create_task(self._take(source, wait.kind))
            for source in seat.absent()
            if wait and self.around.name in self.around.clients
        ]
        try:
            while not seat.can_go():
                soft = self._deadline
                if wait and wait.quorum is not None:
                    soft = min(soft, self.opened + wait.patience * self.around.times.phase)
                now = time.monotonic()
                over = set(seat.absent()) <= self.gone or now >= self._deadline or (self.superseded and not takers)
                if (now >= soft or over) and seat.can_go(short=True):
                    break
                if over:
                    seat.give_up()
                    return
                self.changed.clear()
                left = (soft if now < soft else self._deadline) - now
                try:
                    await asyncio.wait_for(self.changed.wait(), left)
                except TimeoutError:
                    continue
        finally:
            for taker in takers:
                taker.cancel()
            await asyncio.gather(*takers, return_exceptions=True)
        await self._go()

    async def _go(self) -> None:
        """Close the kind, write down whose letters count, and hand them to the flow."""
        seat, wait = self.seat, self.seat.wait
        taken = tuple(source for source in wait.sources if (wait.kind, source) in seat.box) if wait else ()
        if wait:
            self.closed[wait.kind] = self.closed.get(wait.kind, frozenset()) | frozenset(taken)
        await self._write("inbox", canon.dump(taken))
        if wait:
            self.around.hook(f"got:{wait.kind}", self.notice.round)
        seat.go()

    async def _take(self, source: str, kind: str) -> None:
        """Fetch a letter that a host holds for this party."""
        pause = _PAUSE
        while True:
            last = self.superseded
            pieces = await self._fetch(source, kind)
            if pieces == [ENDED] or (last and not pieces):
                self.lose(source)
                return
            if not pieces:
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                continue
            try:
                header, body = Header.unpack(pieces[0]), b"".join(pieces[1:])
                if (header.source, header.target, header.kind, header.length) != (
                    source, self.around.name, kind, len(body),
                ):  # fmt: skip
                    raise WireError(f"{source} handed out another letter than was asked for")
                letter = self.admit(header, body)
                kept = StoredLetter(source, kind, pieces[0], body)
                said = await asyncio.to_thread(self.around.store.keep, self.key, kept)
            except StoreError as error:
                self.around.tell("store", why=str(error))
                await asyncio.sleep(_LONGEST_PAUSE)
                continue
            except CroupierError as error:
                self.around.tell("refused", source=source, kind=kind, why=str(error))
                self.lose(source)
                return
            if said == "other":
                self.around.tell("refused", source=source, kind=kind, why="two different letters of one kind")
                self.lose(source)
                return
            self.deliver(letter, len(pieces[0]) + len(body))
            return

    async def _fetch(self, source: str, kind: str) -> list[bytes]:
        """Ask a host once; a call that is held open is not waited for any longer once the server went on."""
        times = self.around.times
        request = canon.dump({"key": self.key, "kind": kind, "hold": 0.0 if self.superseded else times.hold})
        call = asyncio.create_task(self.around.calls.take(source, request, times.hold * 2))
        turn = asyncio.create_task(self.turned.wait())
        try:
            await asyncio.wait({call} if self.superseded else {call, turn}, return_when=asyncio.FIRST_COMPLETED)
            return call.result() if call.done() else []
        finally:
            call.cancel()
            turn.cancel()

    # ---- starting again

    async def _replay(self) -> None:
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


def _written(name: str, result: Any) -> tuple[str, bytes]:
    """What is kept of a piece of work: training cannot be repeated to the bit everywhere, all else can."""
    if isinstance(result, Update):
        plain = {"vector": result.vector, "luggage": dict(result.luggage), "form": result.form}
        return "update", canon.dump(plain)
    return f"work {name}", b""


def _read_update(value: bytes, layout: Layout) -> Update:
    plain = canon.load(value)
    return Update(plain["vector"], layout, plain["luggage"], form=plain["form"])
