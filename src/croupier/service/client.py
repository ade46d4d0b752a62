"""A client: it only dials out, asks the server for notices, trains, and checks what becomes of its update."""

from __future__ import annotations

import asyncio
import time

from croupier.agree.seats import forget
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.errors import CroupierError, IntegrityError, OwnError, ProtocolError
from croupier.service.member import SERVER
from croupier.service.notice import END, ROUND, Notice
from croupier.service.party import PartyProcess
from croupier.service.player import Player
from croupier.service.recall import check_recall
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
        if not await self._recalled():
            return
        if (player := self.resume()) is not None:
            await self._play(player)
        after = self.store.last_number()
        while (notice := await self._next(after)).what != END:
            after = notice.number
            try:
                self._tidy(notice)
                if self.name not in notice.cohort:
                    continue
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

    def _tidy(self, notice: Notice) -> None:
        """Forget the secrets that no model lies under any more, when a round begins. Raises: WireError."""
        if notice.what != ROUND or self.member.pipeline.encode.rules is None:
            return
        who, live = notice.forgotten()
        if self.name in who:
            self.store.remember({"memory": canon.dump(dict(forget(self.memory(), live)))})

    def _request(self, after: int) -> bytes:
        """What it asks the server for notices with: the last one it heard of and, where clients agree on something,
        public facts of its standing, the attempt that it ended last, and whom it complains about.
        """
        asked: dict[str, object] = {"after": after}
        if self.member.pipeline.encode.rules is not None:
            told = canon.load(self.store.fact("told") or canon.dump({"ended": b"", "complaints": {}}))
            asked["facts"] = {"standing": Standing.of(self.memory()).public.plain(), **told}
        return canon.dump(asked)

    async def _recalled(self) -> bool:
        """Whether every host was asked what it has of this client; if not, the run is over, and nothing will be sent.

        Raises: IntegrityError, once and for all, when one has letters that this client has forgotten. ProtocolError
        when the server keeps refusing this client.
        """
        roster = self.member.roster
        asking = asyncio.create_task(check_recall(self.calls, self.store, roster.hosts, roster.timetable.hold * 2))
        ending = asyncio.create_task(self._over())
        try:
            # Hosts leave when a run is over: a client that comes back only then must not wait for them for long.
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({asking}, timeout=roster.timetable.hold)
            if asking.done():
                return asking.result() is None
            ending.result()  # the run is over, or the server has refused this client for so long that it means it
            return False
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
            said = await self.calls.open(SERVER, self._request(after), self.member.roster.timetable.hold * 2)
            bad = said in (LATER, REFUSED)
            if said not in (b"", LATER, REFUSED):
                try:
                    notice = Notice.read(said, public)
                    if self._newest is None or notice.number > self._newest.number:
                        self._newest = notice
                except CroupierError as error:
                    self.counts["refused"] += 1
                    self.options.tell("refused", source=SERVER, why=str(error))
                    bad = True
            if said == REFUSED:
                self._check_refused(refused)
            if bad:
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
