"""A client: it only dials out, asks the server for notices, trains, and checks what becomes of its update.

Before its first step it asks every host which of its letters that host has (`service.recall`), because a store that was
put back from a backup could make it use one-time secrets twice. `service.start` makes a `Client` for `croupier join`
and `croupier up`. In a Flower federation its place is taken by `flower.node`.
"""

from __future__ import annotations

import asyncio
import time

from croupier.agree.seats import forget
from croupier.agree.standing import Standing
from croupier.core import canon
from croupier.core.flow import Outcome
from croupier.errors import CroupierError, IntegrityError, OwnError, ProtocolError, TooLate
from croupier.service.heard import read_at_odds, said_of, word_of
from croupier.service.member import SERVER
from croupier.service.notice import END, ROUND, Notice
from croupier.service.party import ENDED_ROUND, THIS_ROUND, PartyProcess
from croupier.service.player import Player
from croupier.service.recall import check_recall
from croupier.service.transport import LATER, REFUSED


class Client(PartyProcess):
    """One client of the federation, as a program."""

    # Heard once, remembered: the server may be gone when it is asked for again.
    _newest: Notice | None = None
    _odds = ""

    async def run(self) -> None:
        """Play until the run is over.

        Raises: IntegrityError when it has proof of foul play, or had it before: it takes no further part. OwnError when
        its own training fails: nobody else can mend it.
        """
        self._check_alarm()
        self.tell_finished("no server may be there to answer")
        if not await self._recalled():
            if (player := self.resume()) is not None:
                # Nobody will go on with it: what came to it in the round is erased as at any other end.
                await self.end(player, Outcome(None, TooLate("the run was over before the round went on")))
            await asyncio.to_thread(self._done)
            return
        if (player := self.resume()) is not None:
            await self._play(player)
        after = self.store.last_number()
        while (notice := await self._next(after)).what != END:
            after = notice.number
            invited = self.name in notice.cohort
            try:
                # Before anything is done at its word: what a false notice names must not be forgotten either.
                if invited or notice.what == ROUND:
                    self.check(notice)
                    self._tidy(notice)
                if not invited:
                    continue
                player = await self.begin(notice)
            except IntegrityError:
                raise
            except CroupierError as error:
                self.counts["refused"] += 1
                self.options.tell("not played", round=notice.round + 1, why=str(error))
                continue
            await self._play(player)
        await asyncio.to_thread(self._done)
        # The server waits for everybody to say that it has heard: one lost call must not keep it for long.
        for _ in range(3):
            if await self.calls.open(SERVER, self._request(notice.number), 2.0) != LATER:
                return

    def _check_alarm(self) -> None:
        """Raises: IntegrityError when it raised an alarm in this run before, whoever starts it again."""
        if alarm := (self.store.fact("alarm") or b"").decode():
            raise IntegrityError(
                f"{self.name} raised an alarm in this run before and takes no further part: {alarm}. Call the others; "
                "once it is settled, take part in a new run (croupier enrol), or under another name"
            )

    def _done(self) -> None:
        """The run is over: nothing that was drawn for its last round is kept."""
        self.remember_finished({THIS_ROUND: canon.dump(None)})
        self.store.checkpoint()

    def _tidy(self, notice: Notice) -> None:
        """Forget the secrets that no model lies under any more, when a round begins. Raises: WireError."""
        if notice.what != ROUND or self.member.pipeline.encode.rules is None:
            return
        who, live = notice.forgotten()
        if self.name in who:
            self.store.remember({"memory": canon.dump(dict(forget(self.memory(), live)))})

    def _request(self, after: int) -> bytes:
        """What it asks the server for notices with: the last one it heard of, how its last round ended and which
        secret it holds (`heard`); and, where clients agree on something, public facts of its standing, the attempt that
        it ended last, and whom it complains about.
        """
        ended, content = canon.load(self.store.fact(ENDED_ROUND) or canon.dump((b"", False)))
        asked: dict[str, object] = {"after": after, "word": word_of(self.versions, (ended, content))}
        if self.member.pipeline.encode.rules is not None:
            told = canon.load(self.store.fact("told") or canon.dump({"ended": b"", "complaints": {}}))
            asked["facts"] = {"standing": Standing.of(self.memory()).public.plain(), **told}
        return canon.dump(asked)

    async def _recalled(self) -> bool:
        """Whether every host was asked what it has of this client; if not, the run is over, and nothing will be sent.

        Raises: IntegrityError, once and for all, when one has letters that this client has forgotten. ProtocolError
        when the server keeps refusing this client.
        """
        roster, tell = self.member.roster, self.options.tell
        check = check_recall(self.calls, self.store, roster.hosts, roster.timetable.hold * 2, tell)
        asking = asyncio.create_task(check)
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
        if isinstance(outcome.error, IntegrityError):
            # The last that it says: that it is not content, never why.
            await self.calls.open(SERVER, self._request(player.notice.number), 2.0)
        if isinstance(outcome.error, IntegrityError | OwnError):
            raise outcome.error

    async def _watch(self, player: Player) -> None:
        """A newer notice means that the server went on: then nothing more is waited for than what lies ready."""
        await self._next(player.notice.number)
        player.supersede()

    async def _next(self, after: int) -> Notice:
        """The server's newest notice after this one."""
        pause, refused = 0.02, time.monotonic()
        while self._newest is None or self._newest.number <= after:
            said = await self.calls.open(SERVER, self._request(after), self.member.roster.timetable.hold * 2)
            if said == REFUSED:
                self._check_refused(refused)
            elif said != LATER and self._heard(said):
                refused = time.monotonic()
                continue
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 2)
        return self._newest

    def _heard(self, said: bytes) -> bool:
        """Take in what the server answered; False when it is nothing to go on with, and is asked for again later."""
        try:
            if held := read_at_odds(said):
                self._tell_at_odds(said_of(held, self.member.roster))
                return False
            notice = Notice.read(said, self.member.roster.card(SERVER).identity) if said else None
        except CroupierError as error:
            self.counts["refused"] += 1
            self.options.tell("refused", source=SERVER, why=str(error))
            return False
        if notice is not None and (self._newest is None or notice.number > self._newest.number):
            self._newest = notice
        return True

    def _tell_at_odds(self, why: str) -> None:
        """Say once that clients hold different secrets: nobody can play until one of them is mended."""
        if why != self._odds:
            self._odds = why
            self.options.tell("group secrets differ", why=why)

    def _check_refused(self, since: float) -> None:
        """Raises: ProtocolError when the server has been refusing this client for so long that it means it."""
        if time.monotonic() - since > self.member.roster.timetable.hold:
            raise ProtocolError(
                f"the server does not know the certificate of {self.name}: it has left the federation, or renewed its "
                "keys; accept the roster that holds now (croupier accept)"
            )
