"""A client: it only dials out, asks the server for notices, trains, and checks what becomes of its update."""

from __future__ import annotations

import asyncio

from croupier.core import canon
from croupier.errors import CroupierError, IntegrityError
from croupier.service.member import SERVER
from croupier.service.notice import END, Notice
from croupier.service.party import PartyProcess
from croupier.service.player import Player
from croupier.service.recall import check_recall
from croupier.service.transport import LATER


class Client(PartyProcess):
    """One client of the federation."""

    # Heard once, remembered: the server may be gone when it is asked for again.
    _newest: Notice | None = None

    async def run(self) -> None:
        """Play until the run is over. Raises: IntegrityError when it has proof of foul play: then it is the last."""
        recalled = await self._recalled()
        if recalled and (player := self.resume()) is not None:
            await self._play(player)
        after = self.store.last_number()
        while (notice := await self._next(after)).what != END:
            after = notice.number
            if self.name not in notice.cohort:
                continue
            try:
                self.check(notice)
                player = await self.begin(notice)
            except IntegrityError:
                raise
            except CroupierError as error:
                self.counts["refused"] += 1
                self.options.tell("not played", round=notice.round + 1, why=str(error))
                continue
            await self._play(player)
        await self.calls.open(SERVER, canon.dump({"after": notice.number}), 2.0)

    async def _recalled(self) -> bool:
        """Whether every host was asked what it has of this client; if not, the run is over, and nothing will be sent.

        Raises: IntegrityError, once and for all, when one has letters that this client has forgotten.
        """
        roster = self.member.roster
        asking = asyncio.create_task(check_recall(self.calls, self.store, roster.hosts, roster.timetable.hold * 2))
        ending = asyncio.create_task(self._over())
        try:
            # Hosts leave when a run is over: a client that comes back only then must not wait for them for long.
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({asking}, timeout=roster.timetable.hold)
            return asking.done() and asking.result() is None
        except IntegrityError as error:
            self.counts["alarms"] += 1
            self.options.tell("alarm", why=str(error))
            self.store.remember({"alarm": str(error).encode()})
            raise
        finally:
            asking.cancel()
            ending.cancel()

    async def _over(self) -> None:
        """Wait until the server says that the run is over."""
        after = -1
        while (notice := await self._next(after)).what != END:
            after = notice.number

    async def _play(self, player: Player) -> None:
        watcher = asyncio.create_task(self._watch(player))
        try:
            outcome = await player.play()
        finally:
            watcher.cancel()
        if outcome.error:
            self.options.tell("failed", round=player.notice.round + 1, why=str(outcome.error))
        await self.end(player, outcome)
        if isinstance(outcome.error, IntegrityError):
            raise outcome.error

    async def _watch(self, player: Player) -> None:
        """A newer notice means that the server went on: then nothing more is waited for than what lies ready."""
        await self._next(player.notice.number)
        player.supersede()

    async def _next(self, after: int) -> Notice:
        """The server's newest notice after this one."""
        public, pause = self.member.roster.card(SERVER).identity, 0.02
        while self._newest is None or self._newest.number <= after:
            said = await self.calls.open(SERVER, canon.dump({"after": after}), self.member.roster.timetable.hold * 2)
            bad = said == LATER
            if said not in (b"", LATER):
                try:
                    notice = Notice.read(said, public)
                    if self._newest is None or notice.number > self._newest.number:
                        self._newest = notice
                except CroupierError as error:
                    self.counts["refused"] += 1
                    self.options.tell("refused", source=SERVER, why=str(error))
                    bad = True
            if bad:
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)
        return self._newest
