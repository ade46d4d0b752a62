"""A client whose rounds are opened by Flower's messages: each may find it in another process.

In the first message of a round it trains and sends what the protocol says to the hosts. What comes of it lies ready for
it once everybody has sent; it fetches and checks that with its next message. Between the two there is only its store:
the flow is replayed from what was written down (`service.seated`), as after a crash. `flower.mod` makes a `NodeClient`
for every message but those that only ask who the node is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from croupier.core import canon
from croupier.core.envelope import Header
from croupier.core.flow import Exchange, Outcome
from croupier.errors import CroupierError, IntegrityError, ProtocolError, StoreError
from croupier.flower.station import Station
from croupier.service.member import SERVER
from croupier.service.notice import ROUND, Notice
from croupier.service.party import PartyProcess
from croupier.service.player import Player
from croupier.service.recall import check_recall
from croupier.service.store import Store, StoredLetter

# Seconds for what came of a round, which lies ready as a rule.
_PATIENCE = 30.0
Fits = Callable[[Sequence[tuple[Any, ...]]], Sequence[Any]]
# The last step of an attempt whose letters all hosts have acknowledged: what they hold is not sent again.
_SENT = "step sent"
# What two models under one notice mean.
_OLDER = "this client's store is older than what left it"


class Paused(Exception):  # noqa: N818 - reads as what happened
    """The flow waits for what others have yet to do."""


class NodePlayer(Player):
    """Plays a seat as far as it goes in one message."""

    # Whether it stops where it would have to wait once something has left; otherwise it fetches what lies ready.
    pausing = False
    _left = False

    async def _send(self) -> CroupierError | None:
        if not isinstance(self.seat.ask, Exchange) or not self.seat.ask.send:
            return await super()._send()
        self._left = True
        if self._acknowledged():
            for letter in self.seat.post():
                self._envelope(letter)
            return None
        error = await self._recalled() or await super()._send()
        if error is None:
            done = canon.dump((self.key, self._step))
            await asyncio.to_thread(self.around.store.remember, {_SENT: done})
        return error

    def _acknowledged(self) -> bool:
        """Whether all hosts hold what the flow wants sent at this step: then it need not travel again."""
        kept = self.around.store.fact(_SENT)
        key, step = (b"", -1) if kept is None else canon.load(kept)
        return bool(key == self.key and int(step) >= self._step)

    async def _recalled(self) -> CroupierError | None:
        """Whether a host has letters that this client has forgotten: then it must not send others."""
        hosts, hold = self.around.calls.member.roster.hosts, self.around.times.hold
        try:
            async with asyncio.timeout(max(5.0, hold * 2)):
                await check_recall(self.around.calls, self.around.store, hosts, hold * 2)
        except IntegrityError as error:
            return error
        except TimeoutError:
            return ProtocolError(f"not all of {', '.join(hosts)} answer; nothing was sent")
        return None

    @property
    def _deadline(self) -> float:
        """A round ends when it should; what came of it may be fetched later, when the next message comes."""
        return super()._deadline if self.pausing else float("inf")

    async def _wait(self) -> None:
        if self.pausing and self._left and not self.seat.can_go():
            raise Paused
        await super()._wait()


@dataclass(frozen=True)
class Handed:
    """What a message of the server's hands a node: the signed notice, the model, and what travels beside it."""

    notice: bytes
    model: Tensor
    beside: Mapping[str, Tensor]


class NodeClient(PartyProcess):
    """One client of the federation, for the length of one message."""

    players: ClassVar[type[Player]] = NodePlayer

    def __init__(self, station: Station, fit: Fits | None = None) -> None:
        super().__init__(station.member, station.store(), {"fit": self._fit}, station.options)
        self._app, self._trains = fit, False

    def _fit(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Train; but never for a round of an earlier message, whose process ended while it trained."""
        if self._app is None or not self._trains:
            return [ProtocolError("training was interrupted, and the round went on without it") for _ in jobs]
        return self._app(jobs)

    async def run(self) -> None:
        """Bring what is open to its end, if what it waits for lies ready. Raises: IntegrityError, the alarm."""
        await self.settle(last=False)

    async def settle(self, last: bool) -> None:
        """Check what came of the round before. Raises: IntegrityError.

        last: whether another round is about to begin, so that nothing more will come of this one.
        """
        player = self.resume()
        if player is None:
            return
        try:
            async with asyncio.timeout(max(_PATIENCE, 2 * self.member.roster.timetable.hold)):
                outcome = await player.play()
        except TimeoutError:
            if last:
                outcome = Outcome(None, ProtocolError("nobody said what came of the round"))
            else:
                self.options.tell("waiting", round=player.notice.round + 1)
                return
        await self._ended(player, outcome)

    async def train(self, handed: Handed) -> None:
        """Take part in the round of a notice, up to where others have to go on. Raises: CroupierError."""
        notice = Notice.read(handed.notice, self.member.roster.card(SERVER).identity)
        check_trust(self.store, self.name)
        await self.settle(last=True)
        if notice.what != ROUND or self.name not in notice.cohort:
            raise ProtocolError(f"the notice does not invite {self.name} to a round")
        self.check(notice)
        player = await self.begin(notice)
        if not isinstance(player, NodePlayer):
            raise AssertionError("seated by another player")
        player.pausing = self._trains = True
        await self._keep_model(player, handed)
        try:
            outcome = await player.play()
        except Paused:
            self.options.tell("sent", round=notice.round + 1)
            return
        await self._ended(player, outcome)
        if outcome.error is not None:
            raise outcome.error

    async def _keep_model(self, player: Player, handed: Handed) -> None:
        """Write the model down as the letter of the server's that it stands for."""
        body = player.schemas["model"].pack({"model": handed.model, **handed.beside})
        ours = player.attempt_id
        header = Header(
            ours.header_spec, ours.run, ours.round, ours.attempt, "model", SERVER, self.name, 0, len(body)
        )  # fmt: skip
        if await player.keep(StoredLetter(SERVER, "model", header.pack(), body)) == "other":
            raise StoreError(f"another model was handed out under the same notice; {_OLDER}")

    async def _ended(self, player: Player, outcome: Outcome) -> None:
        await self.end(player, outcome)
        error = outcome.error
        if isinstance(error, IntegrityError):
            self.counts["alarms"] += 1
            self.options.tell("alarm", why=str(error))
            raise error
        if error is not None:
            self.options.tell("failed", round=player.notice.round + 1, why=str(error))

    async def close(self) -> None:
        """Hang up, and let go of the store."""
        await super().close()
        self.store.close()


def check_trust(store: Store, name: str) -> None:
    """Raises: IntegrityError when this client raised an alarm before."""
    if alarm := store.fact("alarm"):
        raise IntegrityError(f"{name} raised an alarm before and takes no further part: {alarm.decode()}")
