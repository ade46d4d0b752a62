"""Plays one seat of one attempt over the network, and writes every step down before it counts.

The order that keeps promises across a crash: the attempt and its coins are on disk before the flow begins; a letter is
on disk before its sender is told so; the result of training, and what a client spends of its privacy budget, before
anything leaves; the list of letters that a flow is handed, where some are missing, before it is handed them. What else
it was handed follows from what is on disk already, and is written down together with the next letters that leave. A
party that starts again replays these steps (`service.seated`), arrives at the same bytes, and goes on.

`service.party` makes a `Player` for every attempt; `flower.node` derives one that stops where it would have to wait.
"""

from __future__ import annotations

import asyncio
import time

from croupier.core import canon
from croupier.core.envelope import HEADER_BYTES, Envelope, Header
from croupier.core.flow import Outcome, Work
from croupier.errors import CroupierError, ProtocolError, StoreError, TooLate, WireError
from croupier.service.database import Step, on_disk
from croupier.service.seated import SeatedParty, written
from croupier.service.store import LeavingLetter, StoredLetter
from croupier.service.transport import CLOSED, ENDED, LATER, OK, REFUSED

_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class Player(SeatedParty):
    """Plays one seat in one attempt."""

    async def play(self) -> Outcome:
        """Play to the end; what was written down before is replayed first."""
        await self.replay()
        while self.seat.outcome is None:
            if isinstance(self.seat.ask, Work):
                await self._do_work(self.seat.ask)
            elif (error := await self._send()) is not None:
                self.seat.fail(error)
            else:
                await self._wait()
        return self.seat.outcome

    # ---- work

    async def _do_work(self, ask: Work) -> None:
        (result,) = await asyncio.to_thread(self.work[ask.name], [ask.args])
        if isinstance(result, CroupierError):
            self.seat.fail(result)
            return
        what, value = written(ask.name, result)
        self._note(what, value)
        if value:
            # It may not come out the same again, and took long.
            await self._write()
        self.around.hook(f"work:{ask.name}", self.notice.round)
        self.seat.finish(result)

    def _note(self, what: str, value: bytes) -> None:
        """Take down a step, to be written before anything leaves that follows from it."""
        self._unwritten.append((self._step, what, value))
        self._step += 1

    def _noted(self) -> list[Step]:
        noted, self._unwritten = self._unwritten, []
        return noted

    async def _write(self) -> None:
        """Write down the steps that were noted, now."""
        steps = self._noted()
        size = sum(len(value) for _, _, value in steps)
        await on_disk(lambda: self.around.store.add_steps(self.key, steps), size)

    # ---- sending

    async def _send(self) -> CroupierError | None:
        """Send what the flow wants sent; why the party cannot go on, where a host had gone on or would not take it."""
        letters = self.seat.post()
        if not letters:
            return None
        leaving = [self._leaving(self._envelope(letter)) for letter in letters]
        pushed = [one for one in leaving if not one.hold]
        steps, size = self._noted(), max(len(one.body) for one in leaving)
        await on_disk(lambda: self.around.store.leave(self.key, leaving, steps), size)
        if len(pushed) < len(leaving):
            self.around.stir()
        self.around.hook(f"leave:{letters[0].kind}", self.notice.round)
        answers = await asyncio.gather(*(self._put(one) for one in pushed))
        self.around.hook(f"sent:{letters[0].kind}", self.notice.round)
        said = {one.target: answer for one, answer in zip(pushed, answers, strict=True)}
        me, kind = self.around.name, letters[0].kind
        refused = [host for host, answer in said.items() if answer == REFUSED and me in self.around.clients]
        if refused:
            return ProtocolError(f"{refused[0]} refused {kind!r} of {me}: its operator was told why")
        # A client whose letter was never taken is not in the round, whatever is published: no cause for alarm.
        missed = (CLOSED, LATER) if me in self.around.clients else (CLOSED,)
        late = [host for host, answer in said.items() if answer in missed]
        return TooLate(f"{me} reached {late[0]} too late, and the round went on without it") if late else None

    def _leaving(self, envelope: Envelope) -> LeavingLetter:
        """A letter on its way: clients fetch theirs, everybody else is brought them."""
        head = envelope.header
        return LeavingLetter(
            head.target, head.kind, head.pack(), bytes(envelope.body), hold=head.target in self.around.clients
        )  # fmt: skip

    async def _put(self, letter: LeavingLetter) -> bytes:
        target, pause = letter.target, _PAUSE
        head = letter.header + self.key
        while time.monotonic() < self._deadline and target not in self.gone and not self.superseded:
            said = await self.around.calls.put(target, head, letter.body, self.around.times.hold * 2)
            if said != LATER:
                if said != OK:
                    self.around.tell("letter not taken", target=target, kind=letter.kind, said=said.decode())
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
                    # Not wait_for: it forgets that it was cancelled when a letter comes at the same moment.
                    async with asyncio.timeout(left):
                        await self.changed.wait()
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
        self._note("inbox", canon.dump(taken))
        if wait and len(taken) < len(wait.sources):
            # Whoever comes later is told that it is too late: that must hold after a crash, too. Where nobody is
            # missing, the same letters lie here then.
            await self._write()
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
                said = await self.keep(StoredLetter(source, kind, pieces[0], body))
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
        most = HEADER_BYTES + (self.schemas[kind].most_bytes if kind in self.schemas else 0)
        request = canon.dump({"key": self.key, "kind": kind, "hold": 0.0 if self.superseded else times.hold})
        call = asyncio.create_task(self.around.calls.take(source, request, times.hold * 2, most))
        turn = asyncio.create_task(self.turned.wait())
        try:
            await asyncio.wait({call} if self.superseded else {call, turn}, return_when=asyncio.FIRST_COMPLETED)
            return call.result() if call.done() else []
        finally:
            call.cancel()
            turn.cancel()
