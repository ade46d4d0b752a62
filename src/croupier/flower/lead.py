"""The server's party beside a Flower strategy: it plays a round when told, and returns what came of it.

A strategy decides when a round begins, how many there are, which nodes take part and with which model, whereas
`service.lead` plays all rounds by itself. `StrategyLead` bridges the two and keeps the server's store, notices and
checks; the roster says how many rounds there may be in all. It listens for the hosts' letters, and for nodes that fetch
what came of a round. `flower.session` makes and starts it, at the roster's address or at CROUPIER_LISTEN, and calls
`open_round` and `close_round` for `flower.strategy`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import grpc.aio
import torch
from torch import Tensor

from croupier.aggregate.aggregator import Desk
from croupier.core import canon
from croupier.core.coins import Coins
from croupier.core.flow import Memory, Outcome
from croupier.core.update import Gathered, Model
from croupier.errors import CroupierError, ProtocolError
from croupier.flower.station import Station
from croupier.service.lead import Lead, Measures
from croupier.service.member import Member
from croupier.service.notice import END, Notice
from croupier.service.player import Player
from croupier.service.transport import listen

# The server's own training on root records, from a start to the vector after it, where the aggregator asks for it. Here
# it is a function that the app brings, and not `learn.root`.
Root = Callable[[Tensor, Coins], Tensor]


@dataclass(frozen=True)
class OpenRound:
    """A round that nodes may be told of: the signed notice, and what travels beside the model."""

    notice: bytes
    beside: bytes


@dataclass(frozen=True)
class RoundMean:
    """What came of a round: the next model as a vector, who is in it, and how many examples it rests on.

    The vector is what the protocol's aggregator makes, which is the mean of the updates for most.
    """

    vector: Tensor
    present: tuple[str, ...]
    weight: float


class AggregateWork:
    """The server's own work in a round, brief and aggregation, as its flow asks for it by name.

    `weight` remembers on how many examples the last aggregation rests.
    """

    def __init__(self, member: Member, root: Root | None) -> None:
        self.pipeline, self.roster, self.root = member.pipeline, member.roster, root
        self.weight = 0.0

    def brief(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """What the server tells beside its model."""
        return [self.pipeline.aggregate.brief(self._desk(models, own), rule) for models, rule, own in jobs]

    def aggregate(self, jobs: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """The next model, or why there is none."""
        return [self._one(gathered, self._desk(models, own), rule) for gathered, models, rule, own in jobs]

    def _one(self, gathered: Gathered, desk: Desk, rule: Memory) -> Any:
        try:
            self.weight = self._examples(gathered)
            return self.pipeline.aggregate(gathered, desk, rule)
        except CroupierError as error:
            return error

    def _examples(self, gathered: Gathered) -> float:
        """Examples of all clients together where they say so, or how many clients there are."""
        if gathered.weights is None:
            return float(len(gathered.present))
        return float(gathered.weights.sum()) * (self.pipeline.encode.cap or 1)

    def _desk(self, models: tuple[Model, ...], own: Coins) -> Desk:
        return Desk(models, self.roster.layout, own, self.root, inputs=self.roster.inputs)


class StrategyLead(Lead):
    """The party called "server", driven by a Flower strategy."""

    def __init__(self, station: Station, root: Root | None = None) -> None:
        self._bench = AggregateWork(station.member, root)
        work = {"brief": self._bench.brief, "aggregate": self._bench.aggregate}
        self._vector = torch.zeros(0)
        self._handed = asyncio.Event()
        self._under_way: asyncio.Task[Outcome] | None = None
        self._server: grpc.aio.Server | None = None
        options, hook = station.options, station.options.hook

        def watched(step: str, number: int) -> None:
            hook(step, number)
            # The player names this step once the model is written down for the nodes: then a round may be announced.
            if step == "leave:model":
                self._handed.set()

        measures = Measures(lambda model: {}, Coins.from_os())
        super().__init__(station.member, station.store(), work, replace(options, hook=watched), measures)

    async def start(self, address: str) -> None:
        """Listen, and give up what an earlier process left open. Raises: SpecError when it cannot listen."""
        self._server, _ = await listen(self, address)
        self.listening = True
        if (player := self.resume()) is not None:
            # Its nodes were told by a run of Flower's that is over: nobody would answer.
            stopped = Outcome(None, ProtocolError("stopped in the middle"))
            await self.end(player, stopped, self._lost(player.notice.round))

    def memory(self) -> Memory:
        """With the model that the strategy hands out."""
        return {**super().memory(), "models": (Model(self._vector).plain(),)}

    async def open_round(self, cohort: tuple[str, ...], vector: Tensor) -> OpenRound:
        """Open a round for these clients. Raises: ProtocolError when there may be no further one."""
        number, agreed = self._done(), self.member.plan.rounds
        if number >= agreed:
            raise ProtocolError(f"all {agreed} rounds that the roster agreed on are played; make a new roster to go on")
        self.turn_to(self.versions.at(number + 1))
        if len(cohort) < self.member.roster.quorum:
            raise ProtocolError(f"{len(cohort)} clients are here, and a round needs {self.member.roster.quorum}")
        self._vector = vector
        self._handed.clear()
        player = await self._open(number, 0, cohort, {})
        self._under_way = asyncio.create_task(self._play(player))
        handed = asyncio.create_task(self._handed.wait())
        await asyncio.wait({self._under_way, handed}, return_when=asyncio.FIRST_COMPLETED)
        handed.cancel()
        if self._under_way.done():
            raise self._under_way.result().error or ProtocolError(f"round {number + 1} ended before it began")
        return OpenRound(self._newest[1], self._beside(player, cohort[0]))

    async def _play(self, player: Player) -> Outcome:
        start = time.perf_counter()
        self._publish(player.notice)
        outcome, _ = await self._held(player)
        if outcome.error is None:
            await self._finish(player, outcome, time.perf_counter() - start)
        else:
            self.options.tell("failed", round=player.notice.round + 1, why=str(outcome.error))
            await self.end(player, outcome, self._lost(player.notice.round))
        return outcome

    async def _content(
        self, player: Player, outcome: Outcome, reports: Mapping[str, Mapping[str, Any]]
    ) -> Outcome:  # fmt: skip
        """The outcome, unless a host without whose consent it may not count is not content.

        Nodes check what is published with their next message, when the strategy has gone on: who refuses it takes no
        further part, and a round without enough nodes is lost.
        """
        for name in self.member.pipeline.place.witnesses:
            if outcome.error is None and not reports.get(name, {}).get("well"):
                return Outcome(None, ProtocolError(f"{name} did not end content"))
        return outcome

    def _beside(self, player: Player, client: str) -> bytes:
        """What the server's letter holds besides the model, which Flower carries."""
        found = self.store.waiting(player.key, client, "model")
        if found is None:
            raise ProtocolError("the model was not handed out")
        body = player.schemas["model"].unpack(self.store.opened_body(player.key, found))
        return canon.dump({name: value for name, value in body.items() if name != "model"})

    async def close_round(self) -> RoundMean:
        """What came of the round. Raises: CroupierError when it was lost."""
        if self._under_way is None:
            raise ProtocolError("no round is open")
        outcome, self._under_way = await self._under_way, None
        if outcome.error is not None or outcome.memory is None:
            raise outcome.error or ProtocolError("the round gave nothing")
        model = Model(**outcome.memory["models"][0])
        return RoundMean(model.vector, tuple(outcome.memory["present"]), self._bench.weight)

    async def stop(self) -> None:
        """Say that all is over if it is, and hang up."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)
        if self._done() >= self.member.plan.rounds:
            await self._say_over()
        self.listening = False
        await self.close()
        if self._server is not None:
            await self._server.stop(1.0)
        if self._done() >= self.member.plan.rounds:
            self.let_go()
        self.store.close()

    async def _say_over(self) -> None:
        """Tell the hosts that the rounds which everybody agreed on are played."""
        roster = self.member.roster
        number = max(self._newest[0], self.store.last_number()) + 1
        with suppress(TimeoutError):
            async with asyncio.timeout(max(5.0, roster.timetable.hold)):
                await self._announce(Notice(number, END, roster.digest, roster.run, self._done(), 0, ()))


def identities_of(member: Member) -> Mapping[str, bytes]:
    """The clients' public keys, by name."""
    return {name: member.roster.card(name).identity for name in member.roster.clients}
