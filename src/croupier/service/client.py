"""A client: it only dials out, asks the server for notices, trains, and checks what becomes of its update."""

from __future__ import annotations

import asyncio
import time

from croupier.core import canon
from croupier.errors import CroupierError, IntegrityError, OwnError, ProtocolError
from croupier.service.member import SERVER
from croupier.service.notice import END, Notice
from croupier.service.party import PartyProcess
from croupier.service.player import Player
from croupier.service.transport import LATER, REFUSED


class Client(PartyProcess):
    """One client of the federation."""

    # Heard once, remembered: the server may be gone when it is asked for again.
    _newest: Notice | None = None

    async def run(self) -> None:
        """Play until the run is over.

        Raises: IntegrityError when it has proof of foul play: then it is the last round that it plays. OwnError when
        its own training fails: nobody else can mend it.
        """
        if (player := self.resume()) is not None:
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

    async def _play(self, player: Player) -> None:
        watcher = asyncio.create_task(self._watch(player))
        try:
            outcome = await player.play()
        finally:
            watcher.cancel()
        if outcome.error:
            self.options.tell("failed", round=player.notice.round + 1, why=str(outcome.error))
        await self.end(player, outcome)
        if isinstance(outcome.error, IntegrityError | OwnError):
            raise outcome.error

    async def _watch(self, player: Player) -> None:
        """A newer notice means that the server went on: then nothing more is waited for than what lies ready."""
        await self._next(player.notice.number)
        player.supersede()

    async def _next(self, after: int) -> Notice:
        """The server's newest notice after this one."""
        public, pause, refused = self.member.roster.card(SERVER).identity, 0.02, time.monotonic()
        while self._newest is None or self._newest.number <= after:
            said = await self.calls.open(SERVER, canon.dump({"after": after}), self.member.roster.timetable.hold * 2)
            if said not in (b"", LATER, REFUSED):
                try:
                    notice = Notice.read(said, public)
                    if self._newest is None or notice.number > self._newest.number:
                        self._newest = notice
                except CroupierError as error:
                    self.counts["refused"] += 1
                    self.options.tell("refused", source=SERVER, why=str(error))
            if said == REFUSED:
                self._check_refused(refused)
            if said in (LATER, REFUSED):
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)
                continue
            refused = time.monotonic()
        return self._newest

    def _check_refused(self, since: float) -> None:
        """Raises: ProtocolError when the server has been refusing this client for so long that it means it."""
        if time.monotonic() - since > self.member.roster.timetable.hold:
            raise ProtocolError(
                f"the server does not know the certificate of {self.name}: it has left the federation, or renewed its "
                "keys; accept the roster that holds now (croupier accept)"
            )
