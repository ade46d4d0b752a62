"""A host other than the server: it plays the attempts that the server's notices open.

Hosts are the parties that others dial. The server is one, too, but has a class of its own (`service.lead`). Relays, sum
servers, mix servers, the second server and the dealer need no data, so one class serves for all of them.
`service.start` makes a `Host` for `croupier serve` and `croupier up`, `flower.rehearse` for a rehearsal inside Flower's
simulation, and the laboratory's `bench/services` for its own runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from croupier.core.attempt import WorkByName
from croupier.errors import CroupierError, StoreError
from croupier.service.member import SERVER, Member
from croupier.service.notice import END, Notice
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.player import Player
from croupier.service.store import Store
from croupier.service.transport import LATER, OK

# The server may be a moment ahead: so long a host may finish what it plays before it turns to a new attempt.
GRACE = 2.0
# The run of which the server has said that it is over, until this host has left: said once, it must outlive a crash.
_OVER = "over"


class Host(PartyProcess):
    """A relay, a sum server, a mix server, the second server or the dealer."""

    def __init__(self, member: Member, store: Store, work: WorkByName, options: Options) -> None:
        super().__init__(member, store, work, options)
        self._next: asyncio.Queue[Notice] = asyncio.Queue()
        self._queued = b""

    async def run(self) -> None:
        """Play until the server says that the run is over."""
        over = self.store.fact(_OVER) == self.member.roster.run
        if not over:
            self.tell_finished("it serves in case the server goes on, and can be stopped")
        if (player := self.resume()) is not None:
            if over:
                player.supersede()
            await self._play(player)
        while not over and (notice := await self._next.get()).what != END:
            try:
                # Once more: what was played since it was pushed counts, too.
                self.check(notice)
                player = await self.begin(notice)
            except CroupierError as error:
                # Not written down, not begun: the server will push it again.
                self._queued = b""
                self._move()
                self.options.tell("not played", round=notice.round + 1, why=str(error))
                continue
            await self._play(player)
        self.remember_finished({})

    def let_go(self) -> None:
        """Erase what lies ready. Heard and done: whoever starts this host again wants it to serve."""
        self.store.let_go({_OVER: b""})

    async def _play(self, player: Player) -> None:
        outcome = await player.play()
        if outcome.error:
            self.options.tell("failed", round=player.notice.round + 1, why=str(outcome.error))
        await self.end(player, outcome)

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """A notice of the server's: the attempt that it opens supersedes the one that is played."""
        if caller != SERVER:
            return self._refuse(caller, "only the server opens attempts")
        try:
            notice = Notice.read(request, self.member.roster.card(SERVER).identity)
            if self.store.state(notice.key) is not None:
                return OK
            if notice.key != self._queued and notice.what != END:
                await self._turn()
                self.check(notice)
        except CroupierError as error:
            return self._refuse(caller, str(error))
        if notice.what == END:
            try:
                await asyncio.to_thread(self.store.remember, {_OVER: notice.run})
            except StoreError:
                return LATER
        if notice.key != self._queued:
            self._queued = notice.key
            self._next.put_nowait(notice)
        return OK if notice.what == END or await self._begun(notice) else LATER

    async def _begun(self, notice: Notice) -> bool:
        """Whether an attempt is written down before long: who says ok must know of it after a crash."""
        end = time.monotonic() + self.member.roster.timetable.hold
        while self.store.state(notice.key) is None and notice.key == self._queued and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.moved.wait(), end - time.monotonic())
        return self.store.state(notice.key) is not None

    async def _turn(self) -> None:
        """Let what is played come to its end, but not for long."""
        if (player := self.now) is None or self.store.state(player.key) != "open":
            return
        for patience in (GRACE, self.member.roster.timetable.hold):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while self.store.state(player.key) == "open":
                        await self.moved.wait()
                    return
            player.supersede()
