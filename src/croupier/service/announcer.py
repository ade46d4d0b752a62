"""How the server's notices reach everybody: hosts are told, clients ask and say a word of their own when they do.

`service.lead` derives its `Lead` from `Announcer` and decides what is announced; here is who hears of it, who is still
expected, and what clients say meanwhile. Clients only dial out, so what the server must know of them besides their
letters comes with these requests.
"""

from __future__ import annotations

import asyncio
import time

from croupier.core import canon
from croupier.core.attempt import WorkByName
from croupier.errors import CroupierError
from croupier.service.attendance import GRACE, Attendance
from croupier.service.heard import ClientsWord, said_of
from croupier.service.member import Member
from croupier.service.notice import END, ROUND, Notice
from croupier.service.options import Options
from croupier.service.party import PartyProcess
from croupier.service.roster import Roster
from croupier.service.store import Store
from croupier.service.transport import OK

# So long the server stays for clients that have not yet heard that all is over.
FAREWELL = 10.0
# A request for notices may have so many bytes, and so many more for each client of the roster.
_SHORT, _EACH = 1 << 16, 1 << 10


class Announcer(PartyProcess):
    """The server as far as its notices are concerned: hosts and clients follow them."""

    def __init__(self, member: Member, store: Store, work: WorkByName, options: Options) -> None:
        super().__init__(member, store, work, options)
        self.attendance, self.word = Attendance(store), ClientsWord(store)
        self._newest: tuple[int, bytes] = (-1, b"")
        self._announced = asyncio.Event()
        # Clients that ever asked for a notice, and those that have heard of the end.
        self._asked: set[str] = set()
        self._heard: set[str] = set()
        self._over = False
        # Rosters whose clients were asked whether they hold the same secret.
        self._compared: set[bytes] = set()

    async def _announce(self, notice: Notice) -> None:
        """Let everybody know: hosts are told, clients ask."""
        self._publish(notice)
        # What clients do before a round only the server relays.
        others = self.member.roster.hosts if notice.what in (ROUND, END) else ()
        hosts = [host for host in others if host != self.name]
        await asyncio.gather(*(self._push(host, self._newest[1]) for host in hosts))

    def _publish(self, notice: Notice) -> None:
        self._newest = notice.number, notice.sign(self.member.keyring.identity)
        self._announced.set()
        self._announced = asyncio.Event()

    async def _push(self, host: str, signed: bytes) -> None:
        pause = 0.02
        while (said := await self.calls.open(host, signed, self.member.roster.timetable.hold * 2)) != OK:
            if said == b"refused":
                self.options.tell("notice refused", host=host)
                if self.now is not None:
                    self.now.lose(host)
                return
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)

    async def opened(self, caller: str | None, request: bytes) -> bytes:
        """A client asks for the newest notice."""
        if caller is None or caller not in (*self.member.roster.clients, *self._coming()):
            return self._refuse(caller, "only clients of the roster ask for notices")
        if len(request) > _SHORT + _EACH * len(self.member.roster.clients):
            return self._refuse(caller, "a request that is longer than it may be")
        try:
            asked = canon.load(request)
            if not {"after"} <= set(asked) <= {"after", "word", "facts"}:
                return self._refuse(caller, "a request that has other fields than it should")
            after = int(asked["after"])
            if "word" in asked:
                self.word.hear(caller, asked["word"])
            if self.member.pipeline.encode.rules is not None and "facts" in asked:
                facts = await self.attendance.hear(caller, asked["facts"])
                if self.now is not None and self.now.key == facts.ended:
                    self.now.lose(caller)
            # It may wait for long: what it was read from, or stands in for something large, is not kept meanwhile.
            del asked, request
        except (CroupierError, LookupError, TypeError, ValueError, OverflowError):
            return self._refuse(caller, "a request that cannot be read")
        with self.attendance.asking(caller):
            return await self._newer(caller, after)

    async def _newer(self, caller: str, after: int) -> bytes:
        """The newest notice, once there is one after this; nothing when it takes too long."""
        end = time.monotonic() + self.member.roster.timetable.hold
        while True:
            # Asked anew whenever there is news: the client may have left the federation while it waited.
            if caller not in (*self.member.roster.clients, *self._coming()):
                return self._refuse(caller, "only clients of the roster ask for notices")
            if caller in self.member.roster.clients:
                self._asked.add(caller)
            if odds := b"" if self._over else self.word.at_odds(self.member.roster, caller):
                return odds
            number, signed = self._newest
            # Who joins with a later version waits for its first round.
            if number > after and (self._over or caller in self.member.roster.clients):
                return signed
            if self._over:
                # It asks for what comes after the end: so it has heard of it.
                self._heard.add(caller)
                return b""
            waiting = self._announced
            try:
                async with asyncio.timeout(max(0.01, end - time.monotonic())):
                    await waiting.wait()
            except TimeoutError:
                return b""

    def _coming(self) -> set[str]:
        """Clients of versions that do not hold yet."""
        mine = self.member.roster.version
        return {name for roster in self.versions.rosters() if roster.version > mine for name in roster.clients}

    async def _compare_secrets(self, cohort: tuple[str, ...]) -> None:
        """Before the first round under a roster, see that no two clients hold different secrets.

        They would take each other's sums for foul play and raise an alarm.
        """
        roster, word = self.member.roster, self.word
        if "group" not in self.member.pipeline.place.needs or roster.digest in self._compared:
            return
        if not word.settled(roster):
            await self._wait_for_secrets(roster, cohort)
        self._compared.add(roster.digest)

    async def _wait_for_secrets(self, roster: Roster, cohort: tuple[str, ...]) -> None:
        word, wait = self.word, self.attendance.wait
        # Who does not come for a step of the timetable is told when it does.
        if not word.spoke(cohort):
            seconds = roster.timetable.phase
            why = f"the first round begins when all {len(cohort)} invited clients have come, or after {seconds:g} s"
            self.options.tell("waiting", why=why)
        await wait(lambda: word.spoke(cohort) or len(word.holders(roster)) > 1, roster.timetable.phase)
        said = ""
        while len(held := word.holders(roster)) > 1:
            if (why := said_of(held, roster)) != said:
                said = why
                self.options.tell("group secrets differ", why=why)
            await wait(lambda: len(word.holders(roster)) < 2, GRACE)
        word.settle(roster)

    async def _farewell(self, number: int) -> None:
        """Say that all is over, and stay until everybody has heard or nobody can be waited for."""
        roster = self.member.roster
        self._over = True
        count = max(self._newest[0], self.store.last_number()) + 1
        notice = Notice(count, END, roster.digest, roster.run, number, 0, ())
        try:
            async with asyncio.timeout(FAREWELL):
                await self._announce(notice)
                # Who never asked for anything is not waited for, nor who has left; after a restart, who was there last
                # did ask.
                awaited = (self._asked | set(self.memory().get("present", ()))) & set(roster.clients)
                while not awaited <= self._heard:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            self.options.tell("left", unheard=len(self._asked - self._heard))
